package hydra

import (
	"cmp"
	"testing"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"

	"github.com/stretchr/testify/require"
)

// A bench is an engine whose clock, messages and Reads the test controls.
type bench struct {
	t         testing.TB
	e         *engine
	s         *shard
	mono, wal time.Duration
	sent      []wire.Message // requests, oldest first
	reads     []uint64       // places of Reads under way
	full      bool
	ended     error
	reader    fabric.Reader
}

func newBench(t testing.TB) *bench {
	f := &bench{t: t}
	f.e = newEngine(newClock(func() (time.Duration, time.Duration) { return f.mono, f.mono + f.wal }), 16)
	f.e.setMap(protocol.Map{Version: 1, Seed: 5, Shards: []protocol.Place{{Shard: 0, Addrs: []string{"x:y"}}}})
	d := mem.NewNetwork().Open()
	t.Cleanup(func() { d.Close() })
	n, err := newNetwork("x", d)
	require.NoError(t, err)
	f.s = f.e.shards[0]
	f.s.net, f.s.conn, f.s.sided = n, f, f
	return f
}

func (f *bench) Begin(int) ([]byte, error) {
	if f.full {
		return nil, wire.ErrAgain
	}
	return nil, f.ended
}
func (f *bench) End(h *wire.Header, body []byte) {
	f.sent = append(f.sent, wire.Message{Header: *h, Body: body})
}
func (f *bench) Flush()                        {}
func (f *bench) Receive() (wire.Message, bool) { return wire.Message{}, false }
func (f *bench) Peer() fabric.Peer             { return fabric.Peer{} }
func (f *bench) Err() error                    { return f.ended }
func (f *bench) Close() error                  { return nil }
func (f *bench) Read(_ fabric.Region, _, _ uint64, _ fabric.Key, _, token uint64) error {
	f.reads = append(f.reads, token)
	return nil
}

func (f *bench) Reader() fabric.Reader { return f.reader }

// request takes the oldest request that the engine has sent.
func (f *bench) request(op protocol.Op) wire.Message {
	require.NotEmpty(f.t, f.sent, "no %v was sent", op)
	m := f.sent[0]
	f.sent = f.sent[1:]
	require.Equal(f.t, op, protocol.Op(m.Op))
	return m
}

func (f *bench) answer(m wire.Message, flags protocol.Flags, status protocol.Status, body []byte) {
	m.Flags, m.Status, m.Body = uint8(flags), uint16(status), body
	f.e.answered(f.s, m)
}

func (f *bench) get(key string) *call {
	c := &call{op: protocol.OpGet, key: []byte(key), waiter: &waiter{token: make(chan struct{}, 1)}}
	c.waiter.left.Store(1)
	f.e.start(c)
	return c
}

const term = 3

// learn makes a GET of key at 1 s, which is answered at 1.3 s with a pointer.
func (f *bench) learn(lease, tenure time.Duration) {
	f.mono = time.Second
	c := f.get("key")
	m := f.request(protocol.OpGet)
	f.mono = 1300 * time.Millisecond
	i := protocol.Item{Version: 9, HasPointer: true, Value: []byte("value"), Pointer: protocol.Pointer{
		Term: term, Extent: 1, Length: uint32(guard.Size(3, 5)), Lease: uint32(lease.Microseconds()), Tenure: uint32(tenure.Microseconds()),
	}}
	f.answer(m, protocol.FlagPointer, protocol.StatusOK, i.AppendBody(nil))
	require.True(f.t, c.waiter.done())
	require.NoError(f.t, c.err)
	x := protocol.Extent{Term: term}
	f.answer(f.request(protocol.OpExtent), 0, protocol.StatusOK, x.AppendBody(nil))
}

// landed returns the memory to which the running Read writes.
func (f *bench) landed() []byte {
	return f.s.net.land.Bytes()[f.reads[0]*readSize:][:guard.Size(3, 5)]
}

func (f *bench) complete(err error) {
	place := f.reads[0]
	f.reads = nil
	f.e.readDone(f.s.net, wire.ReadDone{Conn: f, Token: place, Err: err})
}

// A readCase is a Read at the limit of what may be accepted.
type readCase struct {
	lease, tenure time.Duration
	post          time.Duration
	before        func(*bench) // called before the post
	key           string       // of the item that the Read finds
	hidden        bool
	done          time.Duration
	err           error
	after         func(*bench) // called after the post
	posted        bool
	accepted      bool
	late          bool // accepted only by the engine: a caller reads the clock once, after the Read
}

