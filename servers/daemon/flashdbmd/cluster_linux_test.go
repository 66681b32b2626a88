package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/hydra"
)

var (
	clusterKills = flag.Int("cluster.kills", 1, "primaries that are killed in each durability")
	clusterModes = flag.String("cluster.modes", "async,sync", "the durabilities")
	clusterAway  = flag.Duration("cluster.away", 3*time.Second, "how long etcd is away")
	clusterVerbs = flag.String("cluster.verbs", "", "address of an RDMA device that nodes, and programs that use the library, reach nodes by; in a build with the tag verbs")
	clusterStop  = flag.Int("cluster.stops", 0, "primaries that are stopped for up to 10 s in each durability, and go on")
)

// openFleetDevice opens the RDMA device for programs that use the library. It is nil in a build without the tag
// verbs.
var openFleetDevice func() (fabric.Domain, error)

// A fleet is an etcd and several nodes, each a process.
type fleet struct {
	t     *testing.T
	exe   string
	root  string
	mode  string
	etcd  *exec.Cmd
	at    string
	nodes map[string]*exec.Cmd
	tcp   map[string]string   // by node: its address; if set, the nodes reach each other by TCP
	verbs map[string]string   // by node: its address of an RDMA device; if set, the nodes reach each other by it
	more  []string            // settings of all nodes
	in    map[string][]string // by process: the command that starts the process in its namespace
}

