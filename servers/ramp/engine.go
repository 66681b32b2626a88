package ramp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/wire"
)

// Timestamp orders the versions of a key; see package protocol.
type Timestamp = protocol.Timestamp

// Algorithm determines what information versions have about their transactions, and how readers find missing
// versions. All clients of a table use the same.
type Algorithm uint8

// The algorithms.
const (
	// Fast: versions have the hashes of all keys of their transaction. One round, and a second one if a transaction
	// was seen in part.
	Fast Algorithm = iota
	// Small: versions have no information about their transaction. Always two rounds, both
	// by message.
	Small
	// Hybrid: versions have a Bloom filter of 256 bits. One round, and a second one if a transaction was or seems to
	// be seen in part; by message.
	Hybrid
	// Uncontrolled is no RAMP algorithm: a transaction may be seen in part. It is for comparison.
	Uncontrolled
)

func (a Algorithm) String() string {
	return [...]string{"RAMP-Fast", "RAMP-Small", "RAMP-Hybrid", "uncontrolled"}[a&3]
}

func (a Algorithm) kind() protocol.Kind {
	switch a {
	case Fast:
		return protocol.KindHashes
	case Hybrid:
		return protocol.KindBloom
	}
	return protocol.KindNone
}

// A conn carries messages to a partition; see package wire.
type conn interface {
	Begin(max int) ([]byte, error)
	End(h *wire.Header, body []byte)
	Receive() (wire.Message, bool)
	Flush()
	Err() error
	Close() error
}

// A reader Reads the memory of a partition.
type reader interface {
	Reads(local fabric.Region, ops []wire.ReadOp) (taken int, err error)
}

// A link is a partition, and the connection to it if there is one.
type link struct {
	number uint32
	conn   conn
	reader reader // nil: no one-sided Reads
	land   *landing
	heard  int64 // when the last answer came
	term   uint64
	// life: of the partition: during a life nothing that the partition has answered is lost. A term lasts at most as
	// long as a life
	life    uint64
	tenure  int64 // end of the time in which Reads of this term's memory are valid
	extents map[uint32]*extent
	waiting []*call // not sent yet
	reads   []read  // not posted yet
	under   map[uint64]*call
	lastErr error

	dialing   bool
	dialAfter int64
}

type extent struct {
	key   fabric.Key
	known bool
}

// A call is a request to one partition until it is answered. Except with once, it may be repeated: a partition
// answers a repetition in the same way.
type call struct {
	id     uint64
	op     protocol.Op
	flags  protocol.Flags
	size   int
	append func(b []byte) []byte
	sent   int64
	life   uint64 // of the partition, when the call was last sent
	same   bool   // the call is valid only in the life that life says
	again  bool   // it may have arrived before
	// done receives the answer. The body is valid during the call. err: the connection was lost, and the call must
	// not be repeated.
	done func(c *call, s protocol.Status, body []byte, err error)
	once bool
	over conn // valid only on this connection; nil: on any
	// of: the transaction to whose memory the body refers: the caller owns keys and values again once it has ended.
	// nil: none
	of *underWay
}

// void reports whether the call must no longer be sent, because its transaction has ended and the memory of its
// body may have changed.
func void(c *call) bool { return c.of != nil && c.of.ended }

// An engine is the client without threads. One goroutine at a time uses it.
type engine struct {
	alg     Algorithm
	client  uint64 // random
	stride  uint16 // step to another number in timestamps, when another client's transaction has the same timestamp
	seed    uint64
	circle  *circle.Circle
	clock   *protocol.Clock
	read    func() (mono int64, wall uint64) // nanoseconds; milliseconds since 1970
	now     int64
	wall    uint64
	skew    int64 // milliseconds
	links   []*link
	slots   slots
	nextID  uint64
	ops     []wire.ReadOp
	running []transaction
	paused  []paused // in the order of their times
	closed  error
	counts  Stats
	// replicas: another node may take over a partition.
	replicas bool

	beforeCommit func(ts Timestamp) // nil: none
}

// A transaction is a PutAll or GetAll under way.
type transaction interface {
	core() *underWay
	links() []*link // for whose answers it waits
	abandon(e *engine, why error)
}

// underWay is the engine's part of a transaction.
type underWay struct {
	deadline int64
	at       int // index in engine.running
	ended    bool
}

