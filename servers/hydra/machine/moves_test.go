package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/hydra"
	"flashdbm/servers/membership"
	"flashdbm/servers/shard"
)

// awaitMoves waits until nothing moves, and returns which shards share the keys.
func (c *testCluster) awaitMoves() (shards []uint32) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		a, moves, err := membership.LookAtCircle(context.Background(), c.mem)
		shards = a.Shards
		return err == nil && len(moves) == 0
	}, time.Minute, 5*time.Millisecond)
	return shards
}

// adders are goroutines that count, each on keys of its own, and read what they have counted.
type adders struct {
	t    *testing.T
	x    *hydra.Client
	stop atomic.Bool
	done sync.WaitGroup
	mu   sync.Mutex
	sums map[string]int64
}

func (c *adders) start(n int) {
	c.sums = map[string]int64{}
	for i := range n {
		c.done.Go(func() {
			for round := 0; !c.stop.Load(); round++ {
				key := fmt.Sprintf("counter-%d-%d", i, round%17)
				sum, err := c.x.Add(context.Background(), []byte(key), 1)
				if !assert.NoError(c.t, err, key) {
					return
				}
				c.mu.Lock()
				c.sums[key]++
				want := c.sums[key]
				c.mu.Unlock()
				if !assert.Equal(c.t, want, sum, "%s: lost, or twice", key) {
					return
				}
				got, err := c.x.Get(context.Background(), []byte(key))
				if !assert.NoError(c.t, err) || !assert.Equal(c.t, strconv.FormatInt(sum, 10), string(got), "%s: stale", key) {
					return
				}
			}
		})
	}
}

func (c *adders) end() {
	c.stop.Store(true)
	c.done.Wait()
	for key, sum := range c.sums {
		got, err := c.x.Get(context.Background(), []byte(key))
		require.NoError(c.t, err)
		assert.Equal(c.t, strconv.FormatInt(sum, 10), string(got))
	}
}

// TestShardsComeAndGo adds and removes shards while clients count. No operation fails, a scan finds every record
// once, and the old owners drop what they had. Shards without keys are closed, and their files are deleted.
func TestShardsComeAndGo(t *testing.T) {
	for _, d := range []shard.Durability{shard.Memory, shard.Async, shard.Sync} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			if testing.Short() && d != shard.Async {
				t.Skip("short")
			}
			t.Parallel()
			c := newTestCluster(t, d)
			c.o.Shards, c.keep = 2, 300*time.Millisecond
			nodes := []*Node{c.start("a"), c.start("b")}
			x := c.client("a", "b")
			const records = 500
			for i := range records {
				_, err := x.Put(t.Context(), []byte("record-"+strconv.Itoa(i)), fmt.Appendf(nil, "value-%d", i))
				require.NoError(t, err)
			}
			n := &adders{t: t, x: x}
			n.start(3)
			next, err := membership.AddShards(t.Context(), c.mem, 2)
			require.NoError(t, err)
			assert.Equal(t, []uint32{0, 1, 2, 3}, next)
			_, err = membership.AddShards(t.Context(), c.mem, 1)
			assert.ErrorIs(t, err, membership.ErrMoving)
			assert.Equal(t, next, c.awaitMoves())
			scan := func() {
				t.Helper()
				found := map[string]int{}
				for e, err := range x.Scan(t.Context(), nil) {
					require.NoError(t, err)
					found[string(e.Key)]++
				}
				for i := range records {
					require.Equal(t, 1, found["record-"+strconv.Itoa(i)], "record %d", i)
				}
			}
			scan()
			held := func() (held []int) {
				held = make([]int, 4)
				for _, n := range nodes {
					for _, s := range n.Status().Shards {
						if s.Role == "primary" {
							held[s.Shard] = s.Records
						}
					}
				}
				return held
			}
			keys := func() int { n.mu.Lock(); defer n.mu.Unlock(); return records + len(n.sums) }
			require.Eventually(t, func() bool {
				h := held()
				return h[2] > 0 && h[3] > 0 && h[0]+h[1]+h[2]+h[3] == keys()
			}, 20*time.Second, 20*time.Millisecond, "%v of %d", held, keys)
			_, err = membership.DrainShards(t.Context(), c.mem, 7)
			assert.ErrorContains(t, err, "no shard 7")
			_, err = membership.DrainShards(t.Context(), c.mem, 0, 1, 2, 3)
			assert.Error(t, err)
			_, err = membership.DrainShards(t.Context(), c.mem, 1, 2)
			require.NoError(t, err)
			assert.Equal(t, []uint32{0, 3}, c.awaitMoves())
			scan()
			require.Eventually(t, func() bool {
				h := held()
				return len(nodes[0].runners()) == 2 && len(nodes[1].runners()) == 2 && h[0]+h[3] == keys()
			}, 20*time.Second, 20*time.Millisecond, "shards without keys are closed")
			n.end()
			assert.Zero(t, nodes[0].Err())
			for _, x := range nodes {
				require.NoError(t, x.Close())
			}
			if d == shard.Memory {
				return
			}
			for _, dir := range c.dirs {
				files, _ := filepath.Glob(filepath.Join(dir, "shard-*"))
				assert.Equal(t, []string{filepath.Join(dir, "shard-0.fdbm"), filepath.Join(dir, "shard-3.fdbm")}, files)
				os.WriteFile(filepath.Join(dir, "shard-2.fdbm"), []byte("of a shard that was retired while the node was away"), 0o600)
			}
			c.start("a") // with the shards of that moment
			c.start("b")
			y := c.client("a", "b")
			for i := range records {
				got, err := y.Get(t.Context(), []byte("record-"+strconv.Itoa(i)))
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("value-%d", i), string(got))
			}
			assert.NoFileExists(t, filepath.Join(c.dirs["a"], "shard-2.fdbm"))
			id, err := readIdentity(c.dirs["a"], 2)
			require.NoError(t, err)
			assert.Equal(t, []uint32{0, 3}, id.circle().Shards, "a backup of the directory begins with these")
		})
	}
}
