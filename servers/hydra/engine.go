package hydra

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// The engine is the client without its goroutines: start begins a call, Step does what can be done now, Tick what is
// due by time. One goroutine at a time uses it: the driver, or the simulator.
//
// Invariants:
//
//  1. A call is in one of these places: its shard's queue, the table of calls under way, or finished.
//  2. A write that was sent is sent again only on a later connection to the same shard with the same number, or, once
//     a shard has answered that it was not applied, with a new number. Only an answer on the newest connection
//     counts: a refusal by a former primary shows nothing once the write may have reached another one.
//  3. A write whose caller has given up is not sent again, because it might then be applied at any
//     later time.
//  4. A request of the engine itself stays with its shard even if the map changes. If it is not answered before, it
//     ends with the shard's connection, also while it is queued. So every waiter for such a request gets a result.
type engine struct {
	clock  *clock
	wall   uint64 // number of suspensions that the engine knows
	now    int64  // the clock, as read by this Step or Tick
	fabric []*network
	cache  *pointers     // always the same cache
	seed   atomic.Uint64 // the map's seed, for any goroutine

	m      protocol.Map
	circle *circle.Circle
	shards []*shard // of the map, in its order, and others that still have calls
	stale  bool     // a newer map exists
	asking bool     // a request for the map is under way
	guided bool     // a node that serves no shard is being asked for the map
	first  []string // the addresses given to Dial

	numbers numbers
	slots   []*call
	gens    []uint32
	free    []int
	waiting []*call // writes that wait for a number of the window
	later   []*call // calls to retry at the next Tick
	live    call    // the ends of the list of calls with a waiter
	lasting bool    // the bodies being answered are not reused: values need no copy

	carriers []*call // free calls for BATCH
	timeout  int64   // nanoseconds from the first Tick that sees a call

	messages  uint64 // requests sent by message
	reads     tallies
	closed    error
	noPointer bool
}

// A network is a fabric domain with its group of connections, and the landing place of Reads.
type network struct {
	scheme string
	domain fabric.Domain
	group  *wire.Group
	land   fabric.Region
	places []uint64 // free places of land
	under  []*call  // by landing place: the call whose Read uses it
}

// The landing places of Reads. Larger items are fetched by message.
const (
	readPlaces = 64
	readSize   = 16<<10 + 256
)

// A shard is the client's state of a shard.
type shard struct {
	id        uint32
	addrs     []string
	net       *network
	conn      wire.Conn
	sided     wire.OneSided // conn, if the peer's memory can be Read
	queue     []*call       // in the order in which the calls were started
	gone      bool          // the map no longer has the shard
	dialing   bool
	dialAfter int64
	dials     int    // number of attempts to connect
	heard     int64  // when the last answer came
	term      uint64 // of the reign with the tenure
	tenure    int64  // end of the tenure
	asked     bool   // a RENEW is under way
	extents   map[uint32]*extent
	lastErr   error

	// Fields for any goroutine.
	sight atomic.Pointer[sight] // what a Read relies on now; nil while the peer may not be Read
	used  atomic.Bool           // a Read was made, or wanted, since the last renewal
	renew renewals
}

// An extent is a part of a shard's memory, whose key is requested once.
type extent struct {
	term  uint64
	key   fabric.Key  // valid once known is set
	known atomic.Bool // key no longer changes
}

func newEngine(c *clock, places int) *engine {
	e := &engine{clock: c, cache: newPointers(places), numbers: newNumbers(), timeout: int64(defaultTimeout)}
	e.live.older, e.live.newer = &e.live, &e.live
	return e
}

// look reads the clock. After a suspension all pointers and tenures are invalid (rule 5 of the package).
func (e *engine) look() int64 {
	e.now = e.clock.now()
	if jumps := e.clock.jumps.Load(); jumps != e.wall {
		e.wall = jumps
		e.forget()
	}
	return e.now
}

// forget drops all pointers and tenures.
func (e *engine) forget() {
	e.cache.clear()
	for _, s := range e.shards {
		s.tenure = 0
		s.show()
		s.renew.clear()
	}
}

