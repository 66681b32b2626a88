package shard

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// A simLink carries messages between a client and the shard, in order, with a delay in each direction. The client may
// give the link up while the shard still reads from it.
type simLink struct {
	m      *simulation
	c      *simClient
	life   int
	dead   bool // neither end gets anything any more
	quit   bool // the client has given the link up
	err    error
	in     []wire.Message // arrived at the shard
	out    []wire.Message // not flushed
	at     [2]time.Duration
	refuse int // number of calls of Begin that will return ErrAgain
}

// deliver calls do once a message has travelled. Messages of one direction keep their order.
func (l *simLink) deliver(way int, do func()) {
	at := max(l.at[way], l.m.w.Now()+l.m.w.Delay())
	l.at[way] = at
	l.m.w.After(at-l.m.w.Now(), do)
}

func (l *simLink) Begin(int) ([]byte, error) {
	if l.err != nil {
		return nil, l.err
	}
	if !l.c.once && l.refuse == 0 && l.m.rand(30) == 0 {
		l.refuse = 1 + l.m.rand(3)
	}
	if l.refuse > 0 {
		l.refuse--
		return nil, wire.ErrAgain
	}
	return nil, nil
}

func (l *simLink) End(h *wire.Header, body []byte) {
	if l.c.once {
		l.c.inbox = append(l.c.inbox, wire.Message{Header: *h, Body: bytes.Clone(body)})
		l.c.thread.Wake()
		return
	}
	l.out = append(l.out, wire.Message{Header: *h, Body: bytes.Clone(body)})
}

func (l *simLink) Flush() {
	for _, msg := range l.out {
		l.deliver(1, func() {
			if !l.dead && !l.quit {
				l.c.inbox = append(l.c.inbox, msg)
				l.c.thread.Wake()
			}
		})
	}
	l.out = nil
}

func (l *simLink) Receive() (msg wire.Message, ok bool) {
	if len(l.in) == 0 {
		return msg, false
	}
	msg, l.in = l.in[0], l.in[1:]
	return msg, true
}

func (l *simLink) Err() error   { return l.err }
func (l *simLink) Close() error { return nil }

// send sends a message of the client. It arrives at the shard if this life of the shard still goes on then.
func (l *simLink) send(msg wire.Message) {
	if l.c.once {
		l.in = append(l.in, msg)
		l.m.wakeShard()
		return
	}
	l.deliver(0, func() {
		if !l.dead {
			l.in = append(l.in, msg)
			l.m.wakeShard()
		}
	})
}

type simPointer struct {
	protocol.Pointer
	life    int
	version uint64
	expiry  uint64
	key     fabric.Key
	lease   time.Time // in time of the client's clock
	tenure  time.Time
}

// A simClient has several operations under way at a time, one in each lane. A client in the node's process (once)
// loses no message and sends each request once; its operations under way are lost when the node's life ends.
type simClient struct {
	m       *simulation
	once    bool
	id      int
	n       *sim.Node
	thread  *sim.Thread
	queue   *sim.Queue
	ep      fabric.Endpoint
	epLife  int
	dialing bool
	local   fabric.Region
	link    *simLink
	inbox   []wire.Message
	next    uint64
	request uint64
	left    int
	lanes   []*simLane
	cache   map[string]simPointer
	seen    map[string][]seenVersion
}

type seenVersion struct {
	version uint64
	value   string
}

type simLane struct {
	n      int
	c      call
	busy   bool
	from   int64
	q      protocol.Request
	id     uint64 // of the request
	sent   time.Time
	sentAt int64 // sent, in time of the server's clock
	first  time.Time
	again  time.Time // when the request is sent again
	rest   time.Time // no operation begins before this time
	read   *simRead
}

// A simRead is a one-sided Read that is under way.
type simRead struct {
	m       *simulation
	p       simPointer
	touched string
}

const simSlot = 16 << 10

func newSimClient(m *simulation, id int) *simClient {
	c := &simClient{m: m, id: id, n: m.w.NewNode(fmt.Sprintf("client-%d", id)), next: 1, left: 30 + m.rand(60), cache: map[string]simPointer{}, seen: map[string][]seenVersion{}}
	q, _ := c.n.Domain().NewQueue(256)
	c.queue = q.(*sim.Queue)
	c.local, _ = c.n.Domain().Alloc(3*simSlot, 0)
	for i := range 1 + m.rand(3) {
		c.lanes = append(c.lanes, &simLane{n: i})
	}
	return c
}

