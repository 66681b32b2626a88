package machine

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/shard"
	"flashdbm/servers/wire"
)

// asleep returns the shard of a new node. Its thread sleeps, and does not wake up whatever happens; the shard has
// served nothing yet.
func asleep(t *testing.T, o Options) (*Node, *runner) {
	n := open(t, mem.NewNetwork(), o)
	r := n.runner(0)
	r.stopped.Store(true)
	r.groups.Wake()
	r.done.Wait()
	r.wakes = time.Now().Add(-time.Hour)
	r.own.Unlock()
	t.Cleanup(r.own.Lock) // held, as the thread leaves it
	woken(r)              // takes an earlier wake-up
	return n, r
}

// woken reports whether the thread was woken since the last call of woken.
func woken(r *runner) bool {
	return r.groups.Sleep(20 * time.Millisecond)
}

// join gives the shard the line, as the shard's thread does.
func (r *runner) join(l wire.Line) {
	r.own.Lock()
	defer r.own.Unlock()
	r.lines = append(r.lines, l)
	r.shard.Attach(l, shard.Greeting{Once: true})
}

// A host is a node whose only shard sleeps.
type host struct {
	*Node
	r *runner
}

func (h host) Join(_ uint32, l wire.Line) (func(), error) {
	h.r.join(l)
	return h.r.call, nil
}

