package wire

import (
	"fmt"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"

	"github.com/zeebo/xxh3"
)

// A body above MaxInline stays in its sender's memory, and the frame carries a reference: the region's key, offset,
// length, hash and a number. The receiver Reads the body to private memory, compares the hash, and reports the
// number; the sender then reuses the memory. Bodies are numbered 1, 2, 3, ... and Read in this order, so a reported
// number covers all earlier bodies. A group Reads one body at a time, so the bodies of its peers cost it at most
// MaxBody of memory.
//
// A body that waits for the group's landing place does not keep the thread awake: the completion of the Read that
// occupies the place wakes the thread. On few processors, a thread that polled for the completion would delay the
// goroutine that completes that Read: over TCP, two answers of 16 KiB took six times the processor time of one. A
// connection that ends releases the place as soon as no Read to it is under way.

const (
	refSize   = 72
	unit      = 64 << 10
	bulkUnits = 2 * (MaxBody + unit - 1) / unit // a connection's outgoing bodies: two of the longest
)

type bulk struct {
	// Fields of the sender.
	region fabric.Region // nil until the first large body
	used   [bulkUnits]bool
	held   []bulkSlot // sent and not yet Read by the peer, in order
	number uint64     // of the last body sent
	frame  []byte     // the frame of the reference under construction

	// Fields of the receiver.
	landing    bool // a reference has been received, and its message has not been returned
	posted     bool
	fetched    bool
	message    Message
	ref        reference
	landedLast uint64 // number of the last body Read
	told       uint64 // the landedLast that was last written to the peer
}

type bulkSlot struct {
	number      uint64
	first, size int // in units
}

type reference struct {
	key                          fabric.Key
	offset, length, hash, number uint64
}

func (r *reference) append(b []byte) []byte {
	b = appendKey(b, r.key)
	for _, w := range []uint64{r.offset, r.length, r.hash, r.number} {
		b = le.AppendUint64(b, w)
	}
	return b
}

func (r *reference) parse(b []byte) {
	*r = reference{parseKey(b), le.Uint64(b[40:]), le.Uint64(b[48:]), le.Uint64(b[56:]), le.Uint64(b[64:])}
}

func appendKey(b []byte, k fabric.Key) []byte {
	for _, w := range []uint64{k.ID, k.Rkey, k.Nonce, k.Base, k.Len} {
		b = le.AppendUint64(b, w)
	}
	return b
}

func parseKey(b []byte) fabric.Key {
	return fabric.Key{
		ID: le.Uint64(b), Rkey: le.Uint64(b[8:]), Nonce: le.Uint64(b[16:]), Base: le.Uint64(b[24:]), Len: le.Uint64(b[32:]),
	}
}

// begin returns memory for a body of at most n bytes, and reserves room for the reference's frame. It returns
// ErrAgain if either is missing.
func (b *bulk) begin(c *link, n int) ([]byte, error) {
	if b.region == nil {
		r, err := c.g.d.Alloc(bulkUnits*unit, fabric.RemoteRead)
		if err != nil {
			return nil, fmt.Errorf("wire: memory for a body of %d bytes: %w", n, err)
		}
		b.region = r
	}
	units := (n + unit - 1) / unit
	first := b.find(units)
	if first < 0 && c.sends == nil {
		b.release(c, words.LoadLE(c.land.Bytes(), RingSize+wordLanded))
		first = b.find(units)
	}
	if first < 0 {
		return nil, ErrAgain
	}
	if b.frame = c.beginFrame(refSize); b.frame == nil {
		return nil, ErrAgain
	}
	c.inBulk = &bulkSlot{first: first, size: units}
	at := first * unit
	return b.region.Bytes()[at : at : at+n], nil
}

// find returns the first of a run of that many free units, -1 if there is none.
func (b *bulk) find(units int) int {
	run := 0
	for i, used := range b.used {
		if run++; used {
			run = 0
		}
		if run == units {
			return i + 1 - units
		}
	}
	return -1
}

