package machine

import (
	"context"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/hydra"
	"flashdbm/servers/membership"
	"flashdbm/servers/replica"
	"flashdbm/servers/shard"
)

// memoryDir returns a directory whose files are in memory, on systems that have one. On a disk that takes seconds for
// a sync clients wait whatever the nodes do.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "machine")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// counters are goroutines that count, each in a key of its own, and read what they have counted.
type counters struct {
	t       *testing.T
	done    sync.WaitGroup
	stop    atomic.Bool
	mu      sync.Mutex
	counted int64
	longest time.Duration
}

func count(t *testing.T, x *hydra.Client) *counters {
	c := &counters{t: t}
	for i := range 4 {
		key := []byte("counter-" + strconv.Itoa(i))
		c.done.Go(func() {
			for want := int64(1); !c.stop.Load(); want++ {
				began := time.Now()
				sum, err := x.Add(context.Background(), key, 1)
				took := time.Since(began)
				if !assert.NoError(t, err) || !assert.Equal(t, want, sum) {
					return
				}
				got, err := x.Get(context.Background(), key)
				if !assert.NoError(t, err) || !assert.Equal(t, strconv.FormatInt(want, 10), string(got)) {
					return
				}
				c.mu.Lock()
				c.counted, c.longest = c.counted+1, max(c.longest, took)
				c.mu.Unlock()
			}
		})
	}
	return c
}

// waited returns the longest time that a write has taken since the last call of waited, and the number of writes in
// that time.
func (c *counters) waited() (longest time.Duration, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest, n = c.longest, c.counted
	c.longest, c.counted = 0, 0
	return longest, n
}

func (c *counters) end() {
	c.stop.Store(true)
	c.done.Wait()
}

// primaryOf returns the node that serves shard 0 in the term of the newest record that a node knows, "" if no node
// does, and that record.
func primaryOf(nodes map[string]*Node) (primary string, rec replica.Record) {
	for _, n := range nodes {
		if r := n.members.Record(0); r.Revision > rec.Revision {
			rec = r
		}
	}
	for name, n := range nodes {
		if n.runner(0).copy.Serves() == rec.Term {
			primary = name
		}
	}
	return primary, rec
}

// TestDrain: a node that serves is drained, and a node that is about to end leaves, while clients write. Nothing is
// lost. The reigns are handed over, so no client waits as long as a failover takes.
func TestDrain(t *testing.T) {
	for _, d := range []shard.Durability{shard.Memory, shard.Async, shard.Sync} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			c := newTestCluster(t, d)
			nodes := map[string]*Node{}
			for _, name := range []string{"a", "b", "c", "d"} {
				c.dirs[name] = memoryDir(t)
				nodes[name] = c.start(name)
			}
			level := func() bool {
				p, rec := primaryOf(nodes)
				return p != "" && len(rec.Set) == 3
			}
			require.Eventually(t, level, time.Minute, 10*time.Millisecond)
			work := count(t, c.client("a", "b", "c", "d"))
			time.Sleep(100 * time.Millisecond)
			first, _ := primaryOf(nodes)
			work.waited()

			require.NoError(t, membership.Drain(t.Context(), c.mem, first, true))
			require.NoError(t, membership.Drain(t.Context(), c.mem, first, true), "a second time changes nothing")
			require.Eventually(t, func() bool {
				at, err := membership.LookAtDrained(t.Context(), c.mem, first)
				return err == nil && len(at.Shards) == 0 && level()
			}, time.Minute, 10*time.Millisecond)
			longest, n := work.waited()
			t.Logf("%d writes while the primary was drained; the longest one took %v", n, longest)
			assert.Positive(t, n)
			second, rec := primaryOf(nodes)
			assert.NotEqual(t, first, second)
			assert.True(t, rec.Handed)

			require.NoError(t, membership.Drain(t.Context(), c.mem, first, false))
			before := nodes[second].members.Self()
			nodes[second].Leave(t.Context())
			require.Eventually(t, func() bool {
				third, rec := primaryOf(nodes)
				return third != second && third != "" && !rec.Has(before) && rec.Handed
			}, time.Minute, time.Millisecond)
			require.NoError(t, nodes[second].Close())
			longest, n = work.waited()
			t.Logf("%d writes while the primary has left; the longest one took %v", n, longest)
			nodes[second].o.Listen[0].Domain.Close()
			delete(nodes, second)
			require.Eventually(t, level, time.Minute, 10*time.Millisecond)
			work.end()
			for _, n := range nodes {
				assert.NoError(t, n.Err())
				assert.NoError(t, n.Close())
			}
		})
	}
}

// TestClientFindsWhoCameLater: a client knows one node, which serves nothing and knew no other node when it was
// asked. The client finds the node that came later.
func TestClientFindsWhoCameLater(t *testing.T) {
	c := newTestCluster(t, shard.Memory)
	require.NoError(t, membership.Drain(t.Context(), c.mem, "a", true))
	a := c.start("a")
	dialled := make(chan error, 1)
	var x *hydra.Client
	go func() {
		var err error
		x, err = hydra.Dial(context.Background(), []string{"mem:a"}, &hydra.Options{Fabrics: map[string]fabric.Domain{"mem": c.net.Open()}, Timeout: 20 * time.Second})
		dialled <- err
	}()
	time.Sleep(200 * time.Millisecond)
	assert.Empty(t, dialled, "nobody serves yet")
	b := c.start("b")
	require.NoError(t, <-dialled)
	_, err := x.Get(t.Context(), []byte("k"))
	require.ErrorIs(t, err, hydra.ErrNotFound)
	require.NoError(t, x.Close())
	require.NoError(t, b.Close())
	require.NoError(t, a.Close())
}

// TestAllLeave: nodes that end at the same time do not wait for each other.
func TestAllLeave(t *testing.T) {
	c := newTestCluster(t, shard.Memory)
	nodes := map[string]*Node{"a": c.start("a"), "b": c.start("b"), "c": c.start("c")}
	require.Eventually(t, func() bool { p, rec := primaryOf(nodes); return p != "" && len(rec.Set) == 3 }, time.Minute, 10*time.Millisecond)
	began := time.Now()
	var done sync.WaitGroup
	for _, n := range nodes {
		done.Go(func() { n.Leave(t.Context()) })
	}
	done.Wait()
	require.Less(t, time.Since(began), 7*time.Second, "they wait until their time is over")
	for _, n := range nodes {
		require.NoError(t, n.Close())
	}
}