// spawn starts a process of the fleet: a node, or etcd.
func (f *fleet) spawn(name string, args ...string) *exec.Cmd {
	line := append(slices.Concat(f.in[name], []string{f.exe}), args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "FLASHDBMD_TEST_PROCESS=1")
	if f.secret() && args[0] == "serve" {
		cmd.Env = append(cmd.Env, "FLASHDBMD_PASSWORD="+fleetPassword)
	}
	out, err := os.OpenFile(filepath.Join(f.root, "messages"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(f.t, err)
	defer out.Close()
	cmd.Stderr = out
	require.NoError(f.t, cmd.Start())
	f.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

const fleetPassword = "of the tests"

// free returns an address that nobody listens on. Its port is below the range from which the kernel gives ports to
// connections and to listeners that ask for any. So none of these takes the port before the intended process listens,
// or while that process is killed and started again.
func free(t *testing.T) string {
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

func newFleet(t *testing.T, mode string, tcp bool, names ...string) *fleet {
	exe, err := os.Executable()
	require.NoError(t, err)
	f := &fleet{t: t, exe: exe, root: t.TempDir(), mode: mode, nodes: map[string]*exec.Cmd{}}
	f.at = free(t)
	switch {
	case *clusterVerbs != "":
		f.verbs = map[string]string{}
	case tcp:
		f.tcp = map[string]string{}
	}
	f.startEtcd()
	for _, name := range names {
		f.start(name)
	}
	return f
}

// secret reports whether nodes ask for a password.
func (f *fleet) secret() bool { return f.tcp != nil || f.verbs != nil }

func (f *fleet) startEtcd() {
	peers := "127.0.0.1:2380"
	if f.in == nil {
		peers = free(f.t)
	}
	f.etcd = f.spawn("etcd", "member", "m", filepath.Join(f.root, "etcd"), f.at, peers, "m=http://"+peers)
	require.Eventually(f.t, func() bool {
		c, err := net.Dial("tcp", f.at)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

func (f *fleet) dir(name string) string { return filepath.Join(f.root, name) }

func (f *fleet) start(name string) {
	os.Remove(filepath.Join(f.dir(name), "node.sock"))
	args := []string{"serve", "--dir", f.dir(name), "--resp", "127.0.0.1:0", "--durability", f.mode, "--etcd", "http://" + f.at, "--node", name}
	if f.tcp != nil {
		if f.tcp[name] == "" {
			f.tcp[name] = free(f.t)
		}
		args = append(args, "--tcp", f.tcp[name])
	}
	if f.verbs != nil {
		if f.verbs[name] == "" {
			f.verbs[name] = fmt.Sprintf("%s:%d", *clusterVerbs, 7500+len(f.verbs))
		}
		args = append(args, "--verbs", f.verbs[name])
	}
	f.nodes[name] = f.spawn(name, append(args, f.more...)...)
}

// primary returns the node that serves shard 0 and how many copies are in sync; "" if no node says that it serves.
func (f *fleet) primary() (name string, members int) {
	for name := range f.nodes {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		s, err := askStatus(ctx, f.dir(name), "")
		cancel()
		if err == nil && len(s.Shards) > 0 && s.Shards[0].Role == "primary" && s.Shards[0].Serving {
			return name, len(s.Shards[0].Set)
		}
	}
	return "", 0
}

func (f *fleet) level() {
	require.Eventually(f.t, func() bool { _, n := f.primary(); return n == len(f.nodes) }, 60*time.Second, 20*time.Millisecond, "nodes are not in sync:\n%s", f)
}

// String returns the output of the processes, and what each node says of its shards.
func (f *fleet) String() string {
	b, _ := os.ReadFile(filepath.Join(f.root, "messages"))
	for name := range f.nodes {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		s, err := askStatus(ctx, f.dir(name), "")
		cancel()
		b = fmt.Appendf(b, "%s says %+v %v\n", name, s.Shards, err)
	}
	return string(b)
}

func (f *fleet) client() *hydra.Client {
	var addrs []string
	for name := range f.nodes {
		if f.verbs != nil {
			addrs = append(addrs, "verbs:"+f.verbs[name])
			continue
		}
		addrs = append(addrs, "shm:"+filepath.Join(f.dir(name), "node.sock"))
	}
	o := &hydra.Options{Timeout: 30 * time.Second}
	if f.secret() {
		o.Secret = []byte(fleetPassword)
	}
	if f.verbs != nil {
		d, err := openFleetDevice()
		require.NoError(f.t, err)
		o.Fabrics = map[string]fabric.Domain{"verbs": d}
		f.t.Cleanup(func() { d.Close() })
	}
	c, err := hydra.Dial(f.t.Context(), addrs, o)
	require.NoError(f.t, err, f.String())
	f.t.Cleanup(func() { c.Close() })
	return c
}

// A writer counts in keys of its own and reads them back. A count that is lost, applied twice or stale fails the
// test. The writer keeps what it knows in its own process.
type writer struct {
	key     []byte
	sum     int64
	unknown int
}

func (w *writer) run(t *testing.T, c *hydra.Client, acked func(began time.Time)) bool {
	ctx := context.Background()
	began := time.Now()
	sum, err := c.Add(ctx, w.key, 1)
	switch {
	case errors.Is(err, hydra.ErrUnknownOutcome):
		w.unknown++
		got, err := c.Get(ctx, w.key)
		if errors.Is(err, hydra.ErrNotFound) {
			got, err = []byte("0"), nil
		}
		if !assert.NoError(t, err) {
			return false
		}
		n, _ := strconv.ParseInt(string(got), 10, 64)
		if !assert.Contains(t, []int64{w.sum, w.sum + 1}, n, "%s after an unknown outcome", w.key) {
			return false
		}
		w.sum = n
		return true
	case !assert.NoError(t, err):
		return false
	}
	acked(began)
	if !assert.Equal(t, w.sum+1, sum, "%s: lost, or twice", w.key) {
		return false
	}
	w.sum = sum
	for range 3 {
		got, err := c.Get(ctx, w.key)
		if !assert.NoError(t, err) || !assert.Equal(t, strconv.FormatInt(sum, 10), string(got), "%s: stale", w.key) {
			return false
		}
	}
	return true
}

// TestClusterKilled kills primaries with kill -9 under load: no acknowledged write is lost, none is applied twice,
// and no read is stale, one-sided reads included. It reports how long no write was acknowledged.
func TestClusterKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	for _, mode := range strings.Split(*clusterModes, ",") {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, mode, mode == "sync", "a", "b", "c")
			f.level()
			c := f.client()
			var stop atomic.Bool
			var done sync.WaitGroup
			var mu sync.Mutex
			var after time.Time // time of the kill
			var first time.Time // when the first write that began after the kill was acknowledged
			writers := make([]*writer, 4)
			for i := range writers {
				w := &writer{key: []byte("counter-" + strconv.Itoa(i))}
				writers[i] = w
				done.Go(func() {
					for !stop.Load() {
						if !w.run(t, c, func(began time.Time) {
							mu.Lock()
							defer mu.Unlock()
							if !after.IsZero() && first.IsZero() && began.After(after) {
								first = time.Now()
							}
						}) {
							return
						}
					}
				})
			}
			var gaps []time.Duration
			for round := range *clusterKills + *clusterStop {
				time.Sleep(100 * time.Millisecond)
				name, _ := f.primary()
				require.NotEmpty(t, name)
				p := f.nodes[name]
				mu.Lock()
				after, first = time.Now(), time.Time{}
				mu.Unlock()
				if round < *clusterKills {
					require.NoError(t, p.Process.Kill())
					p.Wait()
				} else {
					p.Process.Signal(syscall.SIGSTOP)
					time.Sleep(time.Duration(500+round*937%9500) * time.Millisecond)
					p.Process.Signal(syscall.SIGCONT)
				}
				require.Eventually(t, func() bool {
					mu.Lock()
					defer mu.Unlock()
					return !first.IsZero() || t.Failed()
				}, 60*time.Second, time.Millisecond, "no write after the kill:\n%s", f)
				mu.Lock()
				gaps = append(gaps, first.Sub(after))
				after = time.Time{}
				mu.Unlock()
				if round < *clusterKills {
					f.start(name)
				}
				f.level()
				require.False(t, t.Failed(), f.String())
			}
			stop.Store(true)
			done.Wait()
			var sum, unknown int
			for _, w := range writers {
				got, err := c.Get(t.Context(), w.key)
				require.NoError(t, err)
				assert.Equal(t, strconv.FormatInt(w.sum, 10), string(got))
				sum, unknown = sum+int(w.sum), unknown+w.unknown
			}
			t.Logf("%s: %d writes acknowledged, %d of unknown outcome, %+v", mode, sum, unknown, c.Stats())
			kills := min(*clusterKills, len(gaps))
			for what, gaps := range map[string][]time.Duration{"kills": gaps[:kills], "stops": gaps[kills:]} {
				if slices.Sort(gaps); len(gaps) > 0 {
					t.Logf("without writes after %d %s: median %v, longest %v", len(gaps), what, gaps[len(gaps)/2], gaps[len(gaps)-1])
				}
			}
		})
	}
}

// TestClusterWithoutEtcd: while etcd is away and no replica changes, no client notices, nor when etcd is back. RESP
// serves through any node.
func TestClusterWithoutEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	f := newFleet(t, "async", false, "a", "b")
	f.level()
	require.NoError(t, f.etcd.Process.Kill())
	f.etcd.Wait()
	c := f.client()
	w := &writer{key: []byte("counter")}
	longest := time.Duration(0)
	work := func(d time.Duration) { // longer than a session lasts
		for end := time.Now().Add(d); time.Now().Before(end); {
			require.True(t, w.run(t, c, func(began time.Time) { longest = max(longest, time.Since(began)) }))
			time.Sleep(10 * time.Millisecond)
		}
	}
	work(*clusterAway)
	t.Logf("etcd was away for %v: %d writes, the longest one took %v", *clusterAway, w.sum, longest)
	for name := range f.nodes {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var s status
		require.Eventually(t, func() bool {
			var err error
			s, err = askStatus(ctx, f.dir(name), "")
			return err == nil
		}, time.Minute, 10*time.Millisecond)
		r, err := redis.DialContext(ctx, "tcp", s.RESP)
		require.NoError(t, err)
		got, err := redis.String(r.Do("GET", "counter"))
		require.NoError(t, err)
		assert.Equal(t, strconv.FormatInt(w.sum, 10), got)
		r.Close()
		out := &strings.Builder{}
		require.NoError(t, printStatus(out, &s))
		assert.Contains(t, out.String(), "in sync")
		assert.Contains(t, out.String(), "node "+s.Node)
		metrics := &strings.Builder{}
		writeShardMetrics(metrics, s.Status)
		if s.Shards[0].Role == "primary" {
			assert.Contains(t, metrics.String(), "flashdbmd_shard_missing_copies{shard=\"0\"} 1\n", "two of three")
			assert.Contains(t, metrics.String(), "flashdbmd_shard_lag_entries{shard=\"0\"}")
		}
		rules, err := os.ReadFile("../../deploy/alerts.yml")
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`flashdbmd_[a-z_]+`).FindAllString(string(rules), -1) {
			assert.Contains(t, metrics.String(), "# HELP "+name+" ", "alerts.yml names a metric that there is not")
		}
	}
	was, _ := f.primary()
	f.startEtcd()
	work(*clusterAway)
	is, _ := f.primary()
	assert.Equal(t, was, is, "the sessions had ended, and no node")
	assert.Zero(t, w.unknown)
	t.Logf("etcd is back: %d writes, the longest one took %v", w.sum, longest)
}
