package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/ramp"
)

var (
	rampModes = flag.String("ramp.modes", "sync", "the durabilities in which nodes of a RAMP table are killed")
	rampAlg   = flag.String("ramp.algorithm", "fast", "of the clients: fast, small, hybrid or locking")
)

// rampOptions returns the options of a client.
func rampOptions() *ramp.Options {
	o := &ramp.Options{Timeout: 30 * time.Second, Secret: []byte(fleetPassword), Locking: *rampAlg == "locking"}
	switch *rampAlg {
	case "small":
		o.Algorithm = ramp.Small
	case "hybrid":
		o.Algorithm = ramp.Hybrid
	}
	return o
}

// rampPrimary returns the node that serves a partition, "" if no node says that it does.
func (f *fleet) rampPrimary(number int) string {
	for name := range f.nodes {
		if s, err := askRampStatus(f.dir(name)); err == nil && len(s.Partitions) > number && s.Partitions[number].Role == "primary" {
			return name
		}
	}
	return ""
}

// rampLevel waits until all nodes are in the set of each partition and, if clean is set, until no transaction is left
// prepared. It gives up after a number of checks, not after a time: if the nodes get little processor time, or the
// whole machine stops for minutes, the checks are delayed in the same way.
func (f *fleet) rampLevel(clean bool) {
	said := ""
	level := func() bool {
		whole, left := 0, 0
		said = ""
		for name := range f.nodes {
			s, err := askRampStatus(f.dir(name))
			if err != nil {
				return false
			}
			for i, p := range s.Partitions {
				said += fmt.Sprintf("%s, partition %d: %+v\n", name, i, p)
				if p.Role == "primary" && len(p.Set) == len(f.nodes) {
					whole++
				}
				left += p.Prepared + p.Transactions
			}
		}
		return whole == rampPartitions && (!clean || left == 0)
	}
	for range 1200 {
		if level() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Fail(f.t, "nodes are not in sync, or something stays prepared", "%s\n%s", said, f)
}

const rampKeys = 16

func rampKey(i int) []byte { return []byte("key-" + strconv.Itoa(i)) }

// A rampLoad is clients that write and read the same few keys. A value has a bit for each key of its transaction.
type rampLoad struct {
	t                            *testing.T
	stop                         atomic.Bool
	done                         sync.WaitGroup
	acked                        [rampKeys]atomic.Uint64
	puts, gets, unknown, refused atomic.Int64
	last                         atomic.Int64 // when a write was last acknowledged, in nanoseconds since 1970
	longest                      atomic.Int64 // longest time without an acknowledged write, in nanoseconds
	slowest                      atomic.Int64 // duration of the slowest call, in nanoseconds
	began                        atomic.Int64 // when the newest acknowledged write began, in nanoseconds since 1970
}

func (w *rampLoad) took(began time.Time) {
	for is, d := w.slowest.Load(), int64(time.Since(began)); d > is && !w.slowest.CompareAndSwap(is, d); is = w.slowest.Load() {
	}
}

func (w *rampLoad) write(c *ramp.Client, r *rand.Rand) {
	chosen := r.Perm(rampKeys)[:1+r.IntN(6)]
	bits := uint64(0)
	for _, k := range chosen {
		bits |= 1 << k
	}
	var pairs []ramp.Pair
	for _, k := range chosen {
		pairs = append(pairs, ramp.Pair{Key: rampKey(k), Value: binary.LittleEndian.AppendUint64(nil, bits)})
	}
	began := time.Now()
	ts, err := c.PutAll(context.Background(), pairs)
	w.took(began)
	switch {
	case errors.Is(err, ramp.ErrUnknownOutcome):
		w.unknown.Add(1)
		return
	case err != nil:
		w.refused.Add(1)
		return
	}
	for was, at := w.began.Load(), began.UnixNano(); was < at && !w.began.CompareAndSwap(was, at); was = w.began.Load() {
	}
	now := time.Now().UnixNano()
	if was := w.last.Swap(now); was != 0 && now-was > w.longest.Load() {
		w.longest.Store(now - was)
	}
	w.puts.Add(1)
	for _, k := range chosen {
		for was := w.acked[k].Load(); was < uint64(ts) && !w.acked[k].CompareAndSwap(was, uint64(ts)); was = w.acked[k].Load() {
		}
	}
}

func (w *rampLoad) read(c *ramp.Client, chosen []int) {
	var keys [][]byte
	var least []uint64
	for _, k := range chosen {
		keys, least = append(keys, rampKey(k)), append(least, w.acked[k].Load())
	}
	began := time.Now()
	values, err := c.GetAll(context.Background(), keys)
	w.took(began)
	if err != nil {
		w.refused.Add(1)
		return
	}
	w.gets.Add(1)
	for i, v := range values {
		if uint64(v.TS) < least[i] {
			w.t.Errorf("key %d has version %v: what was acknowledged, up to %v, is lost", chosen[i], v.TS, ramp.Timestamp(least[i]))
		}
		if !v.Found {
			continue
		}
		bits := binary.LittleEndian.Uint64(v.Value)
		for j, k := range chosen {
			if bits>>k&1 != 0 && values[j].TS < v.TS {
				w.t.Errorf("key %d has version %v, whose transaction wrote key %d, which has version %v: a transaction in part", chosen[i], v.TS, k, values[j].TS)
			}
		}
	}
}

func (w *rampLoad) begin(c *ramp.Client, writers, readers int) {
	for i := range writers + readers {
		w.done.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), rand.Uint64()))
			for !w.stop.Load() && !w.t.Failed() {
				if i < writers {
					w.write(c, r)
				} else {
					w.read(c, r.Perm(rampKeys)[:1+r.IntN(6)])
				}
			}
		})
	}
}