const ms = time.Millisecond

var readCases = map[string]readCase{
	"all well":                          {lease: 10 * time.Second, tenure: time.Second, post: 1980 * ms, done: 1983 * ms, posted: true, accepted: true},
	"tenure over before the post":       {lease: 10 * time.Second, tenure: time.Second, post: 1985 * ms},
	"tenure over before the completion": {lease: 10 * time.Second, tenure: time.Second, post: 1980 * ms, done: 3 * time.Second, posted: true, accepted: true, late: true},
	"lease just lasts":                  {lease: 500 * ms, tenure: time.Second, post: 1450 * ms, done: 1491 * ms, posted: true, accepted: true},
	"lease over before the completion":  {lease: 500 * ms, tenure: time.Second, post: 1450 * ms, done: 1495 * ms, posted: true},
	"lease over before the post":        {lease: 500 * ms, tenure: time.Second, post: 1495 * ms},
	"no lease":                          {lease: 0, tenure: time.Second, post: 1310 * ms},
	"guardian says not current":         {lease: time.Second, tenure: time.Second, post: 1400 * ms, hidden: true, done: 1401 * ms, posted: true},
	"another key's item":                {lease: time.Second, tenure: time.Second, post: 1400 * ms, key: "kez", done: 1401 * ms, posted: true},
	"the Read failed":                   {lease: time.Second, tenure: time.Second, post: 1400 * ms, done: 1401 * ms, err: fabric.ErrAccess, posted: true},
	"tenure of a later reign": {lease: 10 * time.Second, tenure: time.Second, post: 1400 * ms,
		before: func(f *bench) { f.e.reign(f.s, term+1, int64(1300*ms), 1_000_000) }},
	"tenure of an earlier reign": {lease: 10 * time.Second, tenure: 200 * ms, post: 1400 * ms,
		before: func(f *bench) { f.e.reign(f.s, term-1, int64(1300*ms), 1_000_000) }},
	"suspended before the post": {lease: 10 * time.Second, tenure: time.Second, post: 1400 * ms, before: func(f *bench) { f.wal += 101 * ms }},
	"clock corrected":           {lease: 10 * time.Second, tenure: time.Second, post: 1400 * ms, before: func(f *bench) { f.wal -= 99 * ms }, done: 1401 * ms, posted: true, accepted: true},
	"suspended during the Read": {lease: 10 * time.Second, tenure: time.Second, post: 1400 * ms, after: func(f *bench) { f.wal += 101 * ms }, done: 1401 * ms, posted: true},
}

// begin has the engine learn the pointer, and advances the clock to the time of the Read.
func (c *readCase) begin(t *testing.T, f *bench) {
	if c.lease == 0 { // no extent has to be asked for
		f.mono = time.Second
		f.get("key")
		i := protocol.Item{Version: 9, HasPointer: true, Pointer: protocol.Pointer{Term: term, Length: 40, Tenure: 1_000_000}}
		f.answer(f.request(protocol.OpGet), protocol.FlagPointer, protocol.StatusOK, i.AppendBody(nil))
	} else {
		f.learn(c.lease, c.tenure)
	}
	f.mono = c.post
	if c.before != nil {
		c.before(f)
	}
}

// build writes to b what the Read finds.
func (c *readCase) build(b []byte) {
	g := guard.Build(b, &guard.Item{Version: 9, Key: []byte(cmp.Or(c.key, "key")), Value: []byte("value")})
	if !c.hidden {
		guard.Show(b, g)
	}
}

// complete advances the clock to the completion of the Read.
func (c *readCase) complete(f *bench) {
	f.mono = max(c.post, c.done)
	if c.after != nil {
		c.after(f)
	}
}

