package wire

import (
	"fmt"
	"sync/atomic"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

// Carrier is the way in which the messages of a connection are transferred.
type Carrier uint8

// The carriers. Both ends of a connection use the same one.
const (
	CarrierRing Carrier = 1 + iota // Writes to a ring of the peer
	CarrierSend                    // Sends to Recvs that the peer has posted
)

func (c Carrier) String() string {
	switch c {
	case CarrierRing:
		return "ring"
	case CarrierSend:
		return "send"
	}
	return fmt.Sprintf("carrier %d", uint8(c))
}

// Conn carries messages between this process and one peer, in both directions. Only the thread of its Group uses
// it; but any goroutine may call Err.
type Conn interface {
	// Begin returns an empty slice with room for a body of max bytes. The caller appends the body and calls End, or
	// abandons it by calling Begin again. The error is ErrAgain if the peer first has to consume earlier messages,
	// ErrTooLong above MaxBody, or the reason why the connection has ended. There is no notification of room: after
	// ErrAgain the caller calls Begin again some time later.
	Begin(max int) ([]byte, error)
	// End makes a message of the body that was appended to Begin's slice. It is sent at the next Flush at the latest.
	End(h *Header, body []byte)
	// Flush sends all messages.
	Flush()
	// Receive returns the next message if there is one. Its body is private memory, valid until the next Receive of
	// any Conn of the Group.
	Receive() (Message, bool)
	// Peer describes the other end.
	Peer() fabric.Peer
	// Err returns why the connection has ended, nil if it has not.
	Err() error
	// Close ends the connection. Messages that were not flushed are lost.
	Close() error
}

// Stats count the activity of a connection since its beginning. The counters never decrease.
type Stats struct {
	Sent, Received uint64 // messages
	Posts          uint64 // doorbells: calls of Post with frames
	Bells          uint64 // notifications sent
	Reads          uint64 // one-sided Reads of the caller
}

// Offsets in a control area. Each end writes to the other's control area, one word at a time.
const (
	wordCredit = 0  // ring position up to which the writer has consumed, in bytes
	wordArmed  = 8  // the writer's armed number
	wordBell   = 16 // the armed number for which the writer has notified
	wordLanded = 24 // number of the last large body that the writer has Read
	wordCount  = 4
	ctrlSize   = 64
	landSize   = RingSize + ctrlSize // one region holds ring and control area of one end
)

// A link is a Conn over an endpoint of a fabric.
type link struct {
	g     *Group
	ep    fabric.Endpoint
	id    uint64 // the high bits of the WR IDs of its operations
	peer  fabric.Key
	land  fabric.Region // this end's ring and control area; the peer writes to it
	stage fabric.Region // a mirror of the peer's ring, and the words for the peer's control area
	out   sender
	in    receiver
	bulk  bulk
	sends *sends // for CarrierSend, else nil

	wrs     [3]fabric.WR // scratch for Post, which does not keep it
	reads   []fabric.WR  // scratch for Reads
	told    uint64       // the in.tail that was last written to the peer's control area
	posts   []uint64
	written int  // the caller's Writes that have completed since the last Written
	under   int  // the number of signalled operations that have not completed
	dirty   bool // the link is in g.dirty
	max     int  // room of the frame under construction
	inBulk  *bulkSlot
	suspect time.Time // since when an incomplete or invalid frame has been in the ring
	badNow  bool

	armed     uint64 // this end's number, as written to the peer
	busy      [wordCount]bool
	answered  uint64 // the peer's number that was last notified
	bellAgain bool

	err        atomic.Pointer[error]
	closed     bool
	drainSince time.Time
	stats      Stats
}

func (c *link) Peer() fabric.Peer { return c.ep.Peer() }
func (c *link) Stats() Stats      { return c.stats }

func (c *link) Err() error {
	if p := c.err.Load(); p != nil {
		return *p
	}
	return nil
}

// fail ends the connection with the first error.
func (c *link) fail(err error) {
	if c.err.CompareAndSwap(nil, &err) {
		c.ep.Close()
	}
}

func (c *link) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	c.fail(ErrClosed)
	c.g.drop(c)
	return nil
}

