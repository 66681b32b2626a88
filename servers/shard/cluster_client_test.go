package shard

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// A clusterClient has some operations under way at a time, all on one connection to the member that it takes for the primary. It does what the
// client library does: a write that may have been applied is sent again with its number.
type clusterClient struct {
	c       *clusterSim
	id      int
	n       *sim.Node
	thread  *sim.Thread
	queue   *sim.Queue
	local   fabric.Region
	conn    *clientConn
	ep      fabric.Endpoint
	epTo    *simMember
	epLife  int
	dialing bool
	inbox   []wire.Message
	next    uint64
	request uint64
	left    int
	lanes   []*clusterLane
	cache   map[string]clusterPointer
	seen    map[string][]seenVersion
}

type clusterLane struct {
	n     int
	c     call
	busy  bool
	from  int64
	q     protocol.Request
	id    uint64
	sent  time.Time
	again time.Time
	rest  time.Time
	tries int
	read  *clusterPointer
}

type clusterPointer struct {
	protocol.Pointer
	m      *simMember
	life   int
	key    fabric.Key
	lease  time.Time
	tenure time.Time
}

// A clientConn is a client's connection to a member: the shard's Conn.
type clientConn struct {
	x    *clusterClient
	m    *simMember
	life int
	quit bool
	err  error
	in   []wire.Message
	out  []wire.Message
	at   [2]time.Duration
}

func (l *clientConn) deliver(way int, do func()) {
	c := l.x.c
	from, to := l.x.n, l.m.n
	if way == 1 {
		from, to = to, from
	}
	at := max(l.at[way], c.w.Now()+c.w.Delay())
	l.at[way] = at
	c.w.After(at-c.w.Now(), func() {
		if l.life == l.m.life && l.m.alive() && c.w.Reaches(from, to) {
			do()
		}
	})
}

func (l *clientConn) Begin(int) ([]byte, error) { return nil, l.err }

func (l *clientConn) End(h *wire.Header, body []byte) {
	l.out = append(l.out, wire.Message{Header: *h, Body: bytes.Clone(body)})
}

func (l *clientConn) Flush() {
	for _, msg := range l.out {
		l.deliver(1, func() {
			if !l.quit {
				l.x.inbox = append(l.x.inbox, msg)
				l.x.thread.Wake()
			}
		})
	}
	l.out = nil
}

func (l *clientConn) Receive() (msg wire.Message, ok bool) {
	if len(l.in) == 0 {
		return msg, false
	}
	msg, l.in = l.in[0], l.in[1:]
	return msg, true
}

func (l *clientConn) Err() error { return l.err }

func (l *clientConn) Close() error {
	if l.err == nil {
		l.err = wire.ErrClosed
	}
	return nil
}

func newClusterClient(c *clusterSim, id int) *clusterClient {
	x := &clusterClient{
		c: c, id: id, n: c.w.NewNode(fmt.Sprintf("client-%d", id)), next: 1, left: 30 + c.rand(60), cache: map[string]clusterPointer{},
		seen: map[string][]seenVersion{},
	}
	q, _ := x.n.Domain().NewQueue(256)
	x.queue = q.(*sim.Queue)
	x.local, _ = x.n.Domain().Alloc(3*simSlot, 0)
	for i := range 1 + c.rand(3) {
		x.lanes = append(x.lanes, &clusterLane{n: i})
	}
	return x
}

func (x *clusterClient) begin() { x.thread = x.n.Go("client", x.step, x.queue) }

func (x *clusterClient) busy() bool {
	return slices.ContainsFunc(x.lanes, func(l *clusterLane) bool { return l.busy })
}

// leave records what has no answer, GETs apart: they tell nothing then.
func (x *clusterClient) leave() {
	for _, l := range x.lanes {
		if l.busy && l.c.kind != "get" {
			x.finish(l, result{open: true})
		}
	}
}

func (x *clusterClient) step(now time.Time) (bool, time.Time) {
	if x.c.bad != "" {
		return false, time.Time{}
	}
	for _, msg := range x.inbox {
		x.answer(now, &msg)
	}
	x.inbox = nil
	var wcs [8]fabric.WC
	for _, wc := range wcs[:x.queue.Poll(wcs[:])] {
		x.readDone(now, &wc)
	}
	for _, l := range x.lanes {
		switch {
		case !l.busy && x.left > 0 && !now.Before(l.rest):
			x.start(now, l)
		case l.busy && l.read == nil && !now.Before(l.again):
			x.reconnect(now)
		}
	}
	next := now.Add(time.Hour)
	for _, l := range x.lanes {
		at := l.rest
		if l.busy {
			at = l.again
		}
		if (l.busy || x.left > 0) && l.read == nil && at.Before(next) {
			next = at
		}
	}
	return false, next
}