// TestOneSidedRules tries both sides of every limit of an accepted Read, once with a Read by the engine and once with
// a Read by the caller itself.
func TestOneSidedRules(t *testing.T) {
	for name, c := range readCases {
		t.Run(name+"/by the engine", func(t *testing.T) {
			f := newBench(t)
			c.begin(t, f)
			x := f.get("key")
			require.Equal(t, c.posted, len(f.reads) == 1, "posted")
			if c.posted {
				c.build(f.landed())
				c.complete(f)
				f.complete(c.err)
			}
			require.Equal(t, c.accepted, x.waiter.done(), "accepted")
			if c.accepted {
				require.Equal(t, "value", string(x.out))
				require.Empty(t, f.sent)
				return
			}
			f.request(protocol.OpGet) // by message instead
		})
		t.Run(name+"/by the caller", func(t *testing.T) {
			f := newBench(t)
			r := &caseReader{f: f, c: &c}
			f.reader = r
			c.begin(t, f)
			o := newOp()
			o.call = call{op: protocol.OpGet, key: []byte("key"), dst: []byte("before ")}
			_, made := f.e.readNow(o)
			require.Equal(t, c.accepted && !c.late, made, "accepted")
			require.Empty(t, f.sent)
			if made {
				require.Equal(t, "before value", string(o.out))
				require.EqualValues(t, 9, o.call.result().Version)
			} else if c.posted && c.err == nil && !c.late {
				require.Nil(t, f.e.cache.get(circle.Hash(5, []byte("key"))), "the pointer is gone")
			}
		})
	}
}

// caseReader is the reader of a test of one case.
type caseReader struct {
	fabric.Endpoint
	f     *bench
	c     *readCase
	reads int
}

func (r *caseReader) ReadNow(dst []byte, _ fabric.Key, _ uint64) error {
	r.reads++
	r.c.build(dst)
	r.c.complete(r.f)
	return r.c.err
}

// TestReadNowRenews: pointers of GETs that callers make themselves are renewed as other pointers are.
func TestReadNowRenews(t *testing.T) {
	f := newBench(t)
	c := readCase{}
	f.reader = &caseReader{f: f, c: &c}
	f.learn(4*time.Second, time.Minute)
	for _, at := range []time.Duration{2000, 2500, 3200} {
		require.False(t, f.s.renew.any(), "in the first half nothing is renewed")
		f.mono = at * ms
		c.done = f.mono
		o := newOp()
		o.call = call{op: protocol.OpGet, key: []byte("key")}
		_, made := f.e.readNow(o)
		require.True(t, made)
	}
	require.True(t, f.s.used.Load())
	f.e.askRenewals(f.s)
	m := f.request(protocol.OpRenew)
	n, err := protocol.CheckRenew(m.Body)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	a := protocol.Renewed{Term: term, Tenure: 60_000_000, Leases: []uint32{8_000_000}}
	f.answer(m, 0, protocol.StatusOK, a.AppendBody(nil))
	f.mono, c.done = 7*time.Second, 7*time.Second
	o := newOp()
	o.call = call{op: protocol.OpGet, key: []byte("key")}
	_, made := f.e.readNow(o)
	require.True(t, made, "the first lease is over, the second one is not")
}

// TestSuspendedBeforeTheAnswer suspends the machine while a GET is under way: meanwhile the shard's lease and tenure
// have gone on.
func TestSuspendedBeforeTheAnswer(t *testing.T) {
	f := newBench(t)
	f.get("key")
	m := f.request(protocol.OpGet)
	f.wal += time.Second
	f.get("other") // reads the clock
	i := protocol.Item{Version: 9, HasPointer: true, Pointer: protocol.Pointer{Term: term, Length: 40, Lease: 1_000_000, Tenure: 1_000_000}}
	f.answer(m, protocol.FlagPointer, protocol.StatusOK, i.AppendBody(nil))
	require.Zero(t, f.s.tenure)
	require.Nil(t, f.e.cache.get(f.e.hashOf(&call{key: []byte("key")})))
}