func (c *link) Begin(max int) ([]byte, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	if max > MaxBody {
		return nil, ErrTooLong
	}
	c.max, c.inBulk = max, nil
	if max > MaxInline {
		return c.bulk.begin(c, max)
	}
	b := c.beginFrame(max)
	if b == nil {
		return nil, ErrAgain
	}
	return b[headSize:headSize], nil
}

// beginFrame returns the memory of a frame whose body has at most n bytes, nil if there is no room. Without room it
// first reads the credit in the control area.
func (c *link) beginFrame(n int) []byte {
	if c.sends != nil {
		return c.sends.begin(n)
	}
	if b := c.out.begin(n); b != nil {
		return b
	}
	c.takeCredit(uint32(words.LoadLE(c.land.Bytes(), RingSize+wordCredit)))
	return c.out.begin(n)
}

func (c *link) takeCredit(low uint32) {
	if c.sends != nil {
		if !c.sends.credit(low) {
			c.fail(fmt.Errorf("%w: credit for messages that were not sent", ErrProtocol))
		}
		return
	}
	if !c.out.credit(low) {
		c.fail(fmt.Errorf("%w: credit for bytes that were not sent", ErrProtocol))
	}
}

func (c *link) End(h *Header, body []byte) {
	if len(body) > c.max {
		panic(fmt.Sprintf("wire: a body of %d bytes where Begin was asked for %d", len(body), c.max))
	}
	if h.Op >= OpReserved || h.Flags >= FlagReserved {
		panic(fmt.Sprintf("wire: op %#x with flags %#x is reserved", h.Op, h.Flags))
	}
	c.stats.Sent++
	if c.inBulk != nil {
		c.bulk.end(c, h, body)
		return
	}
	c.endFrame(h, len(body))
}

func (c *link) endFrame(h *Header, n int) {
	if c.sends != nil {
		c.sends.end(h, n)
	} else {
		c.out.end(h, n, uint32(c.in.tail))
	}
	c.g.mark(c)
}

func (c *link) Flush() {
	if c.Err() != nil {
		return
	}
	if c.bellAgain && !c.busy[wordBell/8] {
		c.ring()
	}
	if c.sends != nil {
		c.sends.flush()
		return
	}
	c.tell()
	if c.out.flushed == c.out.head || len(c.posts) == cap(c.posts) {
		return
	}
	// Contiguous frames are posted with one doorbell, a Write for each lap. The last Write is signalled, because the
	// armed number is read after its completion.
	w := &c.wrs
	n := 0
	for from := c.out.flushed; from < c.out.head && n < len(w); n++ {
		at, size := c.out.segment(from)
		w[n] = fabric.WR{
			ID: c.id | kindFrames, Op: fabric.Write, Local: c.stage, LOff: at, LLen: size, Remote: c.peer, ROff: at,
		}
		from += size
	}
	w[n-1].Flags = fabric.Signal
	c.stats.Posts++
	taken, err := c.ep.Post(w[:n])
	for _, done := range w[:taken] {
		c.out.flushed += done.LLen
	}
	if taken == n {
		c.posts = append(c.posts, c.out.flushed)
		c.under++
	}
	c.postError(err)
}

// creditEvery is the number of ring bytes that this end consumes before it writes the consumed position to the peer's
// control area. Frames carry the position as well, but a peer that waits for room may receive none (invariant 6).
// Larger: a sender may need room for the remainder of a lap and for the longest frame, less than two of the longest
// frames, from a peer that has consumed everything; so creditEvery is at most a ring less two of the longest frames.
// Smaller: more Writes; a quarter of a ring is one Write in some 200 small messages.
const creditEvery = RingSize / 4

const _ = uint(RingSize - 2*maxFrame - creditEvery) // compiles if it is not negative

