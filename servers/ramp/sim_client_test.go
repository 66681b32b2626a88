package ramp

import (
	"bytes"
	"fmt"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/wire"
)

// A simLink carries messages between a client and a partition, in order, with a delay in each direction. Messages
// under way are lost with the link.
type simLink struct {
	m    *simulation
	x    *simPartition
	c    *simClient
	life int  // of the partition
	dead bool // the partition's life has ended
	quit bool // the client has given the link up
	left bool // the partition knows that the client has given the link up
	err  error
	at   [2]time.Duration
	line [2][]lineMessage // messages that have travelled, and wait if a cut lasts
}

type lineMessage struct {
	msg  wire.Message
	sent time.Duration
}

// An end is one end of a link.
type end struct {
	*simLink
	way    int // 0: the client's end, which sends to the partition
	in     []wire.Message
	out    []wire.Message
	refuse int
	other  *end
}

func (e *end) Begin(int) ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	if e.refuse == 0 && e.m.rand(30) == 0 {
		e.refuse = 1 + e.m.rand(3)
	}
	if e.refuse > 0 {
		if e.refuse--; e.way == 0 {
			e.c.wake()
		}
		return nil, wire.ErrAgain
	}
	return nil, nil
}

func (e *end) End(h *wire.Header, body []byte) {
	e.out = append(e.out, wire.Message{Header: *h, Body: bytes.Clone(body)})
}

func (e *end) Flush() {
	m := e.m
	for _, msg := range e.out {
		at := max(e.at[e.way], m.w.Now()+m.w.Delay())
		e.at[e.way] = at
		sent := m.w.Now()
		m.w.After(at-m.w.Now(), func() {
			e.line[e.way] = append(e.line[e.way], lineMessage{msg, sent})
			if len(e.line[e.way]) == 1 {
				e.pass()
			}
		})
	}
	e.out = nil
}

// pass gives the other end the messages that have travelled. While a cut lasts it tries again; after a second it
// loses the link.
func (e *end) pass() {
	m := e.m
	from, to := e.c.n, e.x.host
	if e.way == 1 {
		from, to = to, from
	}
	list := e.line[e.way]
	switch {
	case len(list) == 0:
		return
	case e.dead || e.way == 1 && e.quit:
	case !m.w.Reaches(from, to):
		if m.w.Now()-list[0].sent < time.Second {
			m.w.After(time.Millisecond+m.upTo(20*time.Millisecond), e.pass)
			return
		}
		e.err = fabric.ErrTimeout
	default:
		for _, l := range list {
			e.other.in = append(e.other.in, l.msg)
		}
	}
	e.line[e.way] = nil
	if e.way == 0 {
		e.x.wake()
	} else {
		e.c.wake()
	}
}

func (e *end) Receive() (msg wire.Message, ok bool) {
	if len(e.in) == 0 || e.way == 1 && e.err != nil {
		return msg, false
	}
	msg, e.in = e.in[0], e.in[1:]
	return msg, true
}

func (e *end) Err() error {
	if e.err == nil && e.way == 1 && e.left {
		return wire.ErrClosed
	}
	return e.err
}

// Close closes the client's end, or the partition's end after the link has ended. Messages that the client has sent
// may still arrive.
func (e *end) Close() error {
	if e.way == 0 && !e.quit {
		e.quit = true
		e.m.w.After(e.m.upTo(60*time.Millisecond), e.leave)
	}
	if e.way == 1 && e.err == nil { // the partition no longer serves
		e.dead = true
		e.m.w.After(e.m.upTo(60*time.Millisecond), func() { e.err = wire.ErrClosed })
	}
	return nil
}

// attach gives the partition the link. The partition's thread may take it long after the client was welcomed, and
// then finds what the client has sent meanwhile.
func (e *end) attach(g partition.Greeting) {
	switch {
	case e.dead || e.x.life != e.life:
	case !e.x.host.Running():
		e.m.w.After(time.Millisecond+e.m.upTo(60*time.Millisecond), func() { e.attach(g) })
	default:
		e.x.attach(e, g)
		e.x.wake()
	}
}

// leave tells the partition that the client has given the link up. During a cut, and while the partition's node is
// stopped, the partition does not learn it.
func (l *simLink) leave() {
	if m := l.m; !l.dead && (!l.x.host.Running() || !m.w.Reaches(l.c.n, l.x.host)) {
		m.w.After(time.Millisecond+m.upTo(60*time.Millisecond), l.leave)
		return
	}
	l.left = true
	l.x.wake()
}

