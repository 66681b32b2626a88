package wire

import (
	"context"
	"fmt"
	"time"

	"flashdbm/servers/fabric"
)

// A Group is one thread's part of the fabric: a queue, and the connections that report to it. Only that thread calls
// the methods, but any goroutine may call Dial, Accept and Wake.
type Group struct {
	d     fabric.Domain
	q     fabric.Queue
	links []*link // by slot, which is part of their ids; nil if the slot is free
	gens  []uint64
	dirty []*link // links with something to flush
	wcs   []fabric.WC

	scratch  []byte        // bodies that Receive returns
	landing  fabric.Region // the landing place of large bodies
	landFor  *link
	done     []ReadDone
	draining []*link // closed links whose operations may be under way
}

// ReadDone reports that a Read has completed.
type ReadDone struct {
	Conn  Conn
	Token uint64
	Err   error
}

// A WR's ID names the link and the purpose of the operation.
const (
	slotBits  = 16
	genShift  = 32 + slotBits
	kindShift = 28

	kindFrames = 0 << kindShift
	kindWord   = 1 << kindShift // | the word's number
	kindBulk   = 2 << kindShift
	kindRead   = 3 << kindShift // | the token
	kindRecv   = 4 << kindShift // | the place
	kindWrite  = 5 << kindShift
	kindMask   = 15 << kindShift
	tokenMask  = 1<<kindShift - 1
)

// depth is the most operations of one connection under way, besides Recvs.
const depth = 128

// NewGroup returns a group whose connections together have at most about ops operations under way.
func NewGroup(d fabric.Domain, ops int) (*Group, error) {
	q, err := d.NewQueue(ops)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	return &Group{d: d, q: q, wcs: make([]fabric.WC, 64), scratch: make([]byte, maxFrame)}, nil
}

// Close closes all connections, and the queue.
func (g *Group) Close() error {
	for _, c := range g.links {
		if c != nil {
			c.Close()
		}
	}
	for _, c := range g.draining {
		c.free()
	}
	g.draining = nil
	if g.landing != nil {
		g.landing.Close()
	}
	return g.q.Close()
}

// Add gives the group's thread a connection that Dial or Accept has returned. The connection is used only after that.
func (g *Group) Add(conn Conn) {
	c := conn.(*link)
	slot := -1
	for i, l := range g.links {
		if l == nil {
			slot = i
			break
		}
	}
	if slot < 0 {
		slot = len(g.links)
		g.links, g.gens = append(g.links, nil), append(g.gens, 0)
	}
	g.links[slot] = c
	g.gens[slot]++
	c.id = uint64(slot)<<32 | g.gens[slot]&0xFFFF<<genShift
	if c.sends != nil {
		c.sends.start()
	}
}

// drop removes a closed connection. Its memory is freed by Check after drainTime, when no operation on it is under
// way.
func (g *Group) drop(c *link) {
	c.bulk.leave(c)
	slot := c.id >> 32 & (1<<slotBits - 1)
	if int(slot) < len(g.links) && g.links[slot] == c {
		g.draining = append(g.draining, c)
		g.links[slot] = nil
	} else {
		c.free()
	}
}

func (c *link) free() {
	if c.g.landFor == c {
		c.g.landFor = nil
	}
	c.bulk.free()
	if c.sends != nil {
		c.sends.free()
	}
	c.land.Close()
	c.stage.Close()
}

func (g *Group) mark(c *link) {
	if !c.dirty {
		c.dirty = true
		g.dirty = append(g.dirty, c)
	}
}

// Flush sends the messages of all connections.
func (g *Group) Flush() {
	list := g.dirty
	g.dirty = g.dirty[len(g.dirty):]
	for _, c := range list {
		c.dirty = false
		c.Flush()
	}
	if len(g.dirty) == 0 {
		g.dirty = list[:0]
	}
}

// Step handles completions and flushes. It reports whether there was anything to do. Done returns the Reads that have
// completed until the next Step.
func (g *Group) Step() bool {
	clear(g.done)
	g.done = g.done[:0]
	n := g.q.Poll(g.wcs)
	for i := range g.wcs[:n] {
		g.complete(&g.wcs[i])
	}
	worked := n > 0 || len(g.dirty) > 0
	if len(g.dirty) > 0 {
		g.Flush()
	}
	return worked
}

// Done returns the Reads that have completed in the last Step.
func (g *Group) Done() []ReadDone { return g.done }