func (c *simClient) begin() { c.thread = c.n.Go("client", c.step, c.queue) }

func (c *simClient) busy() bool {
	for _, l := range c.lanes {
		if l.busy {
			return true
		}
	}
	return false
}

// leave records operations without an answer, except GETs, which say nothing without one.
func (c *simClient) leave() {
	for _, l := range c.lanes {
		if l.busy && l.c.kind == "get" {
			l.busy = false
		} else if l.busy {
			c.finish(l, result{open: true})
		}
	}
}

func (c *simClient) step(now time.Time) (bool, time.Time) {
	if c.m.bad != "" {
		return false, time.Time{}
	}
	c.m.say("client %d: step, %d answers", c.id, len(c.inbox))
	if c.once && (c.link == nil || c.link.dead) && !c.join() {
		return false, now.Add(time.Millisecond)
	}
	for _, msg := range c.inbox {
		c.answer(now, &msg)
	}
	c.inbox = nil
	var wcs [8]fabric.WC
	for _, wc := range wcs[:c.queue.Poll(wcs[:])] {
		c.readDone(now, &wc)
	}
	next := now.Add(time.Hour)
	for _, l := range c.lanes {
		switch {
		case !l.busy && c.left > 0 && !now.Before(l.rest):
			c.start(now, l)
		case l.busy && l.read == nil && !now.Before(l.again):
			c.m.counts.retries++
			c.reconnect(now)
		}
	}
	for _, l := range c.lanes {
		at := l.rest
		if l.busy {
			at = l.again
		}
		if (l.busy || c.left > 0) && l.read == nil && at.Before(next) {
			next = at
		}
	}
	return false, next
}

// patience draws how long the client waits for an answer.
func (c *simClient) patience() time.Duration {
	return time.Duration(c.m.rand(int(20*time.Millisecond)<<c.m.rand(5))) + 50*time.Microsecond
}

// reconnect gives the link up and sends all requests under way again on a new link.
func (c *simClient) reconnect(now time.Time) {
	m := c.m
	if old := c.link; old != nil {
		old.quit = true
		m.w.After(time.Duration(m.rand(int(60*time.Millisecond))), func() { old.err = wire.ErrClosed })
	}
	l := &simLink{m: m, c: c, life: m.life}
	c.link = l
	g := Greeting{Client: uint64(c.id) + 1, Next: c.next}
	m.links = append(m.links, l)
	life := m.life
	if !m.server.Alive() {
		l.dead = true
	}
	l.deliver(0, func() {
		if !l.dead && m.life == life {
			m.shard.Attach(l, g)
		}
	})
	for _, lane := range c.lanes {
		if lane.busy && lane.read == nil {
			c.send(now, lane)
		}
	}
}

// join connects a client of the node's process to this life of the shard. Operations that were under way in the last
// life have no answer, unless it has arrived already.
func (c *simClient) join() bool {
	m := c.m
	if c.link != nil {
		for _, msg := range c.inbox {
			c.answer(c.n.Now(), &msg)
		}
		c.inbox, c.link = nil, nil
		c.leave()
	}
	if !m.server.Alive() {
		return false
	}
	c.link = &simLink{m: m, c: c, life: m.life}
	m.links = append(m.links, c.link)
	m.shard.Attach(c.link, Greeting{Client: uint64(c.id) + 1, Once: true})
	return true
}

func (c *simClient) oldest() uint64 {
	low := c.next
	for _, l := range c.lanes {
		if l.busy && l.q.Op.IsWrite() {
			low = min(low, l.q.Number)
		}
	}
	return low
}

