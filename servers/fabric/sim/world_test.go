package sim

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

// pair is two nodes, a connected to b, with operations under way.
type pair struct {
	w      *World
	a, b   *Node
	aq, bq *Queue
	ae, be fabric.Endpoint
	shared fabric.Region // of b
	local  fabric.Region // of a
}

func newPair(t *testing.T, seed uint64, f Faults) *pair {
	t.Helper()
	w := New(seed, f)
	t.Cleanup(func() { assert.NoError(t, w.Close()) })
	p := &pair{w: w, a: w.NewNode("a"), b: w.NewNode("b")}
	queue := func(n *Node) *Queue {
		q, err := n.Domain().NewQueue(256)
		require.NoError(t, err)
		return q.(*Queue)
	}
	p.aq, p.bq = queue(p.a), queue(p.b)
	var err error
	p.shared, err = p.b.Domain().Alloc(8192, fabric.RemoteRead|fabric.RemoteWrite)
	require.NoError(t, err)
	p.local, err = p.a.Domain().Alloc(8192, 0)
	require.NoError(t, err)
	l, err := p.b.Domain().Listen("b")
	require.NoError(t, err)
	l.(*Listener).Handle(func(in *Incoming) {
		e, err := in.Accept(fabric.EndpointOptions{Send: p.bq, Recv: p.bq}, in.Hello())
		assert.NoError(t, err)
		p.be = e
	})
	p.a.Domain().DialFunc("b", []byte("hello"), fabric.EndpointOptions{Send: p.aq, Recv: p.aq}, func(e fabric.Endpoint, answer []byte, err error) {
		if assert.NoError(t, err) {
			assert.Equal(t, "hello", string(answer))
			p.ae = e
		}
	})
	require.True(t, w.RunUntil(time.Second, func() bool { return p.ae != nil }))
	return p
}

func (p *pair) post(t *testing.T, w ...fabric.WR) {
	t.Helper()
	n, err := p.ae.Post(w)
	require.NoError(t, err)
	require.Equal(t, len(w), n)
}

// write is a signalled Write of n bytes at the beginning of the shared region.
func (p *pair) write(id uint64, n int, f fabric.Flags) fabric.WR {
	return fabric.WR{ID: id, Op: fabric.Write, Flags: fabric.Signal | f, Local: p.local, LLen: uint64(n), Remote: p.shared.Key()}
}

// outcome returns the next completion, and fails after the given time.
func (p *pair) outcome(t *testing.T, limit time.Duration) fabric.WC {
	t.Helper()
	var wc [1]fabric.WC
	require.True(t, p.w.RunUntil(limit, func() bool { return p.aq.Poll(wc[:]) == 1 }))
	return wc[0]
}

// trace runs a client that writes and a server that answers what it finds by polling, and returns a text of all that
// happens.
func trace(t *testing.T, seed uint64) string {
	p := newPair(t, seed, Faults{LoseOne: 5000})
	var b strings.Builder
	var next uint64
	p.a.Go("client", func(now time.Time) (bool, time.Time) {
		var wc [8]fabric.WC
		n := p.aq.Poll(wc[:])
		for _, c := range wc[:n] {
			fmt.Fprintln(&b, now, c.ID, c.Err)
		}
		if next == 0 || n > 0 {
			next++
			words.Store(p.local.Bytes(), 0, next)
			p.ae.Post([]fabric.WR{p.write(next, 256, fabric.Notify)})
			return true, time.Time{}
		}
		return false, time.Time{}
	}, p.aq)
	p.b.Go("server", func(now time.Time) (bool, time.Time) {
		p.bq.TakeNotified()
		fmt.Fprintln(&b, now, words.Load(p.shared.Bytes(), 0))
		return false, now.Add(time.Millisecond)
	}, p.bq)
	p.w.Run(100 * time.Millisecond)
	return b.String()
}

func TestSameSeedSameRun(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(20) {
		one, two := trace(t, seed), trace(t, seed)
		require.Equal(t, one, two, "seed %d", seed)
		require.Greater(t, strings.Count(one, "\n"), 50, "seed %d", seed)
		h := fnv.New64()
		h.Write([]byte(one))
		seen[fmt.Sprint(h.Sum64())] = true
	}
	assert.Len(t, seen, 20, "different seeds are different runs")
}