// A simClient is a client's engine with several transactions under way at a time.
type simClient struct {
	m      *simulation
	id     int
	n      *sim.Node
	thread *sim.Thread
	queue  *sim.Queue
	e      *engine
	land   *landing
	busy   int
	lanes  int
	left   int // transactions that it has yet to begin
	next   time.Time
}

// A simReader makes Reads through an endpoint of the simulated fabric.
type simReader struct{ ep fabric.Endpoint }

func (r *simReader) Reads(local fabric.Region, ops []wire.ReadOp) (int, error) {
	var list []fabric.WR
	for _, o := range ops {
		list = append(list, fabric.WR{ID: o.Token, Op: fabric.Read, Flags: fabric.Signal, Local: local, LOff: o.Offset, LLen: o.Length, Remote: o.Key, ROff: o.At})
	}
	n, err := r.ep.Post(list)
	if err == fabric.ErrAgain {
		err = nil
	}
	return n, err
}

// limit is how long a client tries. That is mostly shorter than a table needs to serve again after all of its nodes
// have ended, and sometimes longer.
func (m *simulation) limit() int64 {
	if m.nodes != nil && m.mode == partition.Async && m.rand(3) == 0 {
		return int64(12 * time.Second)
	}
	return int64(3 * time.Second)
}

func (m *simulation) addClient() *simClient {
	c := &simClient{m: m, id: len(m.clients), n: m.w.NewNode(fmt.Sprintf("client-%d", len(m.clients))), lanes: 1 + m.rand(3), left: 10 + m.rand(60)}
	m.clients = append(m.clients, c)
	m.setDate(c.n)
	q, _ := c.n.Domain().NewQueue(256)
	c.queue = q.(*sim.Queue)
	c.land, _ = newLanding(c.n.Domain(), 4)
	tick := uint64(1)
	if m.alike {
		tick = 250
	}
	c.e = newEngine(m.alg, m.w.Rand().Uint64(), func() (int64, uint64) { return c.n.Now().UnixNano(), uint64(c.n.Wall().UnixMilli()) / tick * tick })
	c.e.slots = make(slots, 1+m.rand(16))
	c.e.setTable(m.seed, uint32(m.parts))
	c.e.replicas = m.nodes != nil
	if m.alike {
		c.e.clock, c.e.stride = protocol.NewClock(1), 0
	}
	c.thread = c.n.Go("client", c.step, c.queue)
	return c
}

// setDate sets the node's date to within 2 seconds of the right one.
func (m *simulation) setDate(n *sim.Node) {
	n.JumpWall(time.Unix(1.5e9, 0).Add(m.w.Now()).Sub(n.Wall()) + m.upTo(2*time.Second))
}

func (c *simClient) wake() { c.thread.Wake() }

// die ends the client in the middle of its transactions. Another client takes its place.
func (c *simClient) die() {
	if !c.n.Alive() || c.m.over {
		return
	}
	c.m.counts.deaths++
	c.m.say("client %d dies", c.id)
	c.n.Kill()
	c.addStats()
	for _, l := range c.e.links {
		if l.conn != nil {
			l.conn.Close()
		}
	}
	c.m.addClient()
}

// lose ends one of the client's connections. The client connects again and repeats the requests that were not
// answered.
func (c *simClient) lose() {
	if l := c.e.links[c.m.rand(len(c.e.links))]; c.n.Running() && l.conn != nil {
		c.m.say("client %d loses its connection to partition %d", c.id, l.number)
		c.e.look()
		c.e.lost(l, errSilent)
		c.wake()
	}
}

func (c *simClient) addStats() {
	s, n := c.e.counts, &c.m.counts
	n.oneSided, n.refused, n.repaired, n.retries = n.oneSided+int(s.OneSided), n.refused+int(s.Refused), n.repaired+int(s.Repaired), n.retries+int(s.Retries)
	c.e.counts = Stats{}
}

func (c *simClient) step(now time.Time) (bool, time.Time) {
	m := c.m
	if m.bad != "" {
		return false, time.Time{}
	}
	var wcs [8]fabric.WC
	for _, wc := range wcs[:c.queue.Poll(wcs[:])] {
		c.e.look()
		c.e.readDone(c.land, wc.ID, wc.Err)
	}
	worked := c.e.step()
	c.e.tick()
	for _, l := range c.e.links {
		if l.conn == nil && !l.dialing && c.e.now >= l.dialAfter {
			c.dial(l)
		}
	}
	if !m.over && c.left > 0 && c.busy < c.lanes && !now.Before(c.next) {
		c.next = now.Add(m.upTo(time.Millisecond << m.rand(11)))
		c.begin()
		worked = true
	}
	if worked {
		return true, time.Time{}
	}
	c.addStats()
	return false, now.Add(m.upTo(m.idle()))
}