func (c *simClient) send(now time.Time, l *simLane) {
	if c.link == nil || c.link.life != c.m.life {
		l.again = now.Add(time.Duration(1 + c.m.rand(int(time.Millisecond))))
		if c.link == nil || c.link.dead {
			l.again = now
		}
	}
	c.request++
	l.id, l.sent, l.again = c.request, now, now.Add(c.patience())
	l.sentAt = c.m.server.Now().UnixNano()
	if l.q.Oldest = c.oldest(); c.once {
		l.q.Number, l.q.Oldest, l.again = 1, 1, now.Add(time.Hour)
	}
	h := wire.Header{Op: uint8(l.q.Op), Flags: uint8(l.q.Flags), Request: l.id}
	body := l.q.AppendBody(nil)
	if l.q.Op.IsWrite() && !c.once && c.m.rand(6) == 0 { // the same request as a part of a batch
		start := 0
		b := protocol.AppendPart(nil, l.q.Op, l.q.Flags, 0)
		body = protocol.EndPart(append(b, body...), start)
		h.Op, h.Flags = uint8(protocol.OpBatch), 0
	}
	if c.link != nil {
		c.link.send(wire.Message{Header: h, Body: body})
	} else {
		l.again = now
	}
}

// start begins a new operation.
func (c *simClient) start(now time.Time, l *simLane) {
	m := c.m
	c.left--
	m.counts.ops++
	*l = simLane{n: l.n, busy: true, from: m.w.Now().Nanoseconds(), first: now}
	k := m.rand(simKeys)
	key := simKey(k)
	l.c = call{key: key, value: fmt.Sprintf("v%d-%d", c.id, c.next)}
	l.q = protocol.Request{Key: []byte(key)}
	pad := m.rand(40)
	if m.small && m.rand(3) == 0 {
		pad = m.rand(6000)
	}
	value := append([]byte(l.c.value+" "), bytes.Repeat([]byte{'x'}, pad)...)
	kind := m.rand(20)
	if k == 0 { // a counter
		kind = []int{0, 18}[m.rand(2)]
	}
	ttl := func() {
		if m.rand(5) == 0 {
			l.c.expiry, l.q.Flags, l.q.Expiry = true, protocol.FlagRelative, uint64(1+m.rand(1500))
		}
	}
	switch {
	case kind < 9:
		l.c.kind, l.c.value, l.q.Op, l.q.Flags = "get", "", protocol.OpGet, protocol.FlagPointer
		if c.once || m.rand(4) == 0 {
			l.q.Flags = 0
		}
	case kind < 13:
		l.c.kind, l.q.Op, l.q.Value = "put", protocol.OpPut, value
		ttl()
	case kind < 14:
		l.c.kind, l.q.Op, l.q.Value = "insert", protocol.OpInsert, value
		ttl()
	case kind < 15:
		l.c.kind, l.q.Op, l.q.Value = "update", protocol.OpUpdate, value
	case kind < 16:
		l.c.kind, l.q.Op = "remove", protocol.OpRemove
	case kind < 18:
		l.c.kind, l.q.Op, l.q.Value = "cas", protocol.OpCompareAndSet, value
		if list := c.seen[key]; len(list) > 0 && m.rand(6) > 0 {
			v := list[max(0, len(list)-1-m.rand(3))]
			l.c.expect, l.q.Operand = v.value, v.version
		}
		if m.rand(4) == 0 {
			l.c.kind, l.q.Flags, l.q.Value = "casremove", protocol.FlagRemove, nil
		}
	default:
		if k != 0 {
			l.c.kind, l.q.Op, l.q.Value = "put", protocol.OpPut, value
			break
		}
		l.c.kind, l.c.delta, l.q.Op = "add", int64(1+m.rand(5)), protocol.OpAdd
		l.q.Operand = uint64(l.c.delta)
	}
	if l.q.Value != nil && m.rand(8) == 0 { // a manifest of a value whose chunks no client has written
		large := protocol.Manifest{Size: protocol.MaxValue + 1}
		copy(large.ID[:], l.c.value+" ")
		l.q.ItemFlags, l.q.Value = protocol.ItemManifest, large.Append(nil)
	}
	if l.q.Op.IsWrite() {
		l.q.Number = c.next
		c.next++
		l.c.expiry = l.c.expiry || m.shard.o.Evict // an evicted value vanishes as an expired one does
	}
	m.say("client %d lane %d: %+v number %d", c.id, l.n, l.c, l.q.Number)
	if l.c.kind == "get" && c.tryRead(now, l) {
		return
	}
	if c.link == nil {
		c.reconnect(now)
		return
	}
	c.send(now, l)
}

