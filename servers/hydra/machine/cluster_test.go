package machine

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/cluster"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra"
	"flashdbm/servers/membership"
	"flashdbm/servers/shard"
)

// A testCluster has several nodes in one process, which reach each other over package mem.
type testCluster struct {
	t    *testing.T
	net  *mem.Network
	mem  *cluster.Memory
	o    Options
	dirs map[string]string
	keep time.Duration
}

func newTestCluster(t *testing.T, d shard.Durability) *testCluster {
	c := &testCluster{t: t, net: mem.NewNetwork(), mem: cluster.NewMemory(), o: Options{Durability: d, Extent: 1 << 20}, dirs: map[string]string{}}
	t.Cleanup(func() { c.mem.Close() })
	return c
}

// start starts a node, for the first time or again.
func (c *testCluster) start(name string) *Node {
	o := c.o
	if o.Durability != shard.Memory {
		if c.dirs[name] == "" {
			c.dirs[name] = c.t.TempDir()
		}
		o.Dir = c.dirs[name]
	}
	o.Listen = []Listen{{Domain: c.net.Open(), Addr: name, Public: "mem:" + name}}
	o.Cluster = &ClusterOptions{Cluster: c.mem, Node: name, LogBytes: 1 << 20}
	o.keep = c.keep
	n, err := Open(o)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { n.Close() })
	return n
}

func (c *testCluster) client(names ...string) *hydra.Client {
	var addrs []string
	for _, n := range names {
		addrs = append(addrs, "mem:"+n)
	}
	x, err := hydra.Dial(context.Background(), addrs, &hydra.Options{Fabrics: map[string]fabric.Domain{"mem": c.net.Open()}, Timeout: 20 * time.Second})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { x.Close() })
	return x
}

// inSync returns the node that serves shard 0, and how many members its set has.
func inSync(nodes ...*Node) (primary *Node, members int) {
	for _, n := range nodes {
		if n.runner(0).copy.Serves() != 0 {
			rec := n.members.Record(0)
			return n, len(rec.Set)
		}
	}
	return nil, 0
}

// TestCluster fails a primary over while clients write, takes it in again, and finds everything that was
// acknowledged, once.
func TestCluster(t *testing.T) {
	for _, d := range []shard.Durability{shard.Memory, shard.Async, shard.Sync} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			t.Parallel()
			c := newTestCluster(t, d)
			nodes := map[string]*Node{}
			for _, name := range []string{"a", "b", "c"} {
				nodes[name] = c.start(name)
			}
			all := func() []*Node { return []*Node{nodes["a"], nodes["b"], nodes["c"]} }
			level := func() bool { _, n := inSync(all()...); return n == 3 }
			require.Eventually(t, level, time.Minute, 10*time.Millisecond)
			x := c.client("a", "b", "c")
			var stop atomic.Bool
			var done sync.WaitGroup
			var sums [4]int64
			for i := range sums {
				done.Go(func() {
					for !stop.Load() {
						sum, err := x.Add(context.Background(), []byte("counter-"+strconv.Itoa(i)), 1)
						if !assert.NoError(t, err) {
							return
						}
						if !assert.Equal(t, sums[i]+1, sum, "a counter that one goroutine counts") {
							return
						}
						sums[i] = sum
						got, err := x.Get(context.Background(), []byte("counter-"+strconv.Itoa(i)))
						if !assert.NoError(t, err) || !assert.Equal(t, strconv.FormatInt(sum, 10), string(got)) {
							return
						}
					}
				})
			}
			for range 2 {
				time.Sleep(50 * time.Millisecond)
				p, _ := inSync(all()...)
				require.NotNil(t, p)
				name := p.o.Cluster.Node
				require.NoError(t, p.Close())
				p.o.Listen[0].Domain.Close()
				rest := []*Node{}
				for other, n := range nodes {
					if other != name {
						rest = append(rest, n)
					}
				}
				require.Eventually(t, func() bool { q, _ := inSync(rest...); return q != nil }, time.Minute, 10*time.Millisecond)
				nodes[name] = c.start(name)
				require.Eventually(t, level, time.Minute, 10*time.Millisecond)
			}
			stop.Store(true)
			done.Wait()
			for i, want := range sums {
				got, err := x.Get(context.Background(), []byte("counter-"+strconv.Itoa(i)))
				require.NoError(t, err)
				assert.Equal(t, strconv.FormatInt(want, 10), string(got))
				assert.Positive(t, want)
			}
			for _, n := range nodes {
				assert.NoError(t, n.Err())
				assert.NoError(t, n.Close())
			}
		})
	}
}

// TestClusterIsStartedAgain stops all nodes in order and starts them: the node whose file has the most serves what
// the files have.
func TestClusterIsStartedAgain(t *testing.T) {
	for _, d := range []shard.Durability{shard.Async, shard.Sync} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			t.Parallel()
			c := newTestCluster(t, d)
			level := func(nodes ...*Node) {
				require.Eventually(t, func() bool { _, n := inSync(nodes...); return n == len(nodes) }, time.Minute, 10*time.Millisecond)
			}
			a, b := c.start("a"), c.start("b")
			level(a, b)
			_, err := c.client("a", "b").Put(t.Context(), []byte("key"), []byte("value"))
			require.NoError(t, err)
			closeNode := func(n *Node) {
				require.NoError(t, n.Close())
				n.o.Listen[0].Domain.Close()
			}
			closeNode(a)
			closeNode(b)
			a, b = c.start("a"), c.start("b")
			level(a, b)
			got, err := c.client("a", "b").Get(t.Context(), []byte("key"))
			require.NoError(t, err)
			assert.Equal(t, "value", string(got))
			closeNode(a)
			closeNode(b)
		})
	}
}