// TestRenewal uses a pointer in the second half of its lease. The next Tick renews the pointer, together with the
// tenure in one message.
func TestRenewal(t *testing.T) {
	f := newBench(t)
	f.learn(4*time.Second, time.Minute)
	read := func(at time.Duration) {
		f.mono = at
		f.get("key")
		require.Len(t, f.reads, 1)
		(&readCase{}).build(f.landed())
		f.complete(nil)
	}
	read(2 * time.Second)
	read(2500 * time.Millisecond)
	f.e.askRenewals(f.s)
	require.Empty(t, f.sent, "in the first half nothing is renewed")
	read(3200 * time.Millisecond)
	f.e.askRenewals(f.s)
	m := f.request(protocol.OpRenew)
	n, err := protocol.CheckRenew(m.Body)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	for r := range protocol.Renewals(m.Body) {
		require.Equal(t, protocol.Renewal{Version: 9, Key: []byte("key")}, r)
	}
	f.mono = 3300 * time.Millisecond
	a := protocol.Renewed{Term: term, Tenure: 60_000_000, Leases: []uint32{8_000_000}}
	f.answer(m, 0, protocol.StatusOK, a.AppendBody(nil))
	p := f.e.cache.get(f.e.hashOf(&call{key: []byte("key")}))
	require.Equal(t, int64(3200*time.Millisecond+8*time.Second-8*time.Second/64), p.end, "from the send of the RENEW, less 1/64")
	read(6 * time.Second)

	a.Leases[0] = 0 // the item was replaced
	f.s.renew.add(p)
	f.e.askRenewals(f.s)
	f.answer(f.request(protocol.OpRenew), 0, protocol.StatusOK, a.AppendBody(nil))
	require.Nil(t, f.e.cache.get(p.hash))
}

func (f *bench) put(key string) *call {
	c := &call{op: protocol.OpPut, key: []byte(key), value: []byte("v"), waiter: &waiter{token: make(chan struct{}, 1)}}
	c.waiter.left.Store(1)
	f.e.start(c)
	return c
}

func (f *bench) write(m wire.Message) protocol.Request {
	var r protocol.Request
	require.NoError(f.t, r.Parse(protocol.Op(m.Op), protocol.Flags(m.Flags), m.Body))
	return r
}

func written(version uint64) []byte { return (&protocol.Written{Version: version}).AppendBody(nil) }

// TestNumbers follows the numbers of writes through answers, lost connections, refusals, and callers that leave.
func TestNumbers(t *testing.T) {
	f := newBench(t)
	a, b, c := f.put("a"), f.put("b"), f.put("c")
	ma, mb, mc := f.request(protocol.OpPut), f.request(protocol.OpPut), f.request(protocol.OpPut)
	require.Equal(t, [2]uint64{3, 1}, [2]uint64{f.write(mc).Number, f.write(mc).Oldest})
	f.answer(mb, 0, protocol.StatusOK, written(5))
	require.True(t, b.waiter.done())
	d := f.put("d")
	md := f.request(protocol.OpPut)
	require.Equal(t, [2]uint64{4, 1}, [2]uint64{f.write(md).Number, f.write(md).Oldest}, "1 has no answer yet")
	f.answer(ma, 0, protocol.StatusOK, written(6))
	require.True(t, a.waiter.done())

	// The connection is lost. The other writes are sent again with the same numbers, oldest first; a write whose
	// caller has left is not.
	e := f.put("e")
	me := f.request(protocol.OpPut)
	f.e.withdraw([]*call{d}, errTest)
	require.ErrorIs(t, d.err, ErrUnknownOutcome)
	require.ErrorIs(t, d.err, errTest)
	f.e.lost(f.s, errTest)
	require.Nil(t, f.s.conn)
	late := f.put("late")
	require.Empty(t, f.sent)
	f.s.conn, f.s.sided = f, f
	for len(f.s.queue) > 0 {
		require.True(t, f.e.send(f.s.queue[0]))
		f.s.queue = f.s.queue[1:]
	}
	again := f.request(protocol.OpPut)
	require.Equal(t, f.write(mc).Number, f.write(again).Number)
	require.EqualValues(t, 3, f.write(again).Oldest, "2 is answered, 4 is given up")
	again2 := f.request(protocol.OpPut)
	require.Equal(t, f.write(me).Number, f.write(again2).Number)
	ml := f.request(protocol.OpPut)
	require.EqualValues(t, 6, f.write(ml).Number, "numbers are given at the first send")
	f.answer(mc, 0, protocol.StatusOK, written(7)) // the ID of the first try, which no longer belongs to a request
	require.False(t, c.waiter.done())
	f.answer(again, 0, protocol.StatusUnknownOutcome, nil)
	require.ErrorIs(t, c.err, ErrUnknownOutcome)

	// The second try is refused, so it was not applied. The first try may have been, by another primary: the number
	// stays (see TestNumberStaysAfterRetry for a write that was sent once).
	f.answer(again2, 0, protocol.StatusUnavailable, written(0))
	require.False(t, e.waiter.done())
	f.e.start(&call{op: protocol.OpMap, shard: f.s, body: []byte{}, internal: func(*engine, *call, wire.Message) {}})
	f.request(protocol.OpMap)
	list := f.e.later
	f.e.later = nil
	require.Len(t, list, 1)
	f.e.route(list[0])
	third := f.request(protocol.OpPut)
	require.Equal(t, f.write(me).Number, f.write(third).Number)
	f.answer(third, 0, protocol.StatusOK, written(8))
	require.NoError(t, e.err)
	f.answer(ml, 0, protocol.StatusFull, written(0))
	require.ErrorIs(t, late.err, ErrFull)
	require.Equal(t, f.e.numbers.next, f.e.numbers.oldest)
}