func (w *rampLoad) end() {
	w.stop.Store(true)
	w.done.Wait()
}

// part returns the longest time without an acknowledged write since the last call of part, and the number of writes
// in that time.
func (w *rampLoad) part() (time.Duration, int64) {
	return time.Duration(w.longest.Swap(0)), w.puts.Swap(0)
}

func newRampFleet(t *testing.T, mode string) (*fleet, *ramp.Client) {
	f := newFleet(t, mode, true)
	f.more = []string{"--table", "ramp", "--shards", strconv.Itoa(rampPartitions)}
	var addrs []string
	for _, name := range []string{"a", "b", "c"} {
		f.start(name)
		addrs = append(addrs, "shm:"+filepath.Join(f.dir(name), "node.sock"))
	}
	f.rampLevel(false)
	c, err := ramp.Dial(t.Context(), addrs, rampOptions())
	require.NoError(t, err, f.String())
	t.Cleanup(func() { c.Close() })
	return f, c
}

// TestRampClusterKilled kills primaries of a RAMP table with kill -9, and stops some, under load. No transaction is
// seen in part, nothing that was acknowledged is lost, one-sided Reads included, and nothing stays prepared. It
// reports how long no write was acknowledged.
func TestRampClusterKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	for _, mode := range strings.Split(*rampModes, ",") {
		t.Run(mode, func(t *testing.T) { killRampCluster(t, mode) })
	}
}