// TestTornWrites: between two steps, a Write of several words may be placed in part, with its words in any order.
func TestTornWrites(t *testing.T) {
	p := newPair(t, 1, Faults{})
	states := map[string]bool{}
	p.b.Go("watcher", func(now time.Time) (bool, time.Time) {
		seen := ""
		for i := range 4 {
			seen += fmt.Sprint(words.Load(p.shared.Bytes(), 8*i) & 1)
		}
		states[seen] = true
		return true, time.Time{}
	})
	for i := range uint64(300) {
		for k := range 4 {
			words.Store(p.local.Bytes(), 8*k, i)
		}
		p.post(t, p.write(i, 32, 0))
		require.NoError(t, p.outcome(t, time.Second).Err)
	}
	assert.Len(t, states, 16, "all subsets of four words are seen: %v", states)
}

// TestNotifyAfterWrites: a node that is notified sees the Write, and the Writes before it.
func TestNotifyAfterWrites(t *testing.T) {
	p := newPair(t, 1, Faults{})
	notified := uint64(0)
	p.b.Go("notified", func(time.Time) (bool, time.Time) {
		if p.bq.TakeNotified() {
			notified++
			for i := range 64 {
				require.Equal(t, notified, words.Load(p.shared.Bytes(), 8*i))
			}
		}
		return false, time.Time{}
	}, p.bq)
	for i := range uint64(300) {
		for k := range 64 {
			words.Store(p.local.Bytes(), 8*k, i+1)
		}
		first := p.write(i, 256, 0)
		first.Flags = 0
		second := p.write(i, 256, fabric.Notify)
		second.LOff, second.ROff = 256, 256
		p.post(t, first, second)
		require.NoError(t, p.outcome(t, time.Second).Err)
		require.True(t, p.w.RunUntil(time.Second, func() bool { return notified == i+1 }))
	}
}

// TestClocks: the rates of clocks differ by less than 1/64. The clock of a stopped node continues. The clock of a
// suspended node stands still, and its wall clock shows that afterwards.
func TestClocks(t *testing.T) {
	w := New(7, Faults{})
	var nodes []*Node
	for i := range 20 {
		nodes = append(nodes, w.NewNode(fmt.Sprint(i)))
	}
	began := make([]time.Time, len(nodes))
	for i, n := range nodes {
		began[i] = n.Now()
	}
	nodes[0].Stop()
	nodes[1].Suspend()
	w.Run(64 * time.Second)
	least, most := time.Hour, time.Duration(0)
	for i, n := range nodes {
		passed := n.Now().Sub(began[i])
		if i == 1 {
			assert.Zero(t, passed)
			continue
		}
		least, most = min(least, passed), max(most, passed)
	}
	assert.Less(t, most-least, time.Second+20*time.Millisecond)
	assert.Greater(t, most-least, 200*time.Millisecond)
	nodes[1].Resume()
	assert.Zero(t, nodes[1].Now().Sub(began[1]))
	assert.InDelta(t, 64, nodes[1].Wall().Sub(nodes[1].Now()).Seconds(), 1)
	nodes[2].JumpWall(time.Minute)
	assert.Equal(t, time.Minute, nodes[2].Wall().Sub(nodes[2].Now()))
}

// TestThreads: a thread that had work is called again soon; one that had none is called at the time that it gave, or
// when it is woken. No thread runs while its node is stopped.
func TestThreads(t *testing.T) {
	w := New(3, Faults{StallOne: -1})
	n := w.NewNode("n")
	var called []time.Duration
	worked, next := true, time.Time{}
	thread := n.Go("t", func(now time.Time) (bool, time.Time) {
		called = append(called, w.Now())
		return worked, next
	})
	w.Run(time.Millisecond)
	assert.Greater(t, len(called), 400)
	worked = false
	w.Run(time.Millisecond)
	called = nil
	w.Run(time.Second)
	assert.Empty(t, called)
	thread.Wake()
	w.Run(time.Second)
	assert.Len(t, called, 1)
	next = n.Now().Add(time.Second)
	thread.Wake()
	w.Run(500 * time.Millisecond)
	assert.Len(t, called, 2)
	n.Stop()
	next = time.Time{}
	w.Run(10 * time.Second)
	assert.Len(t, called, 2, "a stopped node's thread runs")
	n.Resume()
	w.Run(time.Millisecond)
	assert.Len(t, called, 3)
	n.Kill()
	thread.Wake()
	w.Run(time.Second)
	assert.Len(t, called, 3, "a dead node's thread runs")
}

