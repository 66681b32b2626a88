package machine_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashdbm/servers/cluster"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/membership"
	"flashdbm/servers/ramp"
	"flashdbm/servers/ramp/machine"
	"flashdbm/servers/ramp/partition"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A testTable has several nodes in one process, which reach each other over package mem.
type testTable struct {
	t    *testing.T
	net  *mem.Network
	etcd *cluster.Memory
	dirs map[string]string
	at   map[string]fabric.Domain

	durability partition.Durability
	replicas   int
}

func newTestTable(t *testing.T) *testTable {
	c := &testTable{durability: partition.Sync, t: t, net: mem.NewNetwork(), etcd: cluster.NewMemory(), dirs: map[string]string{}, at: map[string]fabric.Domain{}}
	t.Cleanup(func() { c.etcd.Close() })
	return c
}

func (c *testTable) options(name string) machine.Options {
	if c.dirs[name] == "" {
		c.dirs[name] = c.t.TempDir()
	}
	c.at[name] = c.net.Open()
	return machine.Options{
		Dir: c.dirs[name], Partitions: 3, Durability: c.durability, Extent: 1 << 20, Listen: []machine.Listen{{Domain: c.at[name], Addr: name, Public: "mem:" + name}},
		Cluster: &membership.Options{Cluster: c.etcd, Node: name, LogBytes: 8 << 20, Replicas: c.replicas},
	}
}

// start starts a node, for the first time or again.
func (c *testTable) start(name string) *machine.Node {
	n, err := machine.Open(c.options(name))
	require.NoError(c.t, err)
	return n
}

func (c *testTable) stop(name string, n *machine.Node) {
	require.NoError(c.t, n.Close())
	c.at[name].Close()
}

func (c *testTable) client(a ramp.Algorithm, names ...string) *ramp.Client {
	var addrs []string
	for _, n := range names {
		addrs = append(addrs, "mem:"+n)
	}
	d := c.net.Open()
	x, err := ramp.Dial(context.Background(), addrs, &ramp.Options{Fabrics: map[string]fabric.Domain{"mem": d}, Algorithm: a, Timeout: 30 * time.Second})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { x.Close(); d.Close() })
	return x
}

// level reports whether every partition has a primary among the nodes and all nodes in its set.
func level(nodes map[string]*machine.Node) bool {
	whole := 0
	for _, n := range nodes {
		for _, p := range n.Status().Partitions {
			if p.Role == "primary" && len(p.Set) == len(nodes) {
				whole++
			}
		}
	}
	return whole == 3
}

// primaryOf returns the node that serves a partition, "" if none does.
func primaryOf(nodes map[string]*machine.Node, number int) string {
	for name, n := range nodes {
		if n.Status().Partitions[number].Role == "primary" {
			return name
		}
	}
	return ""
}

// tableWork writes and reads the same few keys, and checks what it reads. A value names the keys of its transaction.
type tableWork struct {
	t     *testing.T
	stop  atomic.Bool
	done  sync.WaitGroup
	acked [8]atomic.Uint64
	puts  atomic.Int64
	gets  atomic.Int64
}

func tableKey(i int) []byte { return fmt.Appendf(nil, "key-%d", i) }

func (w *tableWork) write(c *ramp.Client, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for !w.stop.Load() {
		chosen := r.Perm(len(w.acked))[:1+r.IntN(4)]
		bits := uint64(0)
		for _, k := range chosen {
			bits |= 1 << k
		}
		var pairs []ramp.Pair
		for _, k := range chosen {
			pairs = append(pairs, ramp.Pair{Key: tableKey(k), Value: binary.LittleEndian.AppendUint64(nil, bits)})
		}
		ts, err := c.PutAll(context.Background(), pairs)
		if errors.Is(err, ramp.ErrUnknownOutcome) {
			continue
		}
		if !assert.NoError(w.t, err) {
			return
		}
		w.puts.Add(1)
		for _, k := range chosen {
			for was := w.acked[k].Load(); was < uint64(ts) && !w.acked[k].CompareAndSwap(was, uint64(ts)); was = w.acked[k].Load() {
			}
		}
	}
}

func (w *tableWork) read(c *ramp.Client, chosen []int) bool {
	var keys [][]byte
	var least []uint64
	for _, k := range chosen {
		keys, least = append(keys, tableKey(k)), append(least, w.acked[k].Load())
	}
	values, err := c.GetAll(context.Background(), keys)
	if !assert.NoError(w.t, err) {
		return false
	}
	w.gets.Add(1)
	for i, v := range values {
		if !assert.GreaterOrEqual(w.t, uint64(v.TS), least[i], "key %d: what was acknowledged is lost", chosen[i]) {
			return false
		}
		if !v.Found {
			continue
		}
		bits := binary.LittleEndian.Uint64(v.Value)
		for j, k := range chosen {
			if bits>>k&1 != 0 && !assert.GreaterOrEqual(w.t, values[j].TS, v.TS, "fractured") {
				return false
			}
		}
	}
	return true
}

