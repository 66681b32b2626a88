package shard

import (
	"errors"
	"slices"

	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// largeBody is the size above which a body is not copied: it is served where it was received, and nothing else is
// polled until then.
const largeBody = 16 << 10

// Conn is the part of a connection that the shard needs; see package wire.
type Conn interface {
	Begin(max int) ([]byte, error)
	End(h *wire.Header, body []byte)
	Receive() (wire.Message, bool)
	Flush()
	Err() error
	Close() error
}

// A conn is a connection and its outgoing answers.
type conn struct {
	Conn
	client *client
	denied bool // AUTH has to come first
	proof  [protocol.ProofSize]byte
	held   wire.Held // answers for which the peer has no room: nothing is received before they are sent
	ended  bool
	once   bool // no write is repeated, so none is remembered
	direct bool // the answer under construction is in the ring's memory
}

// A message is a polled request.
type message struct {
	c     *conn
	id    uint64
	op    protocol.Op
	flags protocol.Flags
	body  []byte
	key   bool   // a request for one key,
	hash  uint64 // the key's hash
	parts Parts  // a request that was not encoded; else nil
}

// Greeting has the fields of a connection's hello.
type Greeting struct {
	Client uint64
	Next   uint64                   // the client's next number
	Term   uint64                   // of a member: the term that it served when it answered the hello, 0 if it served none
	Auth   bool                     // AUTH has to come first,
	Proof  [protocol.ProofSize]byte // with this proof
	Once   bool                     // the client sends each request once, because it cannot lose the answer while the shard lives
}

// Attach adds a connection. The shard's thread calls it, between two sweeps. A member ends the connection at once if it
// has begun or ended a reign since it answered the hello (member, invariant 4).
func (s *Shard) Attach(c Conn, g Greeting) {
	late := s.o.Log != nil && !g.Once && g.Term != s.servingTerm()
	s.conns = append(s.conns, &conn{Conn: c, client: s.meet(g.Client, g.Next), denied: g.Auth, proof: g.Proof, once: g.Once, ended: late})
	if late {
		s.dropEnded()
	}
}

// Connections returns the number of connections.
func (s *Shard) Connections() int { return len(s.conns) }

// poll drops ended connections, and receives up to pollsPerConn messages from each of the others.
func (s *Shard) poll() {
	ended := false
	for _, c := range s.conns {
		c.ended = c.Err() != nil
		ended = ended || c.ended
	}
	if ended {
		s.dropEnded()
	}
	if s.o.Log != nil && (s.o.Log.Waits() || s.closed()) {
		return // a member has to take the entries first
	}
	if s.o.Store != nil && s.failed == nil && (s.o.Store.Backlog() > maxBacklog || s.waiting+len(s.scans) > maxWaiting) {
		return
	}
	n := len(s.conns)
	for i := range n {
		c := s.conns[(s.first+i)%n]
		for range pollsPerConn {
			if len(c.held) > 0 {
				break
			}
			m, ok := c.Receive()
			if !ok {
				break
			}
			if p, ok := m.Local.(Parts); ok {
				s.inbox = append(s.inbox, message{c: c, parts: p})
				continue
			}
			body := m.Body
			if len(body) <= largeBody {
				at := len(s.bodies)
				s.bodies = append(s.bodies, body...)
				body = s.bodies[at:len(s.bodies):len(s.bodies)]
			}
			s.inbox = append(s.inbox, message{c: c, id: m.Request, op: protocol.Op(m.Op), flags: protocol.Flags(m.Flags), body: body})
			if len(m.Body) > largeBody { // the next Receive would overwrite it
				s.first = (s.first + i + 1) % n
				return
			}
		}
	}
	if n > 0 {
		s.first = (s.first + 1) % n
	}
}

// dropEnded forgets ended connections, and withdraws their scans: a client that has given up connects and asks again,
// so reading the file for the old scan would be useless.
func (s *Shard) dropEnded() {
	s.dropScans(func(q *scan) bool { return q.r.c.ended })
	for _, c := range s.conns {
		if c.ended {
			c.Close()
			s.part(c.client)
			c.held = nil
		}
	}
	s.conns = slices.DeleteFunc(s.conns, func(c *conn) bool { return c.ended })
	s.first = 0
}

// flush sends answers that were held back, and all answers of this sweep.
func (s *Shard) flush() (worked bool) {
	for _, c := range s.conns {
		if !c.ended && c.held.Send(c) {
			worked = true
		}
		c.Flush()
	}
	return worked
}

// holding reports whether answers wait for room at a peer. Nothing wakes the shard when there is room.
func (s *Shard) holding() bool {
	for _, c := range s.conns {
		if len(c.held) > 0 && !c.ended {
			return true
		}
	}
	return false
}

// A reply is the destination of an answer: a request of a connection, or a part of a batch or of Parts.
type reply struct {
	c     *conn
	id    uint64
	op    protocol.Op
	batch *batch
	parts Parts
	part  int
}

// A batch gathers the answers to its parts, encoded for sending, in the order in which they are given.
type batch struct {
	r     reply
	out   []byte
	parts []span // of out, by part
	left  int
	mixed bool // answers were not given in the order of the parts
}

// A span is the place of a part's answer in out.
type span struct{ from, to int }

// partRoom is the room that every part of an answer needs besides the value of a GET: its head, the answer to a
// write, and padding.
const partRoom = 32

// begin returns memory for an answer of at most n bytes; end sends it.
func (s *Shard) begin(r reply, n int) []byte {
	c := r.c
	c.direct = false
	if r.parts != nil {
		return make([]byte, 0, n)
	}
	if b := r.batch; b != nil {
		b.out = slices.Grow(b.out, n+partRoom)
		at := len(b.out) + partHead
		return b.out[at:at:cap(b.out)]
	}
	if len(c.held) == 0 && !c.ended {
		b, err := c.Begin(n)
		if err == nil {
			c.direct = true
			return b
		}
	}
	return make([]byte, 0, n)
}

func (s *Shard) end(r reply, flags protocol.Flags, status protocol.Status, body []byte) {
	if r.batch != nil {
		s.endPart(r, flags, status, body)
		return
	}
	if r.parts != nil {
		r.parts.Answer(r.part, flags, status, body)
		return
	}
	if r.c.ended {
		return
	}
	version, _ := s.o.Map()
	s.header = wire.Header{Op: uint8(r.op), Flags: uint8(flags), Status: uint16(status), Request: r.id, MapVersion: version}
	if r.c.direct {
		r.c.direct = false
		r.c.End(&s.header, body)
		return
	}
	if err := r.c.Err(); err != nil && !errors.Is(err, wire.ErrAgain) {
		return
	}
	r.c.held.Add(&s.header, body)
}

// partHead is the size of a part's head.
const partHead = 8

// endPart keeps the answer to a part, whose body is in the memory that begin returned; the last part sends all. A
// value for which the answer has no room is left out: the client has to ask for it alone. The answer to a write
// always has room, because an applied write must not be denied.
func (s *Shard) endPart(r reply, flags protocol.Flags, status protocol.Status, body []byte) {
	b := r.batch
	start := len(b.out)
	if !r.op.IsWrite() && start+len(body)+partRoom*len(b.parts) > protocol.MaxBody {
		flags, status, body = 0, protocol.StatusTooLarge, nil
	}
	b.out = protocol.AppendPart(b.out, r.op, flags, status)
	b.out = protocol.EndPart(append(b.out, body...), start)
	b.parts[r.part] = span{start, len(b.out)}
	b.mixed = b.mixed || r.part != len(b.parts)-b.left
	if b.left--; b.left > 0 {
		return
	}
	out := s.begin(b.r, len(b.out))
	if b.mixed {
		for _, p := range b.parts {
			out = append(out, b.out[p.from:p.to]...)
		}
	} else {
		out = append(out, b.out...)
	}
	s.end(b.r, 0, protocol.StatusOK, out)
	if cap(b.out) <= batchKeep && len(s.batches) < cap(s.batches) {
		s.batches = append(s.batches, b)
	}
}

// batchKeep is the largest buffer of a batch, in bytes, that is kept for reuse.
const batchKeep = 64 << 10

// newBatch returns a batch of n parts.
func (s *Shard) newBatch(r reply, n int) *batch {
	var b *batch
	if last := len(s.batches) - 1; last >= 0 {
		b, s.batches = s.batches[last], s.batches[:last]
	} else {
		b = &batch{}
	}
	*b = batch{r: r, out: b.out[:0], parts: slices.Grow(b.parts[:0], n)[:n], left: n}
	return b
}

// refuse answers without a body.
func (s *Shard) refuse(r reply, status protocol.Status) { s.end(r, 0, status, s.begin(r, 0)) }

func (s *Shard) answerWritten(r reply, status protocol.Status, w protocol.Written) {
	if r.parts != nil {
		r.parts.Wrote(r.part, status, w)
		return
	}
	s.end(r, 0, status, w.AppendBody(s.begin(r, protocol.WrittenSize)))
}