// TestStoppedNodeIsReadable: memory of a stopped node can be read and written; memory of a dead node for at most
// fabric.Timeout.
func TestStoppedNodeIsReadable(t *testing.T) {
	late := 0
	for seed := range uint64(50) {
		p := newPair(t, seed, Faults{})
		p.b.Stop()
		p.w.Run(5 * time.Second)
		p.post(t, p.write(1, 64, 0))
		require.NoError(t, p.outcome(t, time.Second).Err)
		p.b.Kill()
		died := p.w.Now()
		for {
			if _, err := p.ae.Post([]fabric.WR{p.write(2, 64, 0)}); err != nil {
				break
			}
			if p.outcome(t, 2*time.Second).Err == nil {
				late++
			}
		}
		require.ErrorIs(t, p.ae.Err(), fabric.ErrPeer)
		require.LessOrEqual(t, p.w.Now()-died, fabric.Timeout+time.Millisecond)
	}
	assert.Greater(t, late, 50, "no Write reaches the memory of a dead node")
}

// TestCut: an operation needs both directions of the network. If only the way back is cut, it is executed, and reported
// as failed.
func TestCut(t *testing.T) {
	for seed := range uint64(20) {
		for _, back := range []bool{false, true} {
			p := newPair(t, seed, Faults{})
			if back {
				p.w.Cut(p.b, p.a)
			} else {
				p.w.Cut(p.a, p.b)
			}
			words.Store(p.local.Bytes(), 0, 42)
			p.post(t, p.write(1, 8, 0))
			require.ErrorIs(t, p.outcome(t, 2*time.Second).Err, fabric.ErrTimeout)
			require.ErrorIs(t, p.ae.Err(), fabric.ErrTimeout)
			require.Equal(t, back, words.Load(p.shared.Bytes(), 0) == 42)
		}
		p := newPair(t, seed, Faults{})
		p.w.Cut(p.a, p.b)
		p.w.After(300*time.Millisecond, func() { p.w.Heal(p.a, p.b) })
		p.post(t, p.write(1, 8, 0))
		require.NoError(t, p.outcome(t, 2*time.Second).Err, "a short cut is a delay")
	}
}

// TestLateWords: words of a Write may arrive after the Write has failed, even if the region has been fenced.
func TestLateWords(t *testing.T) {
	late := 0
	for seed := range uint64(200) {
		p := newPair(t, seed, Faults{})
		for k := range 64 {
			words.Store(p.local.Bytes(), 8*k, 1)
		}
		p.post(t, p.write(1, 512, 0))
		p.w.Run(p.w.Delay())
		require.NoError(t, p.shared.Fence())
		sum := func() (n uint64) {
			for k := range 64 {
				n += words.Load(p.shared.Bytes(), 8*k)
			}
			return n
		}
		before := sum()
		succeeded := p.outcome(t, 2*time.Second).Err == nil
		p.w.Run(3 * time.Second)
		if succeeded {
			require.EqualValues(t, 64, before, "what succeeds was there when Fence returned")
		} else if sum() > before {
			late++
		}
	}
	assert.Greater(t, late, 20)
}

// TestFrozenWriter: words of a Write may arrive only when its stopped initiator continues.
func TestFrozenWriter(t *testing.T) {
	frozen := 0
	for seed := range uint64(100) {
		p := newPair(t, seed, Faults{})
		for k := range 64 {
			words.Store(p.local.Bytes(), 8*k, 1)
		}
		p.post(t, p.write(1, 512, 0))
		p.a.Stop()
		p.w.Run(10 * time.Second)
		if words.Load(p.shared.Bytes(), 0) == 0 {
			frozen++
		}
		p.a.Resume()
		p.outcome(t, 3*time.Second)
	}
	assert.Greater(t, frozen, 20)
	assert.Less(t, frozen, 80)
}

// TestBlockingInAStep: a step function that blocks would wait for itself, so it panics.
func TestBlockingInAStep(t *testing.T) {
	p := newPair(t, 1, Faults{})
	p.a.Go("blocks", func(time.Time) (bool, time.Time) {
		assert.Panics(t, func() { p.aq.Wait(t.Context(), 0) })
		return false, time.Time{}
	})
	p.w.Run(time.Millisecond)
}