// reconnect gives the connection up and sends all that is under way on another one, oldest first, to the same member or another one.
func (x *clusterClient) reconnect(now time.Time) {
	c := x.c
	if old := x.conn; old != nil {
		old.quit = true
		c.w.After(c.upTo(60*time.Millisecond), func() { old.Close() })
	}
	m := c.members[c.rand(3)]
	if p := c.all[c.rec.Primary]; p != nil && !p.lost && c.rand(3) > 0 {
		m = p
	}
	l := &clientConn{x: x, m: m, life: m.life}
	x.conn = l
	g := Greeting{Client: uint64(x.id) + 1, Next: x.next}
	l.deliver(0, func() {
		if m.shard != nil {
			m.shard.Attach(l, g)
		}
	})
	list := slices.Clone(x.lanes)
	slices.SortFunc(list, func(a, b *clusterLane) int { return int(a.q.Number) - int(b.q.Number) })
	for _, lane := range list {
		if lane.busy && lane.read == nil {
			x.send(now, lane)
		}
	}
}

func (x *clusterClient) oldest() uint64 {
	low := x.next
	for _, l := range x.lanes {
		if l.busy && l.q.Op.IsWrite() {
			low = min(low, l.q.Number)
		}
	}
	return low
}

func (x *clusterClient) send(now time.Time, l *clusterLane) {
	x.request++
	l.tries++
	l.id, l.sent = x.request, now
	l.again = now.Add(x.c.upTo(20*time.Millisecond<<x.c.rand(6)) + time.Millisecond)
	l.q.Oldest = x.oldest()
	h := wire.Header{Op: uint8(l.q.Op), Flags: uint8(l.q.Flags), Request: l.id}
	msg := wire.Message{Header: h, Body: l.q.AppendBody(nil)}
	conn := x.conn
	conn.deliver(0, func() {
		conn.in = append(conn.in, msg)
		conn.m.wake()
	})
}

// start begins a new operation.
func (x *clusterClient) start(now time.Time, l *clusterLane) {
	c := x.c
	x.left--
	c.counts.ops++
	*l = clusterLane{n: l.n, busy: true, from: c.w.Now().Nanoseconds()}
	k := c.rand(simKeys)
	l.c = call{key: simKey(k), value: fmt.Sprintf("v%d-%d", x.id, x.left)}
	l.q = protocol.Request{Key: []byte(l.c.key)}
	value := append([]byte(l.c.value+" "), bytes.Repeat([]byte{'x'}, c.rand(300))...)
	kind := c.rand(20)
	if k == 0 { // a counter
		kind = []int{0, 18}[c.rand(2)]
	}
	switch {
	case kind < 9:
		l.c.kind, l.c.value, l.q.Op, l.q.Flags = "get", "", protocol.OpGet, protocol.FlagPointer
	case kind < 13 || kind > 17 && k != 0:
		l.c.kind, l.q.Op, l.q.Value = "put", protocol.OpPut, value
		if c.rand(6) == 0 {
			l.c.expiry, l.q.Flags, l.q.Expiry = true, protocol.FlagRelative, uint64(1+c.rand(3000))
		}
	case kind < 14:
		l.c.kind, l.q.Op, l.q.Value = "insert", protocol.OpInsert, value
	case kind < 15:
		l.c.kind, l.q.Op, l.q.Value = "update", protocol.OpUpdate, value
	case kind < 16:
		l.c.kind, l.q.Op = "remove", protocol.OpRemove
	case kind < 18:
		l.c.kind, l.q.Op, l.q.Value = "cas", protocol.OpCompareAndSet, value
		if list := x.seen[l.c.key]; len(list) > 0 && c.rand(6) > 0 {
			v := list[max(0, len(list)-1-c.rand(3))]
			l.c.expect, l.q.Operand = v.value, v.version
		}
	default:
		l.c.kind, l.c.delta, l.q.Op = "add", int64(1+c.rand(5)), protocol.OpAdd
		l.q.Operand = uint64(l.c.delta)
	}
	if l.q.Op.IsWrite() {
		l.q.Number = x.next
		x.next++
	}
	c.say("client %d lane %d: %+v number %d", x.id, l.n, l.c, l.q.Number)
	if l.c.kind == "get" && x.tryRead(now, l) {
		return
	}
	if x.conn == nil {
		x.reconnect(now)
		return
	}
	x.send(now, l)
}

// tryRead posts a Read if there is a pointer that may be used.
func (x *clusterClient) tryRead(now time.Time, l *clusterLane) bool {
	p, ok := x.cache[l.c.key]
	if !ok {
		return false
	}
	if !now.Before(p.lease) || !now.Before(p.tenure) {
		delete(x.cache, l.c.key)
		return false
	}
	if x.ep == nil || x.epTo != p.m || x.epLife != p.life {
		x.dial(p.m, p.life)
		return false
	}
	_, err := x.ep.Post([]fabric.WR{{
		ID: uint64(l.n), Op: fabric.Read, Flags: fabric.Signal, Local: x.local, LOff: uint64(l.n * simSlot), LLen: uint64(p.Length), Remote: p.key, ROff: p.Offset,
	}})
	if err != nil {
		x.ep = nil
		return false
	}
	x.c.counts.reads++
	l.read = &p
	return true
}

