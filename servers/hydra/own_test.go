package hydra

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"

	"github.com/stretchr/testify/require"
)

// TestGuideLeavesNothingQueued: a request for the map may be queued for a node whose connection has ended, before the
// engine has noticed the end. (The node is asked because no shard is connected.) The queued request ends with the
// connection, as a sent one does. Otherwise no node would be asked for the map again.
func TestGuideLeavesNothingQueued(t *testing.T) {
	f := newBench(t)
	f.s.conn, f.s.sided = nil, nil
	guide, asked := f.guide()
	asked.ended = wire.ErrClosed
	f.e.stale = true
	f.e.Tick(time.Now())
	require.True(t, f.e.asking)
	require.Len(t, guide.queue, 1)
	f.e.Step()
	require.False(t, f.e.asking)
	require.False(t, f.e.guided)
	require.Equal(t, []*shard{f.s}, f.e.shards)
}

// TestOwnRequestsKeepTheirShard: a new map does not send the engine's own requests to other shards. Otherwise the
// tenure that one shard grants would be used for the memory of another shard.
func TestOwnRequestsKeepTheirShard(t *testing.T) {
	f := newBench(t)
	f.e.setMap(protocol.Map{Version: 2, Seed: 5, Shards: []protocol.Place{{Shard: 0, Addrs: []string{"x:y"}}, {Shard: 1, Addrs: []string{"x:z"}}}})
	other := &bench{t: t}
	s := f.e.shards[1]
	if owner, _ := f.e.circle.Owner(f.e.hashOf(&call{})); owner != 0 { // the request has no key
		s = f.e.shards[0]
		f.s.conn, f.s.sided = nil, nil
	}
	asked := &bench{t: t, full: true}
	s.net, s.conn, s.sided = f.s.net, asked, asked
	for _, x := range f.e.shards {
		if x != s {
			x.net, x.conn = f.s.net, other
		}
	}
	s.used.Store(true)
	f.e.Tick(time.Now())
	require.Len(t, s.queue, 1)
	m := f.e.m
	m.Version++
	f.e.setMap(m)
	asked.full = false
	f.e.Step()
	require.Empty(t, other.sent)
	asked.request(protocol.OpRenew)
}

// TestOwnRequestsEnd makes the events that an engine may meet happen in random order. After each of them, a request
// whose answer the engine expects is under way or queued on a connection.
func TestOwnRequestsEnd(t *testing.T) {
	for seed := range uint64(40) {
		w := &world{bench: newBench(t), r: rand.New(rand.NewPCG(seed, 0))}
		w.s.conn, w.s.sided = nil, nil
		for step := range 200 {
			what := w.step()
			w.check(fmt.Sprintf("seed %d, step %d: %s", seed, step, what))
		}
	}
}

// A world is an engine with its shards, whose answers come in any order.
type world struct {
	*bench
	r *rand.Rand
}

func (w *world) any() *shard { return w.e.shards[w.r.IntN(len(w.e.shards))] }

func (w *world) step() string {
	e, r := w.e, w.r
	s := w.any()
	c, _ := s.conn.(*bench)
	switch r.IntN(12) {
	case 0:
		w.mono += time.Duration(r.IntN(30)) * ms
		e.Tick(time.Now())
		for _, s := range e.toDial() {
			s.dialing = r.IntN(2) == 0 // connecting takes a while
		}
		return "tick"
	case 1:
		e.Step()
		return "step"
	case 2:
		for _, s := range e.shards {
			if s.conn == nil && s.id != protocol.AnyShard {
				c := &bench{t: w.t}
				s.dialing, s.net, s.conn, s.sided = false, w.s.net, c, c
				clear(s.extents)
				return fmt.Sprint("connect ", s.id)
			}
		}
	case 3:
		if s.dialing {
			s.dialing, e.stale = false, true
		}
		if !e.guided && !e.connected() {
			w.guide()
			return "guide"
		}
	case 4:
		if c != nil && r.IntN(4) == 0 {
			c.ended = wire.ErrClosed
			return fmt.Sprint("end ", s.id)
		}
	case 5:
		if c != nil {
			c.full = !c.full
			return fmt.Sprint("full ", s.id, c.full)
		}
	case 6:
		e.stale = true
		return "stale"
	case 7:
		s.use()
		return "use"
	case 8:
		v := &waiter{token: make(chan struct{}, 1)}
		n := 1 + r.IntN(3)
		v.left.Store(int32(n))
		for range n {
			op := []protocol.Op{protocol.OpGet, protocol.OpPut}[r.IntN(2)]
			e.start(&call{op: op, key: fmt.Append(nil, r.IntN(20)), waiter: v, many: n > 1})
		}
		return "calls"
	default:
		if c != nil && len(c.sent) > 0 {
			i := r.IntN(len(c.sent))
			m := c.sent[i]
			c.sent = slices.Delete(c.sent, i, i+1)
			w.answer(s, m)
			return fmt.Sprintf("answer of %d to %v", s.id, protocol.Op(m.Op))
		}
	}
	return "nothing"
}