// TestWindow fills the window of numbers that begins with a write without an answer.
func TestWindow(t *testing.T) {
	f := newBench(t)
	f.put("first")
	first := f.request(protocol.OpPut)
	for range protocol.Window - 1 {
		f.put("k")
		f.answer(f.request(protocol.OpPut), 0, protocol.StatusOK, written(1))
	}
	f.put("k")
	require.Empty(t, f.sent, "the number would be too far above the oldest")
	require.Len(t, f.e.waiting, 1)
	f.answer(first, 0, protocol.StatusOK, written(1))
	require.True(t, f.e.numbers.next-f.e.numbers.oldest < protocol.Window)
	c := f.e.waiting[0]
	f.e.waiting = nil
	f.e.route(c)
	require.EqualValues(t, protocol.Window+1, f.write(f.request(protocol.OpPut)).Number)
}

// TestNumberStaysAfterRetry: a shard that answers that it has not applied a write does not know what another primary
// has done with an earlier try. The number stays: only the number shows that the two tries are one write.
func TestNumberStaysAfterRetry(t *testing.T) {
	f := newBench(t)
	number := func(m wire.Message) uint64 {
		var q protocol.Request
		require.NoError(t, q.Parse(protocol.Op(m.Op), 0, m.Body))
		return q.Number
	}
	c := &call{op: protocol.OpAdd, key: []byte("key"), arg: 1, waiter: &waiter{token: make(chan struct{}, 1)}}
	c.waiter.left.Store(1)
	f.e.start(c)
	m := f.request(protocol.OpAdd)
	require.EqualValues(t, 1, number(m))
	f.answer(m, 0, protocol.StatusUnavailable, nil)
	f.e.Tick(time.Now())
	m = f.request(protocol.OpAdd)
	require.EqualValues(t, 2, number(m), "a first try that was refused was not applied: a new number")
	f.e.lost(f.s, fabric.ErrPeer)
	f.s.conn, f.s.sided = f, f
	f.e.Step()
	m = f.request(protocol.OpAdd)
	require.EqualValues(t, 2, number(m))
	for range 2 {
		f.answer(m, 0, protocol.StatusUnavailable, nil)
		f.e.Tick(time.Now())
		m = f.request(protocol.OpAdd)
		require.EqualValues(t, 2, number(m), "the first try may have been applied")
	}
	w := protocol.Written{Sum: 1}
	f.answer(m, 0, protocol.StatusOK, w.AppendBody(nil))
	require.True(t, c.waiter.done())
	require.NoError(t, c.err)
}

// TestMovedFreesTheNumber: a shard that answers that a key has moved has not applied any try of the write, and never
// will. So the write goes to the new owner with a new number, once the map names that owner.
func TestMovedFreesTheNumber(t *testing.T) {
	f := newBench(t)
	c := f.put("key")
	first := f.request(protocol.OpPut)
	f.e.lost(f.s, fabric.ErrPeer)
	f.s.conn, f.s.sided = f, f
	f.e.Step()
	again := f.request(protocol.OpPut)
	require.Equal(t, f.write(first).Number, f.write(again).Number)
	f.answer(again, 0, protocol.StatusMoved, written(0))
	require.False(t, c.waiter.done())
	ask := f.request(protocol.OpMap) // asks the shard that has answered
	m := protocol.Map{Version: 2, Seed: 5, Shards: []protocol.Place{{Shard: 0, Addrs: []string{"x:y"}}, {Shard: 1, Addrs: []string{"x:z"}}}}
	m.Moving = circle.Assignment{Shards: []uint32{0}, Next: []uint32{1}, Moved: []circle.Pair{{From: 0, To: 1}}}
	f.answer(ask, 0, protocol.StatusOK, m.AppendBody(nil))
	require.Empty(t, f.sent)
	other := f.e.shard(1)
	require.Len(t, other.queue, 1)
	require.Zero(t, other.queue[0].number)
	require.False(t, f.s.gone)

	m.Version, m.Shards, m.Moving = 3, m.Shards[1:], circle.Assignment{}
	f.e.setMap(m)
	require.True(t, f.s.gone)
	late := &call{op: protocol.OpPut, key: []byte("late"), shard: f.s, number: 9, slot: -1}
	f.e.later = []*call{late}
	f.e.part()
	require.Contains(t, f.e.shards, f.s, "it may have applied a write")
	f.e.later = nil
	f.e.part()
	require.Equal(t, []*shard{other}, f.e.shards)
}