// setMap installs a map that is newer than the engine's.
func (e *engine) setMap(m protocol.Map) {
	if e.circle != nil && m.Version <= e.m.Version {
		return
	}
	e.m, e.stale = m, false
	e.seed.Store(m.Seed)
	for _, s := range e.shards {
		s.gone = s.id != protocol.AnyShard
	}
	for _, p := range m.Shards {
		s := e.shard(p.Shard)
		if s == nil {
			s = &shard{id: p.Shard, extents: map[uint32]*extent{}}
			e.shards = append(e.shards, s)
		}
		s.addrs, s.gone = p.Addrs, false
	}
	e.circle = m.Circle()
	for _, s := range e.shards { // queued calls are routed again
		list := s.queue
		s.queue = nil
		for _, c := range list {
			e.route(c)
		}
	}
	list := e.later
	e.later = nil
	for _, c := range list {
		e.route(c)
	}
}

// part drops shards that are no longer in the map and for which no call waits: a write that such a shard may have
// applied is sent to it until it answers.
func (e *engine) part() {
	waits := func(c *call) bool { return c != nil && c.number != 0 && c.shard != nil && c.shard.gone }
	if !slices.ContainsFunc(e.shards, func(s *shard) bool { return s.gone }) || slices.ContainsFunc(e.slots, waits) || slices.ContainsFunc(e.later, waits) {
		return
	}
	var rest []*shard // a new list: a caller may be iterating over the old one
	for _, s := range e.shards {
		if !s.gone || len(s.queue) > 0 || s.dialing {
			rest = append(rest, s)
			continue
		}
		if s.conn != nil {
			e.lost(s, ErrUnavailable) // calls under way are routed again
			for _, c := range s.queue {
				e.route(c)
			}
			s.queue = nil
		}
	}
	e.shards = rest
}

func (e *engine) shard(id uint32) *shard {
	for _, s := range e.shards {
		if s.id == id {
			return s
		}
	}
	return nil
}

// start begins a call.
func (e *engine) start(c *call) {
	c.slot = -1
	if c.internal == nil {
		c.older, c.newer = e.live.older, &e.live
		c.older.newer, c.newer.older = c, c
	}
	if e.closed != nil {
		e.finish(c, e.closed)
		return
	}
	e.route(c)
}

func (e *engine) hashOf(c *call) uint64 {
	if c.op == protocol.OpScan {
		return c.hash
	}
	return circle.Hash(e.m.Seed, c.key)
}

// route finds the call's shard by its hash. It computes the hash again, because a node in memory that was restarted
// sends a map with another seed. A write that an earlier life of a shard may have seen stays with that shard, as do
// requests of the engine (invariant 4).
func (e *engine) route(c *call) {
	if c.internal == nil {
		c.hash = e.hashOf(c)
		if c.number == 0 || c.shard == nil {
			id, _ := e.circle.Owner(c.hash)
			c.shard = e.shard(id)
		}
	}
	e.try(c)
}

// try sends a call, or queues it behind other calls for the same shard.
func (e *engine) try(c *call) {
	s := c.shard
	if c.op == protocol.OpGet && !e.noPointer && e.readOneSided(c) {
		return
	}
	if s.conn == nil || len(s.queue) > 0 || c.joins() || !e.send(c) {
		s.queue = append(s.queue, c) // Step sends such a call in one BATCH with its caller's other calls
	}
}

// send sends the call's message; false means that there is no room.
func (e *engine) send(c *call) bool {
	s := c.shard
	if c.op.IsWrite() && c.number == 0 {
		n, ok := e.numbers.take()
		if !ok {
			e.waiting = append(e.waiting, c)
			return true
		}
		c.number = n
	}
	h := wire.Header{Op: uint8(c.op), Flags: uint8(c.flags)}
	var r protocol.Request
	size := len(c.body)
	if c.body == nil {
		r = c.request(e.numbers.oldest)
		size = r.BodySize()
	}
	if c.op == protocol.OpGet {
		h.Flags &^= uint8(protocol.FlagPointer)
		if s.sided != nil && !e.noPointer {
			h.Flags |= uint8(protocol.FlagPointer)
		}
	}
	b, err := s.conn.Begin(size)
	if err != nil {
		return false // ErrAgain; or the connection has ended, which Step notices
	}
	if c.body == nil {
		b = r.AppendBody(b)
	} else {
		b = append(b, c.body...)
	}
	if c.op == protocol.OpRenew || h.Flags&uint8(protocol.FlagPointer) != 0 && c.op == protocol.OpGet {
		c.sent, c.sentWall = e.look(), e.wall // rule 4: before the request is sent
	}
	h.Request = e.enter(c)
	s.conn.End(&h, b)
	c.conn, c.posted = s.conn, e.now
	c.tries++
	e.messages++
	return true
}