// tryRead posts a Read if the client has a pointer that is still valid.
func (c *simClient) tryRead(now time.Time, l *simLane) bool {
	m := c.m
	from := l.c.key
	if m.rand(10) == 0 { // a collision in the cache
		from = simKey(m.rand(simKeys))
	}
	p, ok := c.cache[from]
	if !ok {
		return false
	}
	if !now.Before(p.lease) || !now.Before(p.tenure) {
		delete(c.cache, from)
		return false
	}
	if c.ep == nil || c.epLife != p.life {
		c.dial()
		return false
	}
	off := uint64(l.n * simSlot)
	_, err := c.ep.Post([]fabric.WR{{ID: uint64(l.n), Op: fabric.Read, Flags: fabric.Signal, Local: c.local, LOff: off, LLen: uint64(p.Length), Remote: p.key, ROff: p.Offset}})
	if err != nil {
		c.ep = nil
		return false
	}
	m.counts.reads++
	l.read = &simRead{m: m, p: p}
	m.reads[l.read] = true
	l.read.watch()
	m.say("client %d lane %d: reads version %d at %d", c.id, l.n, p.version, p.Offset)
	return true
}

func (c *simClient) dial() {
	if c.dialing || !c.m.server.Alive() {
		return
	}
	c.dialing = true
	life := c.m.life
	c.n.Domain().DialFunc(fmt.Sprintf("server-%d", life), nil, fabric.EndpointOptions{Send: c.queue, Recv: c.queue}, func(e fabric.Endpoint, _ []byte, err error) {
		c.dialing = false
		if err == nil {
			c.ep, c.epLife = e, life
		}
	})
}

// watch notes when the place no longer has the pointer's item. It is called when the Read is posted, and after each
// step of the shard.
func (r *simRead) watch() {
	s := r.m.shard
	if r.touched != "" || r.m.life != r.p.life || !r.m.server.Alive() {
		return
	}
	if !s.arena.InUse(r.p.Extent, r.p.Offset) {
		r.touched = "free"
		return
	}
	b := s.arenaAt(r.p.Extent, r.p.Offset)
	if it := guard.Parse(b); it.Version != r.p.version {
		r.touched = fmt.Sprintf("version %d", it.Version)
	}
}

// arenaAt returns an extent's memory from an offset on, for checks.
func (s *Shard) arenaAt(extent uint32, offset uint64) []byte { return s.arena.Extent(extent)[offset:] }

func (c *simClient) readDone(now time.Time, wc *fabric.WC) {
	m := c.m
	l := c.lanes[wc.ID]
	r := l.read
	if r == nil {
		return
	}
	l.read = nil
	delete(m.reads, r)
	if wc.Err != nil {
		c.ep = nil
		c.byMessage(now, l)
		return
	}
	b := c.local.Bytes()[l.n*simSlot:][:r.p.Length]
	it, err := guard.Verify(b, []byte(l.c.key))
	if !now.Before(r.p.lease) || err != nil {
		m.say("client %d lane %d: not accepted: %v", c.id, l.n, err)
		c.byMessage(now, l)
		return
	}
	m.counts.accepted++
	if r.touched != "" && m.life == r.p.life {
		m.violation("an accepted Read of version %d touched what was %s", r.p.version, r.touched)
	}
	if it.Expiry != 0 && !m.jumped && m.life == r.p.life && uint64(m.server.Wall().UnixMilli()) > it.Expiry {
		m.violation("a Read was accepted %d ms after the item had expired", uint64(m.server.Wall().UnixMilli())-it.Expiry)
	}
	m.noteVersion(it.Version, name(it.Value))
	c.finish(l, result{ok: true, value: name(it.Value)})
}

func (c *simClient) byMessage(now time.Time, l *simLane) {
	if c.link == nil {
		c.reconnect(now)
		return
	}
	c.send(now, l)
}