func (b *bulk) end(c *link, h *Header, body []byte) {
	s := *c.inBulk
	c.inBulk = nil
	b.number++
	s.number, s.size = b.number, (len(body)+unit-1)/unit
	for i := range s.size {
		b.used[s.first+i] = true
	}
	b.held = append(b.held, s)
	ref := reference{b.region.Key(), uint64(s.first * unit), uint64(len(body)), xxh3.Hash(body), s.number}
	ref.append(b.frame[headSize:headSize])
	with := *h
	with.Flags |= flagBulk
	c.endFrame(&with, refSize)
}

// release frees the memory of the bodies up to number last, which the peer has Read.
func (b *bulk) release(c *link, last uint64) {
	if last > b.number {
		c.fail(fmt.Errorf("%w: the peer has Read body %d of %d", ErrProtocol, last, b.number))
		return
	}
	n := 0
	for ; n < len(b.held) && b.held[n].number <= last; n++ {
		s := b.held[n]
		clear(b.used[s.first : s.first+s.size])
	}
	b.held = b.held[:copy(b.held, b.held[n:])]
}

// fetch begins to receive a message whose body is in the peer's memory.
func (b *bulk) fetch(c *link, m *Message) {
	if len(m.Body) != refSize {
		c.fail(fmt.Errorf("%w: a reference of %d bytes", ErrProtocol, len(m.Body)))
		return
	}
	b.ref.parse(m.Body)
	if b.ref.length > MaxBody {
		c.fail(fmt.Errorf("%w: a body of %d bytes", ErrProtocol, b.ref.length))
		return
	}
	if b.ref.number != b.landedLast+1 {
		c.fail(fmt.Errorf("%w: body %d comes after body %d", ErrProtocol, b.ref.number, b.landedLast))
		return
	}
	b.message = Message{Header: m.Header}
	b.message.Flags &^= flagBulk
	b.landing, b.posted, b.fetched = true, false, false
}

// landed continues what fetch began, and returns the message once its body has been Read.
func (b *bulk) landed(c *link) (Message, bool) {
	g := c.g
	if c.Err() != nil || !b.landing {
		return Message{}, false
	}
	if !b.posted {
		if g.landFor != nil || !b.post(c) {
			return Message{}, false
		}
	}
	if !b.fetched {
		return Message{}, false
	}
	b.landing, g.landFor = false, nil
	m := b.message
	m.Body = g.landing.Bytes()[:b.ref.length:b.ref.length]
	if xxh3.Hash(m.Body) != b.ref.hash {
		c.fail(fmt.Errorf("%w: a body of %d bytes is not what its reference says", ErrProtocol, b.ref.length))
		return Message{}, false
	}
	b.landedLast = b.ref.number
	g.mark(c)
	c.stats.Received++
	return m, true
}

// post posts a Read of the body to the group's landing place, which is free.
func (b *bulk) post(c *link) bool {
	g := c.g
	if g.landing == nil {
		r, err := g.d.Alloc(MaxBody, 0)
		if err != nil {
			c.fail(fmt.Errorf("wire: memory to receive a body: %w", err))
			return false
		}
		g.landing = r
	}
	n, err := c.ep.Post([]fabric.WR{{
		ID: c.id | kindBulk, Op: fabric.Read, Flags: fabric.Signal,
		Local: g.landing, LLen: b.ref.length, Remote: b.ref.key, ROff: b.ref.offset,
	}})
	if n == 0 {
		if err != fabric.ErrAgain {
			c.fail(err)
		}
		return false
	}
	c.under++
	b.posted, g.landFor = true, c
	return true
}

// waiting reports whether Receive can make progress although no message has come: the body has been Read, or its
// Read can be posted now. While another connection's body is being Read, the completion of that Read wakes the
// group.
func (b *bulk) waiting(g *Group) bool {
	return b.landing && (b.fetched || !b.posted && g.landFor == nil)
}

// leave releases the landing place. No Read to it is under way.
func (b *bulk) leave(c *link) {
	if b.fetched && c.g.landFor == c {
		c.g.landFor = nil
	}
}

func (b *bulk) free() {
	if b.region != nil {
		b.region.Close()
		b.region = nil
	}
}