func (w *tableWork) begin(clients ...*ramp.Client) {
	for i, c := range clients {
		w.done.Go(func() { w.write(c, uint64(i)) })
		w.done.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for !w.stop.Load() && w.read(c, r.Perm(len(w.acked))[:1+r.IntN(4)]) {
			}
		})
	}
}

func (w *tableWork) end() {
	w.stop.Store(true)
	w.done.Wait()
}

// TestNodes fails primaries over while clients write and read, and takes them in again. No transaction is seen in
// part, nothing that was acknowledged is lost, and nothing stays prepared.
func TestNodes(t *testing.T) {
	c := newTestTable(t)
	nodes := map[string]*machine.Node{}
	for _, name := range []string{"a", "b", "c"} {
		nodes[name] = c.start(name)
	}
	require.Eventually(t, func() bool { return level(nodes) }, time.Minute, 10*time.Millisecond)
	w := &tableWork{t: t}
	x := c.client(ramp.Fast, "a", "b", "c")
	w.begin(x, c.client(ramp.Fast, "b"))
	rounds := 2
	if testing.Short() {
		rounds = 1
	}
	for i := range rounds {
		time.Sleep(100 * time.Millisecond)
		name := primaryOf(nodes, i)
		require.NotEmpty(t, name)
		before := w.puts.Load()
		c.stop(name, nodes[name])
		delete(nodes, name)
		require.Eventually(t, func() bool { return w.puts.Load() > before+10 }, time.Minute, 10*time.Millisecond, "no writes behind a failover")
		nodes[name] = c.start(name)
		require.Eventually(t, func() bool { return level(nodes) }, time.Minute, 10*time.Millisecond)
	}
	w.end()
	require.True(t, w.read(x, []int{0, 1, 2, 3, 4, 5, 6, 7}))
	require.Eventually(t, func() bool {
		left := 0
		for _, n := range nodes {
			for _, p := range n.Status().Partitions {
				left += p.Prepared + p.Transactions
			}
		}
		return left == 0
	}, time.Minute, 20*time.Millisecond, "something stays prepared, or is kept, for ever")
	t.Logf("%d transactions written, %d read, %+v", w.puts.Load(), w.gets.Load(), x.Stats())
	for name, n := range nodes {
		assert.NoError(t, n.Err())
		c.stop(name, n)
	}
}

// TestNodeIsDrained: a node that serves is drained, and ends; clients that write meanwhile do not wait for long.
func TestNodeIsDrained(t *testing.T) {
	c := newTestTable(t)
	nodes := map[string]*machine.Node{"a": c.start("a"), "b": c.start("b"), "c": c.start("c")}
	require.Eventually(t, func() bool { return level(nodes) }, time.Minute, 10*time.Millisecond)
	w := &tableWork{t: t}
	w.begin(c.client(ramp.Small, "a", "b"), c.client(ramp.Small, "c"))
	name := primaryOf(nodes, 0)
	require.NoError(t, membership.Drain(t.Context(), c.etcd, name, true))
	require.Eventually(t, func() bool {
		d, err := membership.LookAtDrained(t.Context(), c.etcd, name)
		return err == nil && len(d.Shards) == 0
	}, time.Minute, 10*time.Millisecond)
	nodes[name].Leave(t.Context())
	c.stop(name, nodes[name])
	delete(nodes, name)
	before := w.puts.Load()
	require.Eventually(t, func() bool { return w.puts.Load() > before }, time.Minute, time.Millisecond)
	w.end()
	for name, n := range nodes {
		c.stop(name, n)
	}
}

// TestNodesAreStartedAgain: all nodes end. The one that ended last has everything when it is started again. Only that
// one certainly has everything, because it may have removed the other from the sets meanwhile.
func TestNodesAreStartedAgain(t *testing.T) {
	c := newTestTable(t)
	nodes := map[string]*machine.Node{"a": c.start("a"), "b": c.start("b")}
	require.Eventually(t, func() bool { return level(nodes) }, time.Minute, 10*time.Millisecond)
	keys := [][]byte{tableKey(0), tableKey(1), tableKey(2)}
	var pairs []ramp.Pair
	for _, k := range keys {
		pairs = append(pairs, ramp.Pair{Key: k, Value: []byte("value")})
	}
	x := c.client(ramp.Hybrid, "a", "b")
	ts, err := x.PutAll(t.Context(), pairs)
	require.NoError(t, err)
	require.NoError(t, x.Close())
	c.stop("b", nodes["b"])
	c.stop("a", nodes["a"])
	a := c.start("a")
	y := c.client(ramp.Hybrid, "a")
	values, err := y.GetAll(t.Context(), keys)
	require.NoError(t, err)
	for _, v := range values {
		assert.Equal(t, ramp.Value{Value: []byte("value"), Found: true, TS: ts}, v)
	}
	c.stop("a", a)
}