// dial connects to a partition, first for messages, then for Reads.
func (c *simClient) dial(l *link) {
	m, x := c.m, c.m.server(l.number)
	l.dialing = true
	m.w.After(m.w.Delay(), func() {
		l.dialing = false
		if !c.n.Alive() {
			return
		}
		if !x.host.Alive() || !x.host.Running() && m.nodes != nil || !m.w.Reaches(c.n, x.host) || !m.w.Reaches(x.host, c.n) || !x.serves() {
			l.dialAfter = c.e.now + int64(m.upTo(100*time.Millisecond))
			c.wake()
			return
		}
		link := &simLink{m: m, x: x, c: c, life: x.life}
		near, far := &end{simLink: link}, &end{simLink: link, way: 1}
		near.other, far.other = far, near
		x.links = append(x.links, link)
		w := &protocol.Welcome{Term: x.term()}
		if w.Life = w.Term; x.member != nil {
			w.Life = x.member.Reign().Record().Life
		}
		late := time.Duration(0)
		if m.rand(8) == 0 {
			late = m.upTo(4 * time.Second)
		}
		m.w.After(late, func() { far.attach(partition.Greeting{Term: w.Term}) })
		c.e.look()
		c.e.attach(l, near, nil, c.land, w)
		c.n.Domain().DialFunc(x.addr(), nil, fabric.EndpointOptions{Send: c.queue, Recv: c.queue}, func(ep fabric.Endpoint, _ []byte, err error) {
			if err == nil && l.conn == conn(near) {
				l.reader = &simReader{ep}
			} else if err == nil {
				ep.Close()
			}
		})
		c.wake()
	})
}

// server returns a member that clients believe to serve the partition.
func (m *simulation) server(number uint32) *simPartition {
	if m.nodes != nil {
		return m.nodes.server(number)
	}
	return m.partitions[number]
}

// begin starts a transaction.
func (c *simClient) begin() {
	m := c.m
	c.left--
	c.busy++
	deadline := c.e.now + m.limit()
	if m.rand(3) == 0 {
		m.counts.puts++
		x := m.check.newPut(c.pick())
		m.say("client %d puts %s", c.id, x)
		c.put(x.pairs(), deadline, func(ts Timestamp, err error) {
			c.busy--
			m.say("client %d has put %s: %v %v", c.id, x, ts, err)
			m.check.putDone(x, ts, err)
			if err != nil {
				m.counts.failed++
			}
		})
		return
	}
	c.get(c.pick())
}

func (c *simClient) put(pairs []Pair, deadline int64, done func(Timestamp, error)) {
	if c.m.locks {
		c.e.startLockedPut(pairs, deadline, done)
	} else {
		c.e.startPut(pairs, deadline, done)
	}
}

func (c *simClient) getAll(keys [][]byte, deadline int64, done func([]Value, error)) {
	if c.m.locks {
		c.e.startLockedGet(keys, deadline, done)
	} else {
		c.e.startGet(keys, deadline, done)
	}
}

func (c *simClient) get(keys [][]byte) {
	m := c.m
	m.counts.gets++
	x := m.check.newGet(keys)
	c.getAll(keys, c.e.now+m.limit(), func(v []Value, err error) {
		c.busy--
		if err != nil {
			m.say("client %d got %q: %v", c.id, keys, err)
			m.counts.failed++
			return
		}
		m.say("client %d got %q: %s", c.id, keys, said(v))
		m.check.getDone(x, v)
	})
}

func said(values []Value) (s string) {
	for _, v := range values {
		s += fmt.Sprintf(" %v:%.8s", v.TS, v.Value)
	}
	return s
}

// lastRead reads all keys, and repeats the read until it succeeds.
func (c *simClient) lastRead() {
	c.left, c.busy = 0, 1
	x := c.m.check.newGet(c.m.keys)
	c.getAll(c.m.keys, c.e.now+int64(30*time.Second), func(v []Value, err error) {
		if c.busy = 0; err != nil {
			c.m.violation("the last read: %v", err)
			return
		}
		c.m.check.getDone(x, v)
	})
	c.wake()
}

// pick returns some of the keys, in any order.
func (c *simClient) pick() [][]byte {
	m := c.m
	n := 1 + m.rand(min(len(m.keys), 8))
	var keys [][]byte
	for _, i := range m.w.Rand().Perm(len(m.keys))[:n] {
		keys = append(keys, m.keys[i])
	}
	return keys
}
