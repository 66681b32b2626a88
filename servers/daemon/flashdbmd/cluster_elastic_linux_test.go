package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/daemon/etcdmap"
	"flashdbm/servers/membership"
)

var shardBars = flag.Bool("cluster.bars", false, "fail where moves of keys between shards make operations slower than the bars: p99 50 ms, longest 500 ms")

var elasticRecords = flag.Int("cluster.records", 2000, "records that a cluster has which grows from 3 to 5 nodes and shrinks to 3 again")

// latencies are the durations of operations.
type latencies struct {
	mu   sync.Mutex
	list []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, d)
}

// within fails the test if operations since the last call of String took longer than the bars allow.
func (l *latencies) within(t *testing.T, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.list)
	require.NotEmpty(t, l.list)
	if *shardBars {
		assert.LessOrEqual(t, l.list[len(l.list)*99/100], 50*time.Millisecond, "%s: p99", what)
		assert.LessOrEqual(t, l.list[len(l.list)-1], 500*time.Millisecond, "%s: longest", what)
	}
}

// String describes the operations since the last call of String.
func (l *latencies) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.list)
	n := len(l.list)
	if n == 0 {
		return "no operation"
	}
	s := fmt.Sprintf("%d operations, p50 %v, p99 %v, longest %v", n, l.list[n/2], l.list[n*99/100], l.list[n-1])
	l.list = nil
	return s
}

// copies waits until every shard has three copies, none of them on a node named in without. It returns, for each
// node, of how many shards the node has a copy and how many it serves.
func (f *fleet) copies(c *etcdmap.Map, shards int, without ...string) (copies, serves map[string]int) {
	level := func() bool {
		copies, serves = map[string]int{}, map[string]int{}
		for i := range shards {
			s, err := membership.LookAt(f.t.Context(), c, uint32(i))
			if err != nil || len(s.Record.Set) != 3 {
				return false
			}
			for _, member := range s.Record.Set {
				node, _, _ := strings.Cut(member, ".")
				if slices.Contains(without, node) {
					return false
				}
				copies[node]++
				if member == s.Record.Primary {
					serves[node]++
				}
			}
		}
		return true
	}
	require.Eventually(f.t, level, 120*time.Second, 50*time.Millisecond, "not every shard has three copies:\n%s", f)
	return copies, serves
}

