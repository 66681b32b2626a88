package wire

import (
	"fmt"
	"sync/atomic"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

// Carrier is how the messages of a connection travel.
type Carrier uint8

// The carriers. The two ends of a connection use the same.
const (
	CarrierRing Carrier = 1 + iota // Writes to a ring of the peer
	CarrierSend                    // Sends that the peer has posted Recvs for
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

// Conn carries messages to one peer, and the peer's messages here. Only the thread of its Group uses it, Err apart, which any
// goroutine may call.
type Conn interface {
	// Begin returns an empty slice that has room for a body of max bytes. The caller appends the body and calls End, or gives it up by
	// calling Begin again. The error is ErrAgain when the peer has to take something first, ErrTooLong above MaxBody, or why the
	// connection has ended. Nobody is notified when there is room again: who waits for it calls Begin again after some time.
	Begin(max int) ([]byte, error)
	// End makes a message of the body that was appended to Begin's slice. It travels at the next Flush at the latest.
	End(h *Header, body []byte)
	// Flush puts all messages on their way.
	Flush()
	// Receive returns the next message if one has come. Its body is private memory, valid until the next Receive of any Conn of the
	// Group.
	Receive() (Message, bool)
	// Peer says who is at the other end.
	Peer() fabric.Peer
	// Err says why the connection has ended, nil if it has not.
	Err() error
	// Close ends the connection. What has not been flushed is lost.
	Close() error
}

// Stats count what a connection has done since it began. The counters never fall.
type Stats struct {
	Sent, Received uint64 // messages
	Posts          uint64 // doorbells
	Bells          uint64 // peers woken
	Reads          uint64 // one-sided Reads of the caller
}

// The peer's control area is written by this end, and this end's by the peer: one word each.
const (
	wordCredit = 0  // position that the writer's receiver has consumed: ring bytes
	wordArmed  = 8  // the writer's armed number
	wordBell   = 16 // the armed number that the writer has notified
	wordLanded = 24 // number of the last large body that the writer has Read
	wordCount  = 4
	ctrlSize   = 64
	landSize   = RingSize + ctrlSize // ring and control area of one end are one region
)

// A link is a Conn over an endpoint of a fabric.
type link struct {
	g     *Group
	ep    fabric.Endpoint
	id    uint64 // in the WR IDs of its operations
	peer  fabric.Key
	land  fabric.Region // ring and control area; the peer writes to it
	stage fabric.Region // mirror of the peer's ring, and the words for the peer's control area
	out   sender
	in    receiver
	bulk  bulk
	sends *sends // of CarrierSend

	wrs     [3]fabric.WR // what is handed to Post, which does not keep it
	reads   []fabric.WR  // the same, of Reads
	told    uint64       // in.tail as the peer's control area has it
	posts   []uint64
	written int  // Writes of the caller that have completed
	under   int  // signalled operations that have not completed
	dirty   bool // is in g.dirty
	max     int  // room of the frame that is being built
	inBulk  *bulkSlot
	suspect time.Time // since when a frame has been there that proves nothing
	badNow  bool

	armed     uint64 // this end's number, as written to the peer
	busy      [wordCount]bool
	answered  uint64 // the peer's number that was notified last
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

// fail ends the connection for the first reason that there is.
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

// beginFrame returns the memory of a frame whose body has at most n bytes. Where it lacks, it looks whether the peer has news.
func (c *link) beginFrame(n int) []byte {
	if c.sends != nil {
		return c.sends.begin(n)
	}
	if b := c.out.begin(n); b != nil {
		return b
	}
	c.takeCredit(uint32(fromLE(words.Load(c.land.Bytes(), RingSize+wordCredit))))
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
	// What lies between is posted with one doorbell, a Write per lap. The last is signalled: the look at the armed number waits for it.
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

// creditEvery is how many bytes of the ring are consumed before the consumed position is written to the peer's control area. Frames carry
// the position as well, but a peer that waits for room may receive none (invariant 6). A sender may need room for the rest of a lap and
// for the longest frame, which is less than two of the longest frames, from a peer that has consumed everything; so creditEvery is at
// most a ring less two of the longest frames. A smaller creditEvery costs more Writes: a quarter of a ring is one in some 200 small
// messages.
const creditEvery = RingSize / 4

const _ = uint(RingSize - 2*maxFrame - creditEvery) // compiles if it is not negative

// tell Writes to the peer's control area what it may wait for.
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

// postError takes what Post has returned. What was not taken is posted again at the next Flush of the group.
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

// writeWord writes a word of the peer's control area, whose last Write has completed (invariant 3).
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
	switch { // tried again when the group flushes, or arms
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

// framesDone is called when the oldest post has completed, hence all that was posted before.
func (c *link) framesDone() {
	c.out.completed = c.posts[0]
	c.posts = c.posts[:copy(c.posts, c.posts[1:])]
	c.ring()
	if c.out.flushed != c.out.head {
		c.g.mark(c)
	}
}

// ring notifies the peer if it is armed with a number that has not been notified (invariant 4). All of this end's messages that have
// completed are in the peer's memory by now.
func (c *link) ring() {
	armed := fromLE(words.Load(c.land.Bytes(), RingSize+wordArmed))
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

// takeFrame returns the next frame, with an op of this package or without.
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

// isArmed says whether the peer has a number from this end that it has not used. If the peer is about to use it, it notifies.
func (c *link) isArmed() bool {
	return c.sends != nil || fromLE(words.Load(c.land.Bytes(), RingSize+wordBell)) != c.armed
}

// arrived says whether Receive would find something, or at least has to look.
func (c *link) arrived() bool {
	if c.bulk.landing {
		return c.bulk.waiting(c.g)
	}
	if c.sends != nil {
		return c.sends.arrived()
	}
	return c.in.arrived()
}