// enter gives the call a slot in the table of calls under way. Slot and generation are the request's id.
func (e *engine) enter(c *call) uint64 {
	if len(e.free) == 0 {
		e.free = append(e.free, len(e.slots))
		e.slots, e.gens = append(e.slots, nil), append(e.gens, 0)
	}
	c.slot = e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	e.slots[c.slot] = c
	e.gens[c.slot]++
	return uint64(e.gens[c.slot])<<32 | uint64(c.slot)
}

// leave removes the call from the table.
func (e *engine) leave(c *call) {
	if c.slot >= 0 {
		e.slots[c.slot] = nil
		e.free = append(e.free, c.slot)
		c.slot = -1
	}
	c.conn = nil
}

// finish ends a call. The caller owns the call afterwards.
func (e *engine) finish(c *call, err error) {
	e.leave(c)
	if c.number != 0 {
		e.numbers.settle(c.number)
		c.number = 0
	}
	if c.internal == nil && !c.abandoned {
		e.tell(c, err)
	}
}

// tell returns the call to its caller.
func (e *engine) tell(c *call, err error) {
	c.older.newer, c.newer.older = c.newer, c.older
	c.older, c.newer = nil, nil
	c.err = err
	w := c.waiter
	if waits := w.waits; w.left.Add(-1) == 0 && waits {
		w.wake()
	}
}

// oldest returns the waiter of the oldest unfinished call, nil if there is none.
func (e *engine) oldest() *waiter {
	if c := e.live.newer; c != &e.live {
		return c.waiter
	}
	return nil
}

// Step makes all possible progress, and reports whether there was any.
func (e *engine) Step() (worked bool) {
	for _, n := range e.fabric {
		if n.group.Step() {
			worked = true
		}
		worked = e.readsDone(n) || worked
	}
	for _, s := range e.shards {
		if s.conn == nil {
			continue
		}
		for range 64 {
			m, ok := s.conn.Receive()
			if !ok {
				break
			}
			worked = true
			if e.answered(s, m); s.conn == nil {
				break
			}
		}
		if s.conn == nil {
			continue
		}
		if err := s.conn.Err(); err != nil {
			e.lost(s, err)
			worked = true
			continue
		}
		worked = e.sendQueue(s) || worked
	}
	for len(e.waiting) > 0 && e.numbers.next-e.numbers.oldest < protocol.Window {
		c := e.waiting[0]
		e.waiting[0] = nil
		e.waiting = e.waiting[1:]
		e.route(c)
		worked = true
	}
	for _, n := range e.fabric {
		n.group.Flush()
	}
	return worked
}

// lost removes an ended connection from its shard, ends the engine's own requests, and queues all other calls again,
// oldest first.
func (e *engine) lost(s *shard, err error) {
	conn := s.conn
	conn.Close()
	s.conn, s.sided, s.lastErr, s.asked = nil, nil, err, false
	s.tenure = 0
	s.show()
	s.renew.clear()
	s.dialAfter = e.now
	own := func(c *call) bool { // own requests get an error and are not queued again
		if c.internal != nil {
			c.internal(e, c, wire.Message{Header: wire.Header{Status: uint16(protocol.StatusUnavailable)}})
		}
		return c.internal != nil
	}
	var again []*call
	for _, c := range e.slots {
		if c == nil || c.conn != conn {
			continue
		}
		e.leave(c)
		switch {
		case own(c): // invariant 4
		case c.abandoned: // invariant 3
			e.finish(c, nil)
		default:
			again = append(again, c)
		}
	}
	slices.SortFunc(again, func(a, b *call) int {
		switch {
		case a.number < b.number:
			return -1
		case a.number > b.number:
			return 1
		}
		return 0
	})
	s.queue = append(again, slices.DeleteFunc(s.queue, own)...)
}

// Tick does what depends on time: connections, deadlines, retries, leases. It is called at least every tickEvery
// while there are calls, and occasionally otherwise.
func (e *engine) Tick(now time.Time) {
	e.look()
	for _, n := range e.fabric {
		n.group.Check(now)
	}
	if list := e.later; len(list) > 0 {
		e.later = nil
		for _, c := range list {
			e.route(c)
		}
	}
	for _, c := range e.slots {
		if c != nil {
			e.expire(c)
		}
	}
	for _, n := range e.fabric {
		for _, c := range n.under {
			if c != nil {
				e.expire(c)
			}
		}
	}
	for _, s := range e.shards {
		if e.silent(s) {
			e.lost(s, errSilent)
		}
		s.queue = e.expireAll(s.queue)
		e.askRenewals(s)
	}
	e.waiting = e.expireAll(e.waiting)
	e.part()
	if e.stale && !e.asking {
		e.askMap()
	}
}

