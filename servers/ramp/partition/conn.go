package partition

import (
	"errors"
	"slices"

	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/wire"
)

// Conn is the part of a connection that the partition needs; see package wire.
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
	denied bool // AUTH has to come first
	proof  [protocol.ProofSize]byte
	held   wire.Held // answers for which the peer has no room: nothing is received before they are sent
	ended  bool
	locked bool // the client has asked for locks
}

// Greeting has the fields of a connection's hello.
type Greeting struct {
	Term  uint64                   // in which this node served the partition, as the client was told; 0: in none
	Auth  bool                     // AUTH has to come first,
	Proof [protocol.ProofSize]byte // with this proof
}

// Attach adds a connection, between two steps.
func (p *Partition) Attach(c Conn, g Greeting) {
	p.conns = append(p.conns, &conn{Conn: c, denied: g.Auth, proof: g.Proof})
}

// Connections returns the number of connections.
func (p *Partition) Connections() int { return len(p.conns) }

// receive serves up to pollsPerConn messages of each connection.
func (p *Partition) receive() (worked bool) {
	n, ended := len(p.conns), false
	for i := range n {
		c := p.conns[(p.first+i)%n]
		if c.ended = c.Err() != nil; c.ended {
			ended = true
			continue
		}
		for range pollsPerConn {
			if len(c.held) > 0 {
				break
			}
			m, ok := c.Receive()
			if !ok {
				break
			}
			p.counts.Messages++
			p.request(reply{c, m.Request, protocol.Op(m.Op)}, protocol.Flags(m.Flags), m.Body)
			worked = true
		}
	}
	if n > 0 {
		p.first = (p.first + 1) % n
	}
	if ended {
		p.dropEnded()
	}
	return worked
}

func (p *Partition) dropEnded() {
	for _, c := range p.conns {
		if !c.ended {
			continue
		}
		c.Close()
		c.held = nil
		if c.locked {
			p.locks.release(func(h *holder) bool { return h.conn == c })
		}
	}
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool { return c.ended })
	p.first = 0
}

// flush sends answers that were held back, and all new answers.
func (p *Partition) flush() (worked bool) {
	p.owes = false
	for _, c := range p.conns {
		if !c.ended && c.held.Send(c) {
			worked = true
		}
		c.Flush()
	}
	return worked
}

// holding reports whether answers wait for room at a peer. Nothing wakes the partition when there is room.
func (p *Partition) holding() bool {
	return slices.ContainsFunc(p.conns, func(c *conn) bool { return len(c.held) > 0 && !c.ended })
}

// Owes reports whether answers to connections wait for the next Step.
func (p *Partition) Owes() bool { return p.owes }

// A reply is the destination of an answer.
type reply struct {
	c  *conn
	id uint64
	op protocol.Op
}

// send sends an answer. It keeps no reference to body.
func (p *Partition) send(r reply, s protocol.Status, body []byte) {
	c := r.c
	if c.ended {
		return
	}
	p.owes = true
	h := wire.Header{Op: uint8(r.op), Status: uint16(s), Request: r.id}
	if len(c.held) == 0 {
		b, err := c.Begin(len(body))
		if err == nil {
			c.End(&h, append(b, body...))
			return
		}
		if !errors.Is(err, wire.ErrAgain) {
			return
		}
	}
	c.held.Add(&h, slices.Clone(body))
}

// request serves a message.
func (p *Partition) request(r reply, flags protocol.Flags, body []byte) {
	if r.c.denied {
		if r.op != protocol.OpAuth || !protocol.ProofEqual(body, r.c.proof[:]) {
			p.send(r, protocol.StatusDenied, nil)
			return
		}
		r.c.denied = false
	}
	switch r.op {
	case protocol.OpPrepare:
		if p.prepare.Parse(body) != nil {
			break
		}
		done := func(s protocol.Status, newest Timestamp) {
			n := protocol.Newest{TS: newest}
			var b [protocol.NewestSize]byte
			p.send(r, s, n.AppendBody(b[:0]))
		}
		p.Prepare(&p.prepare, flags, done)
		return
	case protocol.OpCommit, protocol.OpAbort, protocol.OpUnlock:
		var d protocol.Transaction
		if d.Parse(body) != nil {
			break
		}
		p.decision(r, d)
		return
	case protocol.OpGet:
		if p.get.Parse(body) != nil {
			break
		}
		each, done := p.answering(r, len(p.get.Keys))
		p.Get(&p.get, flags, each, done)
		return
	case protocol.OpLock:
		if p.lock.Parse(body) != nil {
			break
		}
		r.c.locked = true
		each, done := p.answering(r, len(p.lock.Keys))
		p.Lock(r.c, &p.lock, flags&protocol.FlagExclusive != 0, each, done)
		return
	case protocol.OpExtent:
		number, err := protocol.ParseExtentRequest(body)
		if err != nil {
			break
		}
		k, ok := p.arena.Key(number)
		if !ok {
			p.send(r, protocol.StatusUnknown, nil)
			return
		}
		e := protocol.Extent{Term: p.term, Key: [5]uint64{k.ID, k.Rkey, k.Nonce, k.Base, k.Len}}
		p.send(r, protocol.StatusOK, e.AppendBody(nil))
		return
	case protocol.OpMap:
		if p.seat == nil {
			p.send(r, protocol.StatusUnknownOp, nil)
			return
		}
		p.send(r, protocol.StatusOK, p.seat.places())
		return
	case protocol.OpAuth:
		p.send(r, protocol.StatusOK, nil)
		return
	default:
		p.send(r, protocol.StatusUnknownOp, nil)
		return
	}
	p.send(r, protocol.StatusMalformed, nil)
}

func (p *Partition) decision(r reply, d protocol.Transaction) {
	done := func(s protocol.Status) { p.send(r, s, nil) }
	switch r.op {
	case protocol.OpCommit:
		p.Commit(d, done)
	case protocol.OpAbort:
		p.Abort(d, done)
	default:
		p.Unlock(d)
		done(protocol.StatusOK)
	}
}

// answering returns the functions that build and send the answer to a GET of keys keys. Values for which the answer
// has no room are left out.
func (p *Partition) answering(r reply, keys int) (each func(int, *protocol.Version), done func(protocol.Status)) {
	var out []byte
	each = func(i int, v *protocol.Version) {
		if i == 0 {
			g := protocol.Got{Term: p.term, Tenure: p.tenureLeft()}
			out = g.AppendHead(p.out[:0], keys)
		}
		if len(out)+len(v.Content)+protocol.VersionRoom*(keys-i) > protocol.MaxBody {
			v.State, v.Content = protocol.StateOmitted, nil
		}
		out = v.Append(out)
	}
	done = func(s protocol.Status) {
		if s != protocol.StatusOK {
			p.send(r, s, nil)
			return
		}
		p.send(r, s, out)
		if p.out = out[:0]; cap(out) > 1<<20 {
			p.out = nil
		}
	}
	return each, done
}