func localOf(t *testing.T, n *Node, r *runner) *hydra.Client {
	c, err := hydra.Local(host{n, r}, &hydra.Options{Timeout: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// over waits until a new shard serves.
func (r *runner) over(t *testing.T) {
	require.Eventually(t, func() bool {
		r.own.Lock()
		defer r.own.Unlock()
		r.sweep()
		return r.shard.IdleFor() == time.Second
	}, time.Minute, 10*time.Millisecond)
}

// TestCallerServes: a caller needs no thread, and does not wake a thread that has nothing to do.
func TestCallerServes(t *testing.T) {
	n, r := asleep(t, Options{Durability: shard.Memory})
	c := localOf(t, n, r)
	r.over(t)
	_, err := c.Put(t.Context(), []byte("key"), []byte("value"))
	require.NoError(t, err)
	v, err := c.Get(t.Context(), []byte("key"))
	require.NoError(t, err)
	require.Equal(t, "value", string(v))
	require.False(t, woken(r))
}

// TestCallerWakesThread: a caller leaves the rest of the work to the thread, and wakes it.
func TestCallerWakesThread(t *testing.T) {
	t.Run("what time brings", func(t *testing.T) {
		n, r := asleep(t, Options{Durability: shard.Memory})
		c := localOf(t, n, r)
		r.over(t)
		r.wakes = time.Now().Add(500 * time.Millisecond)
		_, err := c.Put(t.Context(), []byte("key"), []byte("value"))
		require.NoError(t, err)
		require.False(t, woken(r), "it wakes up in time by itself")
		r.wakes = time.Now().Add(500 * time.Millisecond)
		_, err = c.Put(t.Context(), []byte("key"), []byte("another"), hydra.In(time.Hour))
		require.NoError(t, err)
		require.True(t, woken(r), "there is an item that expires")
	})
	t.Run("what the shard does not take yet", func(t *testing.T) {
		_, r := asleep(t, Options{Durability: shard.Memory})
		l := &aLine{}
		r.join(l)
		l.left.Store(1)
		r.call()
		require.Zero(t, l.served.Load(), "the shard serves nothing before its predecessor's tenure is over")
		require.True(t, woken(r))
	})
	t.Run("more than its part", func(t *testing.T) {
		_, r := asleep(t, Options{Durability: shard.Memory})
		l := &aLine{}
		r.join(l)
		r.over(t)
		l.left.Store(1 << 30)
		r.call()
		require.Positive(t, l.served.Load())
		require.Less(t, l.served.Load(), int64(100*borrowSweeps))
		require.True(t, woken(r))
	})
}

// aLine has requests for a key that does not exist, and notices if two goroutines serve it at the same time.
type aLine struct {
	left, served atomic.Int64
	busy, twice  atomic.Bool
	closed       atomic.Bool
}

func (l *aLine) enter() {
	if !l.busy.CompareAndSwap(false, true) {
		l.twice.Store(true)
	}
	runtime.Gosched()
}

func (l *aLine) Receive() (m wire.Message, ok bool) {
	l.enter()
	defer l.busy.Store(false)
	if l.left.Load() == 0 {
		return m, false
	}
	l.left.Add(-1)
	return wire.Message{Header: wire.Header{Op: uint8(protocol.OpGet)}, Body: []byte("none")}, true
}

func (l *aLine) Begin(max int) ([]byte, error) { return make([]byte, 0, max), nil }
func (l *aLine) End(*wire.Header, []byte)      { l.served.Add(1) }
func (l *aLine) Flush()                        {}
func (l *aLine) Waiting() bool                 { return l.left.Load() > 0 }
func (l *aLine) Close() error                  { l.closed.Store(true); return nil }
func (l *aLine) Err() error {
	if l.closed.Load() {
		return wire.ErrClosed
	}
	return nil
}

// TestSleepLooksForCalls leaves a call with a thread that has decided to sleep.
func TestSleepLooksForCalls(t *testing.T) {
	_, r := asleep(t, Options{Durability: shard.Memory})
	r.own.Lock()
	defer r.own.Unlock()
	r.sweep()
	r.called.Store(true)
	woke := make(chan struct{})
	go func() {
		defer close(woke)
		r.sleep(time.Hour)
	}()
	select {
	case <-woke:
	case <-time.After(10 * time.Second):
		r.groups.Wake()
		<-woke
		t.Fatal("it sleeps")
	}
}

// TestNoCallIsLost has two callers call at the same time, again and again, with a thread that sleeps until it is
// woken: neither caller leaves the other's request where nobody looks for it.
func TestNoCallIsLost(t *testing.T) {
	n, r := asleep(t, Options{Durability: shard.Memory})
	c := localOf(t, n, r)
	r.over(t)
	ctx, cancel := context.WithCancel(context.Background())
	var thread sync.WaitGroup
	thread.Go(func() {
		for r.groups.Sleep(time.Hour); ctx.Err() == nil; r.groups.Sleep(time.Hour) {
			for again := true; again; again = r.called.Load() {
				r.own.Lock()
				for r.sweep() || !r.arm() {
				}
				r.own.Unlock()
			}
		}
	})
	defer thread.Wait()
	defer r.groups.Wake()
	defer cancel()
	rounds := 50_000
	if testing.Short() {
		rounds = 10_000
	}
	for i := range rounds {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if _, err := c.Get(ctx, []byte("key")); err != hydra.ErrNotFound {
					t.Error(err)
				}
			})
		}
		if both.Wait(); t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
}

// TestOneServesAtATime calls from several goroutines while the thread is woken all the time.
func TestOneServesAtATime(t *testing.T) {
	n := open(t, mem.NewNetwork(), Options{Durability: shard.Memory})
	l := &aLine{}
	call, err := n.Join(0, l)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		l.left.Store(1)
		call()
		return l.served.Load() > 0
	}, time.Minute, time.Millisecond)
	var all sync.WaitGroup
	end := time.Now().Add(500 * time.Millisecond)
	for range 3 {
		all.Go(func() {
			for time.Now().Before(end) {
				l.left.Add(1)
				call()
				n.runner(0).groups.Wake()
				time.Sleep(50 * time.Microsecond)
			}
		})
	}
	all.Wait()
	require.False(t, l.twice.Load(), "the shard was served by two at the same time")
	require.Eventually(t, func() bool { return l.left.Load() == 0 }, time.Minute, time.Millisecond)
	require.NoError(t, n.Close())
	require.True(t, l.closed.Load())
	_, err = n.Join(0, &aLine{})
	require.ErrorIs(t, err, errClosed)
	_, err = n.Join(1, &aLine{})
	require.ErrorIs(t, err, errNoSuchShard)
}

// TestLineOnItsWay closes a node before its thread has taken the line of a new client.
func TestLineOnItsWay(t *testing.T) {
	n, r := asleep(t, Options{Durability: shard.Memory})
	l := &aLine{}
	_, err := n.Join(0, l)
	require.NoError(t, err)
	r.own.Lock()
	require.NoError(t, n.Close())
	r.own.Unlock()
	require.True(t, l.closed.Load())
}
