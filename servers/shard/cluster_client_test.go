package shard

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// A clusterClient has several operations under way at a time. It has one connection for each shard, to the member
// that it takes for the primary. It does as the client library does: a write that may have been applied is sent again
// with its number to the same shard.
type clusterClient struct {
	c       *clusterSim    // the first shard
	shards  []*clusterSim  // all shards
	circle  *circle.Circle // the circle that the client knows; nil: there is one shard
	keys    int
	id      int
	n       *sim.Node
	thread  *sim.Thread
	queue   *sim.Queue
	local   fabric.Region
	conns   []*clientConn // by shard
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
	moved int // answers that the key has moved
	read  *clusterPointer
	shard int           // the shard of the operation
	anew  bool          // the request has to be sent again on the same connection
	scan  protocol.Scan // of a scan
}

type clusterPointer struct {
	protocol.Pointer
	m      *simMember
	life   int
	key    fabric.Key
	lease  time.Time
	tenure time.Time
}

// A clientConn is a connection of a client to a member: the Conn of the shard.
type clientConn struct {
	x    *clusterClient
	m    *simMember
	life int
	quit bool
	err  error
	in   []wire.Message
	out  []wire.Message
	at   [2]time.Duration
	sent [2][]func() // by direction: sent, not yet arrived
	held []func()    // to be sent once the hello is answered
	open bool        // the hello is answered
}

// deliver sends a message one way. Messages arrive in the order in which they were sent, as over TCP. A message that
// meets a cut arrives when the cut has healed, even if the client has given the connection up long before.
func (l *clientConn) deliver(way int, do func()) {
	w := l.m.c.w
	l.sent[way] = append(l.sent[way], do)
	l.at[way] = max(l.at[way], w.Now()+w.Delay())
	w.After(l.at[way]-w.Now(), func() { l.arrive(way) })
}

func (l *clientConn) arrive(way int) {
	c := l.m.c
	switch {
	case l.life != l.m.life || !l.m.alive():
	case !l.reaches(way):
		c.w.After(c.upTo(100*time.Millisecond), func() { l.arrive(way) })
	default:
		do := l.sent[way][0]
		l.sent[way] = l.sent[way][1:]
		do()
	}
}

func (l *clientConn) reaches(way int) bool {
	if way == 1 {
		return l.m.c.w.Reaches(l.m.n, l.x.n)
	}
	return l.m.c.w.Reaches(l.x.n, l.m.n)
}

// greet sends the hello. A member that does not serve refuses it, or answers as it answers a client that asks for any
// shard. The member's shard may get the connection later.
func (l *clientConn) greet(g Greeting) {
	c := l.x.c
	l.deliver(0, func() {
		m := l.m
		if m.shard == nil {
			return
		}
		if g.Term = m.shard.servingTerm(); g.Term == 0 && c.rand(2) == 0 {
			return
		}
		attach := func() {
			if l.life == m.life && m.alive() && m.shard != nil {
				m.shard.Attach(l, g)
				m.wake()
			}
		}
		if c.rand(8) > 0 {
			attach()
		} else {
			c.w.After(c.upTo(time.Second), attach)
		}
		l.deliver(1, l.welcomed)
	})
}

// welcomed sends the requests that waited for the answer to the hello.
func (l *clientConn) welcomed() {
	l.open = true
	for _, do := range l.held {
		if !l.quit {
			l.deliver(0, do)
		}
	}
	l.held = nil
}

// request sends a request after the hello is answered.
func (l *clientConn) request(do func()) {
	if l.open {
		l.deliver(0, do)
		return
	}
	l.held = append(l.held, do)
}