func (x *clusterClient) dial(m *simMember, life int) {
	if x.dialing {
		return
	}
	x.dialing = true
	x.n.Domain().DialFunc(fmt.Sprintf("node-%d-%d", m.i, life), nil, fabric.EndpointOptions{Send: x.queue, Recv: x.queue}, func(e fabric.Endpoint, _ []byte, err error) {
		x.dialing = false
		if err == nil {
			x.ep, x.epTo, x.epLife = e, m, life
		}
	})
}

func (x *clusterClient) readDone(now time.Time, wc *fabric.WC) {
	l := x.lanes[wc.ID]
	p := l.read
	if p == nil {
		return
	}
	l.read = nil
	if wc.Err == nil && now.Before(p.lease) {
		if it, err := guard.Verify(x.local.Bytes()[l.n*simSlot:][:p.Length], []byte(l.c.key)); err == nil {
			x.c.counts.accepted++
			x.finish(l, result{ok: true, value: name(it.Value)})
			return
		}
	}
	if wc.Err != nil {
		x.ep = nil
	}
	delete(x.cache, l.c.key)
	if x.conn == nil {
		x.reconnect(now)
		return
	}
	x.send(now, l)
}

func (x *clusterClient) answer(now time.Time, msg *wire.Message) {
	c := x.c
	i := slices.IndexFunc(x.lanes, func(l *clusterLane) bool { return l.busy && l.read == nil && l.id == msg.Request })
	if i < 0 {
		return
	}
	l := x.lanes[i]
	status := protocol.Status(msg.Status)
	switch status {
	case protocol.StatusUnavailable:
		if l.q.Op.IsWrite() && l.tries == 1 && c.rand(2) == 0 { // it was not applied, so it may have another number
			l.q.Number = x.next
			x.next++
			l.tries = 0
		}
		l.again = now.Add(time.Millisecond + c.upTo(50*time.Millisecond))
		return
	case protocol.StatusUnknownOutcome:
		c.counts.unknown++
		x.finish(l, result{open: true})
		return
	case protocol.StatusFull:
		l.busy, l.rest = false, now.Add(c.upTo(time.Second))
		if l.tries > 1 {
			l.busy = true
			x.finish(l, result{open: true}) // an earlier try may have been applied
		}
		return
	case protocol.StatusOK, protocol.StatusNotFound, protocol.StatusExists, protocol.StatusVersion:
	default:
		c.violation("client %d has the answer %v to %+v", x.id, status, l.c)
		return
	}
	if l.c.kind == "get" {
		x.got(l, status, protocol.Flags(msg.Flags), msg.Body)
		return
	}
	var w protocol.Written
	if err := w.Parse(msg.Body); err != nil {
		c.violation("%v", err)
		return
	}
	r := result{ok: status == protocol.StatusOK}
	if l.c.kind == "add" {
		r.value = strconv.FormatInt(w.Sum, 10)
	} else if r.ok && len(l.q.Value) > 0 {
		x.seen[l.c.key] = append(x.seen[l.c.key], seenVersion{w.Version, l.c.value})
	}
	x.finish(l, r)
}

func (x *clusterClient) got(l *clusterLane, status protocol.Status, flags protocol.Flags, body []byte) {
	if status != protocol.StatusOK {
		x.finish(l, result{})
		return
	}
	var it protocol.Item
	if err := it.Parse(flags, body); err != nil {
		x.c.violation("%v", err)
		return
	}
	v := name(it.Value)
	x.seen[l.c.key] = append(x.seen[l.c.key], seenVersion{it.Version, v})
	m := x.conn.m
	if it.HasPointer && m.alive() && m.life == x.conn.life && m.shard.term == it.Pointer.Term {
		if key, ok := m.shard.arena.Key(it.Pointer.Extent); ok {
			less := func(us uint32) time.Duration { return time.Duration(us) * time.Microsecond / 64 * 63 }
			x.cache[l.c.key] = clusterPointer{
				Pointer: it.Pointer, m: m, life: m.life, key: key, lease: l.sent.Add(less(it.Pointer.Lease)), tenure: l.sent.Add(less(it.Pointer.Tenure)),
			}
		}
	}
	x.finish(l, result{ok: true, value: v})
}

func (x *clusterClient) finish(l *clusterLane, r result) {
	x.c.say("client %d lane %d: %+v", x.id, l.n, r)
	x.c.record(x.id*10+l.n, l.c, r, l.from)
	l.busy = false
	rest := x.c.upTo(20 * time.Millisecond)
	if x.c.rand(4) == 0 {
		rest = x.c.upTo(time.Second)
	}
	l.rest = x.n.Now().Add(rest)
}