// tell Writes the credit and the number of the last body Read to the peer's control area, if
// enough has changed since the last Write.
func (c *link) tell() {
	if c.in.tail-c.told >= creditEvery && !c.busy[wordCredit/8] {
		c.told = c.in.tail
		c.writeWord(wordCredit, c.told, 0)
	}
	if c.bulk.landedLast != c.bulk.told && !c.busy[wordLanded/8] {
		c.bulk.told = c.bulk.landedLast
		c.writeWord(wordLanded, c.bulk.told, 0)
	}
}

// postError handles an error of Post. Operations that were not taken are posted again at the next Flush
// of the group.
func (c *link) postError(err error) {
	if err == nil {
		return
	}
	if err != fabric.ErrAgain {
		c.fail(err)
		return
	}
	c.g.mark(c)
}

// writeWord writes a word of the peer's control area. The last Write of that word has completed (invariant 3).
func (c *link) writeWord(word, value uint64, flags fabric.Flags) {
	at := uint64(RingSize) + word
	le.PutUint64(c.stage.Bytes()[at:], value)
	c.wrs[0] = fabric.WR{
		ID: c.id | kindWord | word/8, Op: fabric.Write, Flags: fabric.Signal | flags,
		Local: c.stage, LOff: at, LLen: 8, Remote: c.peer, ROff: at,
	}
	n, err := c.ep.Post(c.wrs[:1])
	if n == 1 {
		c.busy[word/8] = true
		c.under++
		return
	}
	switch { // retried at the next Flush or Arm of the group
	case word == wordCredit:
		c.told = value - RingSize
	case word == wordLanded:
		c.bulk.told = value - 1
	case word == wordArmed:
		c.armed--
	case word == wordBell:
		c.bellAgain = true
	}
	c.postError(err)
}

// framesDone handles the completion of the oldest post, and so of all operations before it.
func (c *link) framesDone() {
	c.out.completed = c.posts[0]
	c.posts = c.posts[:copy(c.posts, c.posts[1:])]
	c.ring()
	if c.out.flushed != c.out.head {
		c.g.mark(c)
	}
}

// ring notifies the peer if its armed number is one that this end has not notified (invariant 4). All of this end's
// completed messages are in the peer's memory by now.
func (c *link) ring() {
	armed := words.LoadLE(c.land.Bytes(), RingSize+wordArmed)
	if armed == c.answered && !c.bellAgain {
		return
	}
	if c.busy[wordBell/8] {
		c.bellAgain = true
		return
	}
	c.answered, c.bellAgain = armed, false
	c.stats.Bells++
	c.writeWord(wordBell, armed, fabric.Notify)
}

func (c *link) Receive() (Message, bool) {
	if c.bulk.landing {
		return c.bulk.landed(c)
	}
	m, ok := c.takeFrame()
	switch {
	case !ok:
		return Message{}, false
	case m.Op >= OpReserved:
		c.fail(fmt.Errorf("%w: op %#x", ErrProtocol, m.Op))
		return Message{}, false
	case m.Flags&flagBulk != 0:
		c.bulk.fetch(c, &m)
		return c.bulk.landed(c)
	}
	c.stats.Received++
	return m, true
}

// takeFrame returns the next frame, whether its op is the caller's or this package's.
func (c *link) takeFrame() (Message, bool) {
	if c.Err() != nil {
		return Message{}, false
	}
	if c.sends != nil {
		return c.sends.take()
	}
	m, credit, ok, suspect := c.in.take(c.g.scratch)
	c.badNow = suspect
	if !ok {
		return m, false
	}
	c.takeCredit(credit)
	if c.in.tail-c.told >= creditEvery {
		c.g.mark(c)
	}
	return m, c.Err() == nil
}

// isArmed reports whether the peer has a number from this end that it has not used. A peer that is about to use
// the number will notify this end.
func (c *link) isArmed() bool {
	return c.sends != nil || words.LoadLE(c.land.Bytes(), RingSize+wordBell) != c.armed
}

// arrived reports whether Receive may have something to return.
func (c *link) arrived() bool {
	if c.bulk.landing {
		return c.bulk.waiting(c.g)
	}
	if c.sends != nil {
		return c.sends.arrived()
	}
	return c.in.arrived()
}