// TestStopWithoutSuccessor: a leader has told a secondary to stop, and ends before it has made the next record.
// Another leader makes that record. Otherwise nothing would be committed any more: the secondary follows no primary
// in this term, and still answers.
func TestStopWithoutSuccessor(t *testing.T) {
	c := newTestCluster(t, shard.Memory)
	nodes := map[string]*Node{"a": c.start("a"), "b": c.start("b"), "c": c.start("c")}
	require.Eventually(t, func() bool { p, rec := primaryOf(nodes); return p != "" && len(rec.Set) == 3 }, time.Minute, 10*time.Millisecond)
	p, rec := primaryOf(nodes)
	for name, n := range nodes {
		if name != p {
			require.True(t, n.runner(0).hand(func() { n.runner(0).shard.Stop(&rec) }))
			break
		}
	}
	require.Eventually(t, func() bool { p, now := primaryOf(nodes); return p != "" && now.Term > rec.Term && len(now.Set) == 3 }, 20*time.Second, 10*time.Millisecond)
	_, err := c.client("a", "b", "c").Put(t.Context(), []byte("key"), []byte("value"))
	require.NoError(t, err)
	for _, n := range nodes {
		require.NoError(t, n.Close())
	}
}

// TestRecover: a node goes on with its own copy once its user says so, but not while a node runs that has more.
func TestRecover(t *testing.T) {
	c := newTestCluster(t, shard.Async)
	a, b := c.start("a"), c.start("b")
	require.Eventually(t, func() bool { _, n := inSync(a, b); return n == 2 }, time.Minute, 10*time.Millisecond)
	_, err := c.client("a", "b").Put(t.Context(), []byte("key"), []byte("value"))
	require.NoError(t, err)
	s, err := membership.LookAt(t.Context(), c.mem, 0)
	require.NoError(t, err)
	assert.Len(t, s.Nodes, 2)
	assert.ErrorContains(t, s.Recover(t.Context(), c.mem, "a", true), "in sync and runs")
	for _, n := range []*Node{a, b} {
		require.NoError(t, n.Close())
		n.o.Listen[0].Domain.Close()
	}
	b = c.start("b") // a is lost for good
	s, err = membership.LookAt(t.Context(), c.mem, 0)
	require.NoError(t, err)
	require.Len(t, s.Nodes, 1)
	assert.Positive(t, s.Nodes[0].Entry, "what its file had")
	assert.ErrorContains(t, s.Recover(t.Context(), c.mem, "a", true), "no node a runs")
	require.NoError(t, s.Recover(t.Context(), c.mem, "b", false))
	assert.Zero(t, b.runner(0).copy.Serves())
	require.NoError(t, s.Recover(t.Context(), c.mem, "b", true))
	require.ErrorIs(t, s.Recover(t.Context(), c.mem, "b", true), cluster.ErrChanged)
	require.Eventually(t, func() bool { n, _ := inSync(b); return n != nil }, time.Minute, 10*time.Millisecond)
	got, err := c.client("b").Get(t.Context(), []byte("key"))
	require.NoError(t, err)
	assert.Equal(t, "value", string(got))
	_, err = membership.LookAt(t.Context(), c.mem, 9)
	assert.Error(t, err)
	require.NoError(t, b.Close())
}

// TestClusterOptions: wrong options are reported at the start.
func TestClusterOptions(t *testing.T) {
	c := newTestCluster(t, shard.Memory)
	n := c.start("a")
	defer n.Close()
	open := func(change func(*Options)) error {
		o := c.o
		o.Listen = []Listen{{Domain: c.net.Open(), Addr: "x"}}
		o.Cluster = &ClusterOptions{Cluster: c.mem, Node: "x", LogBytes: 1 << 20}
		change(&o)
		n, err := Open(o)
		if err == nil {
			n.Close()
		}
		return err
	}
	assert.ErrorContains(t, open(func(o *Options) { o.Cluster.Node = "a b" }), "name")
	assert.ErrorContains(t, open(func(o *Options) { o.Cluster.Cluster = nil }), "no cluster")
	assert.ErrorContains(t, open(func(o *Options) { o.Cluster.Replicas = 9 }), "replicas")
	assert.ErrorContains(t, open(func(o *Options) { o.Cluster.LogBytes = 1000 }), "power of two")
	assert.ErrorContains(t, open(func(o *Options) { o.Cluster.Replicas, o.Cluster.MinInSync = 2, 3 }), "raise the second")
	assert.ErrorContains(t, open(func(o *Options) { o.Shards = 2 }), "1 shards")
	assert.ErrorContains(t, open(func(o *Options) { o.Durability, o.Dir = shard.Async, t.TempDir() }), "durability memory")
	dir := t.TempDir()
	_, err := readIdentity(dir, 1)
	require.NoError(t, err)
	assert.ErrorContains(t, open(func(o *Options) { o.Dir = dir }), "another cluster")
}