func (t *underWay) core() *underWay { return t }

func (e *engine) run(t transaction) {
	t.core().at = len(e.running)
	e.running = append(e.running, t)
}

// ended removes a transaction. It returns false if it was removed before.
func (e *engine) ended(t *underWay) bool {
	if t.ended {
		return false
	}
	t.ended = true
	last := len(e.running) - 1
	e.running[t.at] = e.running[last]
	e.running[t.at].core().at = t.at
	e.running[last] = nil
	e.running = e.running[:last]
	return true
}

// Stats are the counters of a client.
type Stats struct {
	Messages uint64 // requests sent
	OneSided uint64 // keys that were Read
	Refused  uint64 // Reads whose copy was invalid
	Repaired uint64 // keys requested by timestamp
	Retries  uint64 // transactions that were started again, with another timestamp or because a version was gone
}

// suspendJump is how far, in milliseconds, date and monotonic clock diverge between two readings before the machine
// counts as suspended: its monotonic clock stood still, so every tenure has ended.
const suspendJump = 100

func newEngine(alg Algorithm, client uint64, read func() (int64, uint64)) *engine {
	e := &engine{alg: alg, client: client, stride: uint16(client>>24) | 1, read: read, clock: protocol.NewClock(uint16(client >> 8))}
	e.now, e.wall = read()
	e.skew = int64(e.wall) - e.now/1e6
	return e
}

// look reads the clocks.
func (e *engine) look() int64 {
	e.now, e.wall = e.read()
	skew := int64(e.wall) - e.now/1e6
	if d := skew - e.skew; d > suspendJump || d < -suspendJump {
		for _, l := range e.links {
			l.tenure = 0
		}
	}
	e.skew = skew
	return e.now
}

// setTable sets the seed and the number of partitions.
func (e *engine) setTable(seed uint64, partitions uint32) {
	e.seed = seed
	var ids []uint32
	for i := range partitions {
		ids = append(ids, i)
		e.links = append(e.links, &link{number: i, extents: map[uint32]*extent{}, under: map[uint64]*call{}})
	}
	e.circle = circle.New(seed, ids)
}

func (e *engine) owner(hash uint64) *link {
	n, _ := e.circle.Owner(hash)
	return e.links[n]
}

// attach gives a partition its connection. The next push sends the calls that wait.
func (e *engine) attach(l *link, c conn, r reader, land *landing, w *protocol.Welcome) {
	if e.closed != nil || l.conn != nil {
		c.Close()
		return
	}
	l.conn, l.reader, l.land, l.heard, l.lastErr = c, r, land, e.now, nil
	if w.Term != l.term {
		l.term, l.tenure = w.Term, 0
	}
	l.life = w.Life
	clear(l.extents)
}

// lost ends a connection. Calls under way wait for the next connection, except those that are sent only once.
func (e *engine) lost(l *link, err error) {
	if l.conn == nil {
		return
	}
	l.conn.Close()
	l.conn, l.reader, l.lastErr, l.dialAfter = nil, nil, err, e.now+redialAfter
	var ended []*call
	for _, id := range sortedIDs(l.under) {
		c := l.under[id]
		if c.again = true; void(c) {
			continue
		} else if c.once {
			ended = append(ended, c)
		} else {
			l.waiting = append(l.waiting, c)
		}
	}
	clear(l.under)
	for _, c := range ended {
		c.done(c, protocol.StatusUnavailable, nil, fmt.Errorf("%w (%w)", ErrUnavailable, err))
	}
	e.pushReads(l) // requests their keys by message
}

var errElsewhere = fmt.Errorf("%w: the partition is served by another node, or lacks copies", ErrUnavailable)

var errNewLife = fmt.Errorf("%w: the partition has begun a new life", ErrUnavailable)