// TestSilentShard: a process that was stopped ends no connection. The client sends the requests without an answer to
// the node that serves the shard by then.
func TestSilentShard(t *testing.T) {
	f := newBench(t)
	f.mono = time.Second
	f.e.look()
	f.s.addrs = []string{"x:y", "x:z"}
	c := f.get("key")
	f.request(protocol.OpGet)
	f.mono += time.Duration(silentAfter)
	f.e.Tick(time.Now())
	require.NotNil(t, f.s.conn)
	f.mono += time.Millisecond
	f.e.Tick(time.Now())
	require.Nil(t, f.s.conn)
	require.False(t, c.waiter.done())
	f.s.conn, f.s.sided = f, f
	f.e.Step()
	f.answer(f.request(protocol.OpGet), 0, protocol.StatusNotFound, nil)
	require.ErrorIs(t, c.err, ErrNotFound)
}

// TestSilentShardOfAMapWithOneNode: right after a failover the map names only the new primary. If that node is
// stopped, the client asks the nodes that it knew first.
func TestSilentShardOfAMapWithOneNode(t *testing.T) {
	f := newBench(t)
	f.mono = time.Second
	f.e.look()
	f.get("key")
	f.mono += time.Duration(silentAfter) + time.Millisecond
	f.e.first = []string{"x:y"}
	f.e.Tick(time.Now())
	require.NotNil(t, f.s.conn, "there is nobody else to ask")
	f.e.first = []string{"x:y", "x:z"}
	f.e.Tick(time.Now())
	require.Nil(t, f.s.conn)
}

// guide makes the engine ask a node for the map, as it does while no shard is connected. It returns the shard that
// represents the node, and its connection.
func (f *bench) guide() (guide *shard, asked *bench) {
	asked = &bench{t: f.t}
	guide = &shard{id: protocol.AnyShard, net: f.s.net, conn: asked, extents: map[uint32]*extent{}}
	f.e.guided, f.e.shards = true, append(f.e.shards, guide)
	f.e.follow(guide)
	return guide, asked
}

// TestGuideLeavesNoRequest: a node is asked for the map because no shard is connected, and may be asked a second time
// before it answers. Its connection ends with the first answer. The second request ends with the connection. Otherwise
// no node would be asked for the map again.
func TestGuideLeavesNoRequest(t *testing.T) {
	f := newBench(t)
	f.s.conn, f.s.sided = nil, nil
	guide, asked := f.guide()
	f.e.stale = true
	f.e.Tick(time.Now())
	first := asked.request(protocol.OpMap)
	asked.request(protocol.OpMap)
	require.True(t, f.e.asking)
	first.Status = uint16(protocol.StatusUnavailable)
	f.e.answered(guide, first)
	require.False(t, f.e.asking)
	require.False(t, f.e.guided)
	require.Equal(t, []*shard{f.s}, f.e.shards)
	f.s.conn, f.s.sided = f, f
	f.e.Tick(time.Now())
	f.request(protocol.OpMap)
}

// TestSilentGuide: if a node that is asked for the map is stopped before it answers, the client stops waiting for it.
func TestSilentGuide(t *testing.T) {
	f := newBench(t)
	f.s.conn, f.s.sided = nil, nil
	f.mono = time.Second
	f.e.look()
	f.guide()
	f.mono += time.Duration(silentAfter) + time.Millisecond
	f.e.Tick(time.Now())
	require.False(t, f.e.guided)
	require.Equal(t, []*shard{f.s}, f.e.shards)
}