func (g *Group) complete(wc *fabric.WC) {
	slot := wc.ID >> 32 & (1<<slotBits - 1)
	c := g.links[slot]
	if c == nil || c.id>>genShift != wc.ID>>genShift {
		c = g.drained(wc)
		if c == nil {
			return
		}
	}
	kind, arg := wc.ID&kindMask, wc.ID&tokenMask
	if wc.Err != nil {
		c.fail(wc.Err)
	}
	switch {
	case kind == kindRead:
		c.under--
		g.done = append(g.done, ReadDone{c, arg, wc.Err})
	case kind == kindBulk:
		c.under--
		c.bulk.fetched = true
		if c.Err() != nil { // no Receive will take the body
			c.bulk.leave(c)
		}
	case kind == kindWrite:
		c.under--
		if wc.Err == nil {
			c.written++
		}
	case wc.Err != nil: // operations without Signal fail, too; the connection has ended
	case kind == kindFrames:
		c.under--
		if c.sends != nil {
			c.sends.sent()
		} else {
			c.framesDone()
		}
	case kind == kindWord:
		c.under--
		c.busy[arg] = false
		switch arg {
		case wordBell / 8:
			if c.bellAgain {
				c.ring()
			}
		case wordCredit / 8, wordLanded / 8:
			g.mark(c) // tell may have more to Write by now
		}
	case kind == kindRecv:
		c.sends.received(int(arg), wc.Len)
	}
}

// drained returns the closed connection to which a completion belongs, nil if its memory has been freed.
func (g *Group) drained(wc *fabric.WC) *link {
	for _, c := range g.draining {
		if c.id == wc.ID&^(1<<32-1) {
			return c
		}
	}
	return nil
}

// Check does the work that depends on time: it ends connections whose endpoint has ended or whose frames stay
// incomplete, and frees the memory of closed connections. The thread calls it some ten times a second.
func (g *Group) Check(now time.Time) {
	for _, c := range g.links {
		if c == nil {
			continue
		}
		select {
		case <-c.ep.Done():
			err := c.ep.Err()
			if err == nil {
				err = fabric.ErrPeer
			}
			c.fail(err)
		default:
		}
		switch {
		case !c.badNow:
			c.suspect = time.Time{}
		case c.suspect.IsZero():
			c.suspect = now
		case now.Sub(c.suspect) > suspectTime:
			c.fail(fmt.Errorf("%w: a frame that proves nothing for %v", ErrProtocol, suspectTime))
		}
	}
	keep := g.draining[:0]
	for _, c := range g.draining {
		if c.drainSince.IsZero() {
			c.drainSince = now
		}
		if now.Sub(c.drainSince) > drainTime {
			c.free()
		} else {
			keep = append(keep, c)
		}
	}
	clear(g.draining[len(keep):])
	g.draining = keep
}

const (
	// suspectTime is how long a frame may stay incomplete once its indicator is there. It is above the fabric's limit
	// of 1 s for an operation, so the connection of a peer that stops in the middle of a Write ends a little later
	// than the fabric would end it.
	suspectTime = 2 * time.Second
	// drainTime is how long the memory of a closed connection is kept for operations under way. The fabric completes
	// all operations of a closed endpoint; drainTime is longer than any of them takes.
	drainTime = 3 * time.Second
)

// Arm prepares the group's thread for sleep. True means that nothing has come so far, and that Wait ends when a peer
// sends anything from now on, or earlier, when an armed number has arrived at its peer. False means that the thread
// has to call Step and Receive first.
func (g *Group) Arm() bool {
	if g.Step(); len(g.done) > 0 {
		return false
	}
	for _, c := range g.links {
		if c != nil && c.Err() == nil && !c.busy[wordArmed/8] && !c.isArmed() {
			c.armed++
			c.writeWord(wordArmed, c.armed, 0)
		}
	}
	g.Step() // saves a Wait if a Write has completed by now, which is usual within one machine
	if len(g.done) > 0 || len(g.dirty) > 0 {
		return false
	}
	for _, c := range g.links {
		if c != nil && c.Err() == nil && (c.arrived() || !c.busy[wordArmed/8] && !c.isArmed()) {
			return false
		}
	}
	return true
}

// Wait sleeps until a peer notifies, an operation completes, or Wake is called. It checks spin times before it
// sleeps. The thread calls it only directly after Arm has returned true.
func (g *Group) Wait(ctx context.Context, spin int) error { return g.q.Wait(ctx, spin) }

// Wake ends the Wait under way, or the next one. Any goroutine may call it.
func (g *Group) Wake() { g.q.Wake() }

// Domain returns the group's fabric domain.
func (g *Group) Domain() fabric.Domain { return g.d }