// TestClusterGrowsAndShrinks: two nodes join three and get their part of the shards; then two of the first three are
// drained and ended. Meanwhile clients count and read. No operation fails, nothing is lost, applied twice or stale,
// and at the end all records are there.
func TestClusterGrowsAndShrinks(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	t.Parallel()
	const shards = 4
	f := newFleet(t, "async", false)
	f.more = []string{"--shards", strconv.Itoa(shards)}
	for _, name := range []string{"a", "b", "c"} {
		f.start(name)
	}
	agreed, err := etcdmap.Open(etcdmap.Options{Endpoints: []string{"http://" + f.at}, Name: "flashdbm"})
	require.NoError(t, err)
	defer agreed.Close()
	f.copies(agreed, shards)
	c := f.client()
	for i := range *elasticRecords {
		_, err := c.Put(t.Context(), []byte("record-"+strconv.Itoa(i)), fmt.Appendf(nil, "value-%0100d", i))
		require.NoError(t, err)
	}
	var stop atomic.Bool
	var done sync.WaitGroup
	var all latencies
	writers := make([]*writer, 4)
	for i := range writers {
		w := &writer{key: []byte("counter-" + strconv.Itoa(i))}
		writers[i] = w
		done.Go(func() {
			for !stop.Load() && w.run(t, c, func(began time.Time) { all.add(time.Since(began)) }) {
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	time.Sleep(time.Second)
	t.Log("three nodes:          ", &all)
	f.start("d")
	f.start("e")
	moved := func() bool {
		copies, _ := f.copies(agreed, shards)
		return copies["d"] > 0 && copies["e"] > 0
	}
	require.Eventually(t, moved, 120*time.Second, 100*time.Millisecond, "%s", f)
	t.Log("two are added:        ", &all)
	for _, name := range []string{"a", "b"} {
		drained := &strings.Builder{}
		require.NoError(t, runDrain("drain", []string{"--etcd", "http://" + f.at, "--node", name, "--wait", "2m"}, func(string) (string, bool) { return "", false }, drained), "%s", f)
		assert.Contains(t, drained.String(), "node "+name+" has no shard")
	}
	copies, serves := f.copies(agreed, shards, "a", "b")
	assert.Equal(t, map[string]int{"c": shards, "d": shards, "e": shards}, copies)
	t.Log("two are drained:      ", &all, "; shards served:", serves)
	for _, name := range []string{"a", "b"} {
		require.NoError(t, f.nodes[name].Process.Signal(syscall.SIGTERM))
		require.NoError(t, f.nodes[name].Wait(), "%s", f)
		delete(f.nodes, name)
	}
	time.Sleep(time.Second)
	t.Log("two have ended:       ", &all)
	stop.Store(true)
	done.Wait()
	found := map[string]bool{}
	for i, err := range c.Scan(t.Context(), nil) {
		require.NoError(t, err)
		found[string(i.Key)] = true
	}
	for i := range *elasticRecords {
		if !found["record-"+strconv.Itoa(i)] {
			t.Fatalf("record %d is lost", i)
		}
	}
	assert.Len(t, found, *elasticRecords+len(writers))
	for _, w := range writers {
		got, err := c.Get(context.Background(), w.key)
		require.NoError(t, err)
		assert.Equal(t, strconv.FormatInt(w.sum, 10), string(got))
	}
}

// TestShardsAreAddedAndDrained: three shards become five and then three again, while clients count and read. No
// operation fails, nothing is lost, applied twice or stale, and at the end every record is there once.
func TestShardsAreAddedAndDrained(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	t.Parallel()
	f := newFleet(t, "async", false)
	f.more = []string{"--shards", "3"}
	for _, name := range []string{"a", "b", "c"} {
		f.start(name)
	}
	agreed, err := etcdmap.Open(etcdmap.Options{Endpoints: []string{"http://" + f.at}, Name: "flashdbm"})
	require.NoError(t, err)
	defer agreed.Close()
	f.copies(agreed, 3)
	c := f.client()
	for i := range *elasticRecords {
		_, err := c.Put(t.Context(), []byte("record-"+strconv.Itoa(i)), fmt.Appendf(nil, "value-%0100d", i))
		require.NoError(t, err)
	}
	var stop atomic.Bool
	var done sync.WaitGroup
	var all latencies
	writers := make([]*writer, 40) // keys in all parts of the circle
	for i := range writers {
		writers[i] = &writer{key: []byte("counter-" + strconv.Itoa(i))}
	}
	const lanes = 4
	for lane := range lanes {
		done.Go(func() {
			for i := lane; !stop.Load(); i = (i + lanes) % len(writers) {
				if !writers[i].run(t, c, func(began time.Time) { all.add(time.Since(began)) }) {
					return
				}
				began := time.Now()
				key := []byte("record-" + strconv.Itoa(int(began.UnixNano()/1000)%*elasticRecords))
				if _, err := c.Get(context.Background(), key); !assert.NoError(t, err, "%s", key) {
					return
				}
				all.add(time.Since(began))
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	time.Sleep(time.Second)
	t.Log("three shards:         ", &all)
	none := func(string) (string, bool) { return "", false }
	shards := func(args ...string) string {
		out := &strings.Builder{}
		began := time.Now()
		require.NoError(t, runShards(append([]string{"--etcd", "http://" + f.at}, args...), none, out), "%s", f)
		t.Logf("%v took %v", args, time.Since(began).Round(time.Millisecond))
		return out.String()
	}
	assert.Equal(t, "shards 0 1 2 share the keys\n", shards())
	assert.Contains(t, shards("--add", "2"), "shards 0 1 2 3 4 share the keys\n")
	all.within(t, "two shards more")
	t.Log("two are added:        ", &all)
	f.copies(agreed, 5)
	found := map[string]int{}
	count := func() {
		t.Helper()
		clear(found)
		for i, err := range c.Scan(t.Context(), nil) {
			require.NoError(t, err)
			found[string(i.Key)]++
		}
		for i := range *elasticRecords {
			if n := found["record-"+strconv.Itoa(i)]; n != 1 {
				t.Fatalf("record %d is there %d times", i, n)
			}
		}
	}
	count()
	t.Log("counted:              ", &all)
	assert.Contains(t, shards("--drain", "3,4"), "shards 0 1 2 share the keys\n")
	all.within(t, "two shards less")
	t.Log("two are drained:      ", &all)
	time.Sleep(500 * time.Millisecond)
	stop.Store(true)
	done.Wait()
	count()
	assert.Len(t, found, *elasticRecords+len(writers))
	for _, w := range writers {
		got, err := c.Get(context.Background(), w.key)
		require.NoError(t, err)
		assert.Equal(t, strconv.FormatInt(w.sum, 10), string(got))
		assert.Zero(t, w.unknown)
	}
}

// TestClusterIsUpgraded: the nodes are ended and started again one after the other, as in an upgrade, while clients
// count and read. No operation fails, and nothing is lost, applied twice or stale. Each reign is handed over, so no
// operation waits as long as it would for a failover.
func TestClusterIsUpgraded(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	t.Parallel()
	f := newFleet(t, "async", false, "a", "b", "c")
	f.level()
	agreed, err := etcdmap.Open(etcdmap.Options{Endpoints: []string{"http://" + f.at}, Name: "flashdbm"})
	require.NoError(t, err)
	defer agreed.Close()
	c := f.client()
	handed := 0
	var stop atomic.Bool
	var done sync.WaitGroup
	var all latencies
	w := &writer{key: []byte("counter")}
	done.Go(func() {
		for !stop.Load() && w.run(t, c, func(began time.Time) { all.add(time.Since(began)) }) {
			time.Sleep(time.Millisecond)
		}
	})
	for _, name := range []string{"a", "b", "c"} {
		serving, _ := f.primary()
		require.NoError(t, f.nodes[name].Process.Signal(syscall.SIGTERM))
		require.NoError(t, f.nodes[name].Wait(), "%s", f)
		s, err := membership.LookAt(t.Context(), agreed, 0)
		require.NoError(t, err)
		if s.Record.Handed {
			handed++
		}
		t.Logf("%s is ended, where %s serves: %v; handed over: %v", name, serving, &all, s.Record.Handed)
		f.start(name)
		f.level()
	}
	stop.Store(true)
	done.Wait()
	assert.Positive(t, handed)
	got, err := c.Get(t.Context(), w.key)
	require.NoError(t, err)
	assert.Equal(t, strconv.FormatInt(w.sum, 10), string(got))
}

// TestClusterBackup: each node backs up the shards that it serves into one directory. A cluster of another name whose
// first node is started with that directory has every record.
func TestClusterBackup(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	t.Parallel()
	f := newFleet(t, "sync", false)
	f.more = []string{"--shards", "4"}
	f.start("a")
	f.start("b")
	f.level()
	none := func(string) (string, bool) { return "", false }
	c := f.client()
	for i := range 100 {
		_, err := c.Put(t.Context(), []byte("record-"+strconv.Itoa(i)), []byte(strconv.Itoa(i)))
		require.NoError(t, err)
	}
	to := filepath.Join(f.root, "backup")
	for name := range f.nodes {
		require.NoError(t, runBackup([]string{"--dir", f.dir(name), "--to", to, "--served"}, none, io.Discard))
	}
	files, err := filepath.Glob(filepath.Join(to, "shard-*.fdbm"))
	require.NoError(t, err)
	assert.Len(t, files, 4, "each shard is served once")
	name, _ := f.primary()
	assert.ErrorContains(t, runBackup([]string{"--dir", f.dir(name), "--to", to}, none, io.Discard), "exist")
	require.NoError(t, c.Close())
	for name := range f.nodes {
		f.nodes[name].Process.Kill()
		f.nodes[name].Wait()
		delete(f.nodes, name)
	}
	f.more = []string{"--cluster", "another"}
	require.NoError(t, os.Rename(to, f.dir("n")))
	f.start("n")
	require.Eventually(t, func() bool { name, _ := f.primary(); return name != "" }, 30*time.Second, 10*time.Millisecond, "%s", f)
	f.start("m")
	f.level()
	c = f.client()
	for i := range 100 {
		got, err := c.Get(t.Context(), []byte("record-"+strconv.Itoa(i)))
		require.NoError(t, err)
		assert.Equal(t, strconv.Itoa(i), string(got))
	}
}