// giveUp ends the connection. The member learns of the end at once, or after everything that was sent.
func (l *clientConn) giveUp() {
	l.quit = true
	c := l.m.c
	c.w.After(c.upTo(60*time.Millisecond), func() {
		if l.reaches(0) {
			l.Close()
			return
		}
		l.deliver(0, func() { l.Close() })
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

func newClusterClient(shards []*clusterSim, id int) *clusterClient {
	c := shards[0]
	x := &clusterClient{
		c: c, shards: shards, keys: simKeys, conns: make([]*clientConn, len(shards)), id: id, n: c.w.NewNode(fmt.Sprintf("client-%d", id)), next: 1, left: 30 + c.rand(60), cache: map[string]clusterPointer{},
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

// leave records operations without an answer, except GETs and scans, which say nothing without one.
func (x *clusterClient) leave() {
	for _, l := range x.lanes {
		if l.busy && l.c.kind != "get" && l.c.kind != "scan" {
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
			if l.anew && x.conns[l.shard] != nil {
				x.send(now, l)
			} else {
				x.reconnect(now, l.shard)
			}
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

// reconnect gives a connection up and sends all requests under way again on another one, oldest first, to the same
// member or another member.
func (x *clusterClient) reconnect(now time.Time, shard int) {
	c := x.shards[shard]
	if old := x.conns[shard]; old != nil {
		old.giveUp()
	}
	m := c.members[c.rand(3)]
	if p := c.all[c.rec.Primary]; p != nil && !p.lost && c.rand(3) > 0 {
		m = p
	}
	l := &clientConn{x: x, m: m, life: m.life}
	x.conns[shard] = l
	l.greet(Greeting{Client: uint64(x.id) + 1, Next: x.next})
	list := slices.Clone(x.lanes)
	slices.SortFunc(list, func(a, b *clusterLane) int { return int(a.q.Number) - int(b.q.Number) })
	for _, lane := range list {
		if lane.busy && lane.read == nil && lane.shard == shard {
			x.send(now, lane)
		}
	}
}

// route sets the shard of an operation.
func (x *clusterClient) route(l *clusterLane) {
	if x.circle == nil {
		return
	}
	h := l.scan.First
	if l.c.kind != "scan" {
		h = circle.Hash(1, []byte(l.c.key))
	}
	owner, _ := x.circle.Owner(h)
	l.shard = int(owner)
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
	l.id, l.sent, l.anew = x.request, now, false
	l.again = now.Add(x.c.upTo(20*time.Millisecond<<x.c.rand(6)) + time.Millisecond)
	l.q.Oldest = x.oldest()
	h := wire.Header{Op: uint8(l.q.Op), Flags: uint8(l.q.Flags), Request: l.id}
	msg := wire.Message{Header: h, Body: l.q.AppendBody(nil)}
	if l.c.kind == "scan" {
		msg.Body = l.scan.AppendBody(nil)
	}
	conn := x.conns[l.shard]
	conn.request(func() {
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
	k := c.rand(x.keys)
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
	if x.circle != nil && c.rand(12) == 0 {
		x.startScan(l)
	}
	x.route(l)
	c.say("client %d lane %d: %+v number %d to shard %d", x.id, l.n, l.c, l.q.Number, l.shard)
	if l.c.kind == "get" && x.tryRead(now, l) {
		return
	}
	x.sendOn(now, l)
}

// sendOn sends an operation on the present connection, or on a new one.
func (x *clusterClient) sendOn(now time.Time, l *clusterLane) {
	if x.conns[l.shard] == nil {
		x.reconnect(now, l.shard)
		return
	}
	x.send(now, l)
}

// startScan makes the operation a scan of a range of hashes.
func (x *clusterClient) startScan(l *clusterLane) {
	if l.q.Number != 0 {
		x.next-- // no member has seen the number
	}
	x.c.counts.scans++
	l.c, l.q = call{kind: "scan"}, protocol.Request{Op: protocol.OpScan}
	l.scan = protocol.Scan{Last: math.MaxUint64}
	if x.c.rand(2) == 0 {
		l.scan.First = x.c.w.Rand().Uint64()
	}
}

// scanned processes an answer. Each of its items counts as a GET. The counter is never removed: if the answer covers
// its hash, its absence counts as a GET as well.
func (x *clusterClient) scanned(l *clusterLane, flags protocol.Flags, body []byte) {
	next, _, err := protocol.CheckScan(body)
	if err != nil {
		x.c.violation("%v", err)
		return
	}
	last := l.scan.Last
	if flags&protocol.FlagMore != 0 {
		last = next - 1
	}
	found := map[string]bool{}
	look := func(key, value string) {
		h := circle.Hash(1, []byte(key))
		if h < l.scan.First || h > last {
			x.c.violation("a scan from %x to %x has %s, whose hash is %x", l.scan.First, last, key, h)
		}
		if found[key] {
			x.c.violation("a scan has %s twice", key)
		}
		found[key] = true
		x.c.record(1000+x.id*10+l.n, call{kind: "get", key: key}, result{ok: true, value: value}, l.from)
	}
	for it := range protocol.ScannedItems(body) {
		look(string(it.Key), name(it.Value))
	}
	if k := simKey(0); !found[k] && circle.Hash(1, []byte(k)) >= l.scan.First && circle.Hash(1, []byte(k)) <= last {
		look(k, "")
	}
	l.busy, l.rest = false, x.n.Now().Add(x.c.upTo(20*time.Millisecond))
}

// tryRead posts a Read if the client has a pointer that is still valid.
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
	x.n.Domain().DialFunc(m.addr(life), nil, fabric.EndpointOptions{Send: x.queue, Recv: x.queue}, func(e fabric.Endpoint, _ []byte, err error) {
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
	x.route(l)
	x.sendOn(now, l)
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
	case protocol.StatusMoved:
		if x.circle == nil {
			c.violation("client %d is told that %+v has moved", x.id, l.c)
			return
		}
		if l.q.Op.IsWrite() { // the write was not applied, and never will be
			l.q.Number = x.next
			x.next++
			l.tries = 0
		}
		if c.rand(3) > 0 {
			x.circle = c.moves.at
		}
		x.route(l)
		l.anew, l.again = true, now.Add(c.upTo(5*time.Millisecond<<min(l.moved, 5))) // a client has protocol.Window numbers
		l.moved++
		return
	case protocol.StatusUnavailable:
		l.anew = x.circle != nil && c.rand(2) == 0
		if l.q.Op.IsWrite() && l.tries == 1 && c.rand(2) == 0 { // the write was not applied, so it may have another number
			l.q.Number = x.next
			x.next++
			l.tries = 0
			x.route(l)
		}
		if !l.q.Op.IsWrite() {
			x.route(l)
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
	if l.c.kind == "scan" {
		x.scanned(l, protocol.Flags(msg.Flags), msg.Body)
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
	m := x.conns[l.shard].m
	if it.HasPointer && m.alive() && m.life == x.conns[l.shard].life && m.shard != nil && m.shard.term == it.Pointer.Term {
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