// answer processes a message from the shard.
func (c *simClient) answer(now time.Time, msg *wire.Message) {
	m := c.m
	var l *simLane
	for _, x := range c.lanes {
		if x.busy && x.read == nil && x.id == msg.Request {
			l = x
		}
	}
	if l == nil {
		return
	}
	status, flags, body := protocol.Status(msg.Status), protocol.Flags(msg.Flags), msg.Body
	if protocol.Op(msg.Op) == protocol.OpBatch && status == protocol.StatusOK {
		if n, err := protocol.CheckBatch(body); n != 1 || err != nil {
			m.violation("answer to a batch of 1: %d, %v", n, err)
			return
		}
		for p := range protocol.Parts(msg.Body) {
			status, flags, body = p.Status, p.Flags, p.Body
		}
	}
	m.say("client %d lane %d: %v", c.id, l.n, status)
	switch status {
	case protocol.StatusUnavailable:
		if l.again = now.Add(time.Millisecond); c.once {
			l.busy, l.rest = false, l.again
		}
		return
	case protocol.StatusUnknownOutcome:
		m.counts.unknown++
		c.finish(l, result{open: true})
		return
	case protocol.StatusFull:
		l.busy = false
		l.rest = now.Add(time.Duration(m.rand(int(time.Second))))
		return
	case protocol.StatusOK, protocol.StatusNotFound, protocol.StatusExists, protocol.StatusVersion:
	default:
		m.violation("client %d has the answer %v to %+v", c.id, status, l.c)
		return
	}
	if l.c.kind == "get" {
		c.got(now, l, status, flags, body)
		return
	}
	var w protocol.Written
	if err := w.Parse(body); err != nil {
		m.violation("%v", err)
		return
	}
	r := result{ok: status == protocol.StatusOK}
	if l.c.kind == "add" {
		r.value = strconv.FormatInt(w.Sum, 10)
	} else if r.ok && len(l.q.Value) > 0 {
		m.noteVersion(w.Version, l.c.value)
		c.saw(l.c.key, w.Version, l.c.value)
	}
	c.finish(l, r)
}

func (c *simClient) got(now time.Time, l *simLane, status protocol.Status, flags protocol.Flags, body []byte) {
	m := c.m
	var it protocol.Item
	if status != protocol.StatusOK {
		c.finish(l, result{})
		return
	}
	if err := it.Parse(flags, body); err != nil {
		m.violation("%v", err)
		return
	}
	v := name(it.Value)
	m.noteVersion(it.Version, v)
	c.saw(l.c.key, it.Version, v)
	if it.HasPointer && m.server.Alive() {
		if key, ok := m.shard.arena.Key(it.Pointer.Extent); ok && it.Pointer.Term == m.shard.term {
			c.checkLease(l, &it)
			less := func(us uint32) time.Duration { return time.Duration(us) * time.Microsecond / 64 * 63 }
			c.cache[l.c.key] = simPointer{
				Pointer: it.Pointer, life: m.life, version: it.Version, expiry: it.Expiry, key: key,
				lease: l.sent.Add(less(it.Pointer.Lease)), tenure: l.sent.Add(less(it.Pointer.Tenure)),
			}
		}
	}
	c.finish(l, result{ok: true, value: v})
}

// checkLease checks that the item stays where it is, under a lease that ends no earlier than the client assumes, without
// counting any margin. It looks no more once the lease is over: when an answer comes that late, the place may be a part of
// another item, or have the same one again, evicted and loaded without a lease.
func (c *simClient) checkLease(l *simLane, it *protocol.Item) {
	s := c.m.shard
	p := &it.Pointer
	least := l.sentAt + int64(p.Lease)*1000
	if s.now >= least {
		return
	}
	b := s.arenaAt(p.Extent, p.Offset)
	if _, whole := guard.SizeOf(b); !whole || !s.arena.InUse(p.Extent, p.Offset) || guard.Parse(b).Version != it.Version {
		c.m.violation("the place of %q is used again %v before the lease ends", l.c.key, time.Duration(least-s.now))
		return
	}
	end := s.arena.Lease(arena.Place(p.Extent)<<24 | arena.Place((p.Offset-arena.PrefixSize)/16))
	if end < least {
		c.m.violation("a lease ends %v before the client's, which counts from its request", time.Duration(least-end))
	}
}

func (c *simClient) saw(key string, version uint64, value string) {
	c.seen[key] = append(c.seen[key], seenVersion{version, value})
}

func (c *simClient) finish(l *simLane, r result) {
	m := c.m
	m.record(c.id*10+l.n, l.c, r, l.from, m.w.Now().Nanoseconds())
	l.busy = false
	rest := time.Duration(m.rand(int(100 * time.Microsecond)))
	if m.rand(4) == 0 {
		rest = time.Duration(m.rand(int(2 * time.Second)))
	}
	l.rest = c.n.Now().Add(rest)
}