// answer answers a request of the engine, sometimes badly.
func (w *world) answer(s *shard, m wire.Message) {
	m.Body = nil
	switch op := protocol.Op(m.Op); {
	case w.r.IntN(3) == 0:
		m.Status = uint16([]protocol.Status{protocol.StatusMoved, protocol.StatusUnavailable}[w.r.IntN(2)])
	case op == protocol.OpMap:
		got := protocol.Map{Version: w.e.m.Version + uint32(w.r.IntN(2)), Seed: 5}
		for id := range uint32(1 + w.r.IntN(4)) {
			got.Shards = append(got.Shards, protocol.Place{Shard: id, Addrs: []string{"x:y"}})
		}
		m.Body = got.AppendBody(nil)
	case op == protocol.OpGet:
		i := protocol.Item{Version: 9, HasPointer: true, Pointer: protocol.Pointer{Term: 1, Extent: uint32(w.r.IntN(2)), Length: 100, Lease: 1e6, Tenure: 1e6}}
		m.Flags, m.Body = uint8(protocol.FlagPointer), i.AppendBody(nil)
	case op == protocol.OpPut:
		x := protocol.Written{Version: 10}
		m.Body = x.AppendBody(nil)
	case op == protocol.OpExtent:
		x := protocol.Extent{Term: 1}
		m.Body = x.AppendBody(nil)
	}
	w.e.answered(s, m)
}

// check compares the answers that the engine waits for with its requests.
func (w *world) check(when string) {
	type kind struct {
		op protocol.Op
		s  *shard
	}
	maps, requests := 0, map[kind]int{}
	note := func(c *call) {
		if c.op == protocol.OpMap {
			maps++
		}
		requests[kind{c.op, c.shard}]++
	}
	for _, c := range w.e.slots {
		if c == nil || c.internal == nil {
			continue
		}
		require.True(w.t, c.shard.conn != nil && c.conn == c.shard.conn, "%s: a request on a former connection", when)
		require.Contains(w.t, w.e.shards, c.shard, when)
		note(c)
	}
	for _, s := range w.e.shards {
		for _, c := range s.queue {
			if c.internal == nil {
				continue
			}
			require.Equal(w.t, s, c.shard, "%s: a request in another shard's queue", when)
			require.NotNil(w.t, s.conn, "%s: a request that waits for a connection", when)
			note(c)
		}
	}
	want := 0
	if w.e.asking {
		want++
	}
	if w.e.guided {
		want++
	}
	require.Equal(w.t, want, maps, "%s: requests for the map", when)
	for _, s := range w.e.shards {
		want := 0
		if s.asked {
			want = 1
		}
		require.Equal(w.t, want, requests[kind{protocol.OpRenew, s}], "%s: renewals of shard %d", when, s.id)
		open := 0
		for _, x := range s.extents {
			if s.conn != nil && !x.known.Load() {
				open++
			}
		}
		require.GreaterOrEqual(w.t, requests[kind{protocol.OpExtent, s}], open, "%s: keys of extents of shard %d", when, s.id)
	}
}