func sortedIDs(m map[uint64]*call) []uint64 {
	ids := make([]uint64, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// redialAfter is the pause before a lost or failed connection is retried: 50 ms.
const redialAfter = int64(50e6)

// send sends a call as soon as there is a connection with room.
func (e *engine) send(l *link, c *call) {
	e.nextID++
	c.id = e.nextID
	l.waiting = append(l.waiting, c)
	e.push(l)
}

// push sends waiting calls.
func (e *engine) push(l *link) (worked bool) {
	n := 0
	var ended []*call
	for ; n < len(l.waiting) && l.conn != nil; n++ {
		c := l.waiting[n]
		if void(c) {
			continue
		}
		if c.same && c.life != l.life || c.over != nil && c.over != l.conn {
			ended = append(ended, c)
			continue
		}
		b, err := l.conn.Begin(c.size)
		if errors.Is(err, wire.ErrAgain) {
			break
		}
		if err != nil {
			l.waiting = slices.Delete(l.waiting, 0, n)
			e.lost(l, err)
			n = 0
			break
		}
		c.sent, c.life = e.now, l.life
		l.conn.End(&wire.Header{Op: uint8(c.op), Flags: uint8(c.flags), Request: c.id}, c.append(b))
		l.under[c.id] = c
		e.counts.Messages++
		worked = true
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
	for _, c := range ended {
		c.done(c, protocol.StatusUnknown, nil, errNewLife)
	}
	return worked || len(ended) > 0
}

// step receives answers, and sends waiting calls and Reads. Completions of Reads come by readDone.
func (e *engine) step() (worked bool) {
	e.look()
	worked = e.resume()
	for _, l := range e.links {
		for l.conn != nil {
			m, ok := l.conn.Receive()
			if !ok {
				break
			}
			worked = true
			c := l.under[m.Request]
			if c == nil || uint8(c.op) != m.Op {
				e.lost(l, fmt.Errorf("%w: an answer to nothing", errProtocol))
				break
			}
			if e.replicas && protocol.Status(m.Status) == protocol.StatusUnavailable {
				e.lost(l, errElsewhere) // the next connection is to the node that serves the partition
				break
			}
			delete(l.under, m.Request)
			l.heard = e.now
			c.done(c, protocol.Status(m.Status), m.Body, nil)
		}
		if l.conn != nil && l.conn.Err() != nil {
			e.lost(l, l.conn.Err())
			worked = true
		}
		worked = e.push(l) || worked
		worked = e.pushReads(l) || worked
	}
	for _, l := range e.links {
		if l.conn != nil {
			l.conn.Flush()
		}
	}
	return worked
}

// tick ends transactions whose deadline has passed. It is called some hundred times a second.
func (e *engine) tick() {
	e.look()
	for i := len(e.running) - 1; i >= 0; i-- { // an ended one is replaced by the last one, which has been checked
		if t := e.running[i]; e.now >= t.core().deadline {
			t.abandon(e, e.why(t.links()))
		}
	}
	for _, l := range e.links {
		if e.silent(l) {
			e.lost(l, errSilent)
		}
		if l.conn == nil { // otherwise push removes them
			l.waiting = slices.DeleteFunc(l.waiting, void)
		}
	}
}

// silentAfter is how long a partition that other nodes may take over may owe an answer before its connection is given
// up: a stopped process, or a node that is cut off, does not end its connections. The calls under way are sent again,
// to the node that serves the partition then.
const silentAfter = int64(2 * time.Second)

var errSilent = fmt.Errorf("%w: no answer for %v", ErrUnavailable, time.Duration(silentAfter))

func (e *engine) silent(l *link) bool {
	if !e.replicas || l.conn == nil || e.now-l.heard <= silentAfter {
		return false
	}
	for _, c := range l.under {
		if e.now-c.sent > silentAfter {
			return true
		}
	}
	return false
}

// why returns the last error of a partition that does not answer.
func (e *engine) why(links []*link) error {
	for _, l := range links {
		if l.conn == nil && l.lastErr != nil {
			return fmt.Errorf("partition %d: %w", l.number, l.lastErr)
		}
	}
	return errors.New("its time is over")
}

// failed returns the error for a status that no retry changes.
func failed(s protocol.Status) error {
	switch s {
	case protocol.StatusFull:
		return ErrFull
	case protocol.StatusTooLarge:
		return ErrTooLarge
	case protocol.StatusDenied:
		return ErrDenied
	case protocol.StatusUnavailable:
		return ErrUnavailable
	}
	return fmt.Errorf("%w: %v", errProtocol, s)
}

// close ends all transactions.
func (e *engine) close(why error) {
	e.closed = why
	for len(e.running) > 0 {
		e.running[len(e.running)-1].abandon(e, why)
	}
	for _, l := range e.links {
		if l.conn != nil {
			l.conn.Close()
			l.conn = nil
		}
	}
}