// TestModes: also in modes without a sync for each transaction, nothing is lost or seen in part while a copy of each
// partition is alive.
func TestModes(t *testing.T) {
	for _, d := range []partition.Durability{partition.Memory, partition.Async} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			c := newTestTable(t)
			c.durability = d
			nodes := map[string]*machine.Node{"a": c.start("a"), "b": c.start("b")}
			require.Eventually(t, func() bool { return level(nodes) }, time.Minute, 10*time.Millisecond)
			w := &tableWork{t: t}
			x := c.client(ramp.Fast, "a", "b")
			w.begin(x)
			time.Sleep(100 * time.Millisecond)
			name := primaryOf(nodes, 0)
			before := w.puts.Load()
			c.stop(name, nodes[name])
			delete(nodes, name)
			nodes[name] = c.start(name)
			require.Eventually(t, func() bool { return level(nodes) && w.puts.Load() > before+10 }, time.Minute, 10*time.Millisecond)
			w.end()
			require.True(t, w.read(x, []int{0, 1, 2, 3, 4, 5, 6, 7}))
			for name, n := range nodes {
				assert.NoError(t, n.Err())
				c.stop(name, n)
			}
		})
	}
}

// TestPartitionsBeginAgainTogether: a partition that has lost all of its copies is not served before the other
// partitions have ended, too. Then all of them continue with their files.
func TestPartitionsBeginAgainTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	c := newTestTable(t)
	c.durability, c.replicas = partition.Async, 1
	nodes := map[string]*machine.Node{"a": c.start("a"), "b": c.start("b")}
	served := func() (by map[string]int) {
		by = map[string]int{}
		for name, n := range nodes {
			for _, p := range n.Status().Partitions {
				if p.Role == "primary" {
					by[name]++
				}
			}
		}
		return by
	}
	require.Eventually(t, func() bool { s := served(); return s["a"] > 0 && s["b"] > 0 && s["a"]+s["b"] == 3 }, time.Minute, 10*time.Millisecond)
	x := c.client(ramp.Fast, "a", "b")
	var pairs []ramp.Pair
	var keys [][]byte
	for i := range 8 {
		keys = append(keys, tableKey(i))
		pairs = append(pairs, ramp.Pair{Key: keys[i], Value: []byte("value")})
	}
	_, err := x.PutAll(t.Context(), pairs)
	require.NoError(t, err)
	x.Close()
	c.stop("a", nodes["a"])
	nodes["a"] = c.start("a")
	require.Never(t, func() bool { return served()["a"] > 0 }, 3*time.Second, 50*time.Millisecond)
	// A partition may have been moving from a to b when a ended. b serves the partitions of which it has a copy in
	// sync; there is at least one other.
	require.Eventually(t, func() bool {
		for _, p := range nodes["b"].Status().Partitions {
			if (p.Role == "primary") != (len(p.Set) == 1 && strings.HasPrefix(p.Set[0], "b.")) {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond)
	require.Less(t, served()["b"], 3)
	c.stop("b", nodes["b"])
	nodes["b"] = c.start("b")
	require.Eventually(t, func() bool { s := served(); return s["a"]+s["b"] == 3 }, time.Minute, 10*time.Millisecond)
	values, err := c.client(ramp.Fast, "a", "b").GetAll(t.Context(), keys)
	require.NoError(t, err)
	for _, v := range values {
		require.Equal(t, "value", string(v.Value))
	}
	for name, n := range nodes {
		c.stop(name, n)
	}
}

// TestTableOptions: wrong options are reported at the start.
func TestTableOptions(t *testing.T) {
	c := newTestTable(t)
	a := c.start("a")
	defer c.stop("a", a)
	for wrong, change := range map[string]func(o *machine.Options){
		"has durability sync":  func(o *machine.Options) { o.Durability = partition.Async },
		"neither an address":   func(o *machine.Options) { o.Listen = nil },
		"address to listen on": func(o *machine.Options) { o.Listen, o.Alloc = nil, c.at["b"].Alloc },
		"members are needed":   func(o *machine.Options) { o.Cluster.MinInSync = -1 },
		"Listen.Public":        func(o *machine.Options) { o.Listen = slices.Clone(o.Listen); o.Listen[0].Public = "" },
		"a node's name":        func(o *machine.Options) { o.Cluster.Node = "a b" },
		"3 shards":             func(o *machine.Options) { o.Partitions = 2 },
		"another cluster": func(o *machine.Options) {
			other := newTestTable(t)
			n := other.start("x")
			other.stop("x", n)
			o.Dir = other.dirs["x"]
		},
	} {
		o := c.options("b")
		change(&o)
		n, err := machine.Open(o)
		if err == nil {
			n.Close()
		}
		assert.ErrorContains(t, err, wrong)
	}
}