// tickEvery is the interval of Tick: short enough to renew a lease of a second in its second half.
const tickEvery = 20 * time.Millisecond

// idleTick is the interval at which a client with nothing to do checks whether that has changed. A call that begins
// in between calls Tick while it drives; if it sleeps, work that only a Tick does (a retry, the end of its time) is
// late by at most this interval, once. A renewal that is late by this interval is still within the second half of the
// shortest lease, 500 ms. Fifty checks a second took most of the processor time of an idle node.
const idleTick = 200 * time.Millisecond

// idle reports whether nothing waits for a Tick: no call, no lost connection, and no used pointer that may have to be
// renewed.
func (e *engine) idle() bool {
	if e.oldest() != nil || len(e.later) > 0 || len(e.waiting) > 0 || e.stale {
		return false
	}
	for _, s := range e.shards {
		if s.conn == nil || s.used.Load() || s.asked || s.renew.any() || len(s.queue) > 0 {
			return false
		}
	}
	return true
}

// expireAll removes expired calls from a list of calls that wait to be sent.
func (e *engine) expireAll(list []*call) []*call {
	return slices.DeleteFunc(list, e.expire)
}

// expire gives the call up if its deadline has passed.
func (e *engine) expire(c *call) bool {
	switch {
	case c.internal != nil || c.abandoned:
	case c.deadline == 0:
		c.deadline = e.now + e.timeout
	case e.now > c.deadline:
		e.giveUp(c, context.DeadlineExceeded)
		return true
	}
	return false
}

// giveUp ends a call for its caller. A request under way stays in the table until it is answered, or its connection
// is lost.
func (e *engine) giveUp(c *call, why error) {
	err := fmt.Errorf("%w (%w)", ErrUnavailable, why)
	if c.op.IsWrite() && c.number != 0 {
		err = fmt.Errorf("%w (%w)", ErrUnknownOutcome, why)
	} else if c.shard != nil && c.shard.lastErr != nil {
		err = fmt.Errorf("%w (%w; last connection: %v)", ErrUnavailable, why, c.shard.lastErr)
	}
	// The caller may reuse the call and its memory: the table keeps a copy that refers to none of it.
	ghost := &call{op: c.op, shard: c.shard, conn: c.conn, number: c.number, slot: c.slot, reading: c.reading, abandoned: true}
	c.number, c.conn, c.reading = 0, nil, nil
	if c.slot >= 0 {
		e.slots[c.slot] = ghost
		c.slot = -1
	}
	if ghost.reading != nil {
		for i, x := range ghost.shard.net.under {
			if x == c {
				ghost.shard.net.under[i] = ghost
			}
		}
	}
	if ghost.slot < 0 && ghost.reading == nil && ghost.number != 0 {
		e.numbers.settle(ghost.number) // it was waiting to be sent again, and will not be sent (invariant 3)
	}
	e.tell(c, err)
}

// withdraw ends calls whose caller no longer waits.
func (e *engine) withdraw(calls []*call, why error) {
	for _, c := range calls {
		if c.older == nil {
			continue // finished
		}
		if c.slot < 0 && c.reading == nil {
			e.unqueue(c)
		}
		e.giveUp(c, why)
	}
}

// unqueue removes a call from the list in which it waits.
func (e *engine) unqueue(c *call) {
	is := func(x *call) bool { return x == c }
	if c.shard != nil {
		c.shard.queue = slices.DeleteFunc(c.shard.queue, is)
	}
	e.waiting = slices.DeleteFunc(e.waiting, is)
	e.later = slices.DeleteFunc(e.later, is)
}

// close ends all calls, and the connections.
func (e *engine) close(err error) {
	e.closed = err
	for c := e.live.newer; c != &e.live; c = e.live.newer {
		e.withdraw([]*call{c}, err)
	}
	for _, s := range e.shards {
		s.conn, s.sided = nil, nil
		s.show()
	}
	for _, n := range e.fabric {
		n.group.Close()
		n.land.Close()
	}
	e.fabric = nil
}