func killRampCluster(t *testing.T, mode string) {
	f, c := newRampFleet(t, mode)
	w := &rampLoad{t: t}
	w.begin(c, 3, 3)
	var gaps []time.Duration
	puts := int64(0)
	for round := range *clusterKills + *clusterStop {
		time.Sleep(200 * time.Millisecond)
		name := f.rampPrimary(round % rampPartitions)
		require.NotEmpty(t, name)
		_, n := w.part()
		puts += n
		p := f.nodes[name]
		if round < *clusterKills {
			require.NoError(t, p.Process.Kill())
			p.Wait()
			killed := time.Now().UnixNano()
			require.Eventually(t, func() bool { return w.began.Load() > killed || t.Failed() }, time.Minute, time.Millisecond, "no write after the kill:\n%s", f)
			time.Sleep(500 * time.Millisecond) // with two members
			f.start(name)
		} else {
			p.Process.Signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(500+round*937%9500) * time.Millisecond)
			p.Process.Signal(syscall.SIGCONT)
		}
		f.rampLevel(false)
		gap, n := w.part()
		puts += n
		require.Positive(t, n, "no write behind a kill:\n%s", f)
		gaps = append(gaps, gap)
		require.False(t, t.Failed(), f.String())
	}
	w.end()
	for range 3 { // by messages, and by Reads
		w.read(c, rand.Perm(rampKeys))
	}
	f.rampLevel(true)
	slices.Sort(gaps)
	s := c.Stats()
	t.Logf("%d transactions written, %d read, %d of unknown outcome, %d refused, %+v; without writes: median %v, longest %v; the slowest call took %v", puts,
		w.gets.Load(), w.unknown.Load(), w.refused.Load(), s, gaps[len(gaps)/2], gaps[len(gaps)-1], time.Duration(w.slowest.Load()))
	if *rampAlg != "fast" {
		return // RESP is
	}
	require.Positive(t, s.OneSided)

	st, err := askRampStatus(f.dir("a"))
	require.NoError(t, err)
	r, err := redis.DialContext(t.Context(), "tcp", st.RESP, redis.DialPassword(fleetPassword))
	require.NoError(t, err)
	defer r.Close()
	ok, err := redis.String(r.Do("MSET", "one", "1", "two", "2", "three", "3"))
	require.NoError(t, err)
	require.Equal(t, "OK", ok)
	got, err := redis.Strings(r.Do("MGET", "three", "one"))
	require.NoError(t, err)
	require.Equal(t, []string{"3", "1"}, got)
	st, err = askRampStatus(f.dir("a"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, st.Commands, int64(2))
	require.Equal(t, mode != "memory", st.FileBytes > 0)
	out := &strings.Builder{}
	require.NoError(t, runStatus([]string{"--dir", f.dir("a")}, noVariables, out))
	require.Contains(t, out.String(), "partition")
	require.Regexp(t, `primary|secondary`, out.String())
}

// TestRampClusterDemo is the second part of make demo-ramp: three nodes; the primary is killed, another node is
// drained and ended, while transactions go on.
func TestRampClusterDemo(t *testing.T) {
	if *clusterDemo == 0 {
		t.Skip("see make demo-ramp")
	}
	f, c := newRampFleet(t, "sync")
	fmt.Printf("a RAMP table of three partitions on three nodes, each partition with a copy on every node; a write is acknowledged once all copies have synced it\n\n")
	w := &rampLoad{t: t}
	w.begin(c, 4, 4)
	say := func(what string) {
		gap, n := w.part()
		fmt.Printf("%-60s %6d transactions written; %6d ms was the longest time without one\n", what, n, gap.Milliseconds())
	}
	time.Sleep(*clusterDemo)
	say("four writers and four readers:")
	victim := f.rampPrimary(0)
	require.NoError(t, f.nodes[victim].Process.Kill())
	f.nodes[victim].Wait()
	time.Sleep(*clusterDemo)
	say(fmt.Sprintf("node %s, which served partition 0, was killed (-9):", victim))
	f.start(victim)
	f.rampLevel(false)
	time.Sleep(*clusterDemo / 2)
	say("it was started again, and is in sync:")
	other := f.rampPrimary(1)
	require.NoError(t, runDrain("drain", []string{"--etcd", "http://" + f.at, "--node", other}, noVariables, io.Discard))
	require.NoError(t, f.nodes[other].Process.Signal(syscall.SIGTERM))
	f.nodes[other].Wait()
	delete(f.nodes, other)
	time.Sleep(*clusterDemo / 2)
	say(fmt.Sprintf("node %s was drained and ended:", other))
	w.end()
	w.read(c, rand.Perm(rampKeys))
	f.rampLevel(true)
	require.False(t, t.Failed(), f.String())
	fmt.Printf("\n%d transactions read, by one-sided Reads of %d keys: none in part, none that lacked what was acknowledged; %d of unknown outcome, %d refused; nothing stays prepared\n",
		w.gets.Load(), c.Stats().OneSided, w.unknown.Load(), w.refused.Load())
}
