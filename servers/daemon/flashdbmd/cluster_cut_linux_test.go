package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra"
)

var (
	clusterCuts   = flag.Int("cluster.cuts", 0, "cuts of the network of a cluster whose nodes have a network namespace each; it takes root and iproute2")
	clusterPauses = flag.Int("cluster.pauses", 0, "the same, with primaries that are stopped for 0.5 to 10 s")
	clusterSeed   = flag.Uint64("cluster.seed", 1, "of what is cut when")
)

// An island is a fleet in which each process has a network namespace of its own. The clients are in the namespace of
// the test.
type island struct {
	*fleet
	net    string // the first three bytes of all addresses
	bridge string
	addrs  map[string]string
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// newIsland makes a network of its own and starts etcd and three nodes in it. more has settings of all nodes.
func newIsland(t *testing.T, mode string, number int, more ...string) *island {
	exe, err := os.Executable()
	require.NoError(t, err)
	tag := fmt.Sprintf("f%d%c", os.Getpid()%100000, 'x'+number)
	s := &island{net: fmt.Sprintf("10.77.%d.", (os.Getpid()*7+number)%250), bridge: tag, addrs: map[string]string{}}
	s.fleet = &fleet{t: t, exe: exe, root: t.TempDir(), mode: mode, nodes: map[string]*exec.Cmd{}, tcp: map[string]string{}, in: map[string][]string{}, more: more}
	must := func(args ...string) { require.NoError(t, ip(args...)) }
	must("link", "add", s.bridge, "type", "bridge")
	t.Cleanup(func() { ip("link", "del", s.bridge) })
	must("addr", "add", s.net+"254/24", "dev", s.bridge)
	must("link", "set", s.bridge, "up")
	s.addrs["client"] = s.net + "254"
	for i, name := range []string{"etcd", "a", "b", "c"} {
		space, end := tag+name, tag+name[:1]
		must("netns", "add", space)
		t.Cleanup(func() { ip("netns", "del", space) })
		must("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", space)
		must("link", "set", end, "master", s.bridge, "up")
		must("-n", space, "addr", "add", s.net+strconv.Itoa(i+1)+"/24", "dev", "eth0")
		must("-n", space, "link", "set", "eth0", "up")
		must("-n", space, "link", "set", "lo", "up")
		s.addrs[name] = s.net + strconv.Itoa(i+1)
		s.in[name] = []string{"ip", "netns", "exec", space}
	}
	s.at = s.addrs["etcd"] + ":2379"
	s.startEtcd()
	for _, name := range []string{"a", "b", "c"} {
		s.tcp[name] = s.addrs[name] + ":7400"
		s.start(name)
	}
	return s
}

// cut begins or ends the loss of all frames that from sends to to: while they are lost, frames go to an address that
// nobody has.
func (s *island) cut(from, to string, lost bool) {
	args := []string{}
	dev := s.bridge
	if from != "client" {
		args, dev = []string{"-n", s.in[from][3]}, "eth0"
	}
	if lost {
		args = append(args, "neigh", "replace", s.addrs[to], "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", dev)
	} else {
		args = append(args, "neigh", "del", s.addrs[to], "dev", dev)
	}
	require.NoError(s.t, ip(args...))
}

// cuts returns which connections a round cuts: pairs of a sender and of the process that does not get its frames.
func (s *island) cuts(primary string, kind int, rnd *rand.Rand) (what string, pairs [][2]string) {
	var others []string
	for name := range s.nodes {
		if name != primary {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	one := others[rnd.IntN(2)]
	both := func(ends ...string) {
		for _, e := range ends {
			pairs = append(pairs, [2]string{primary, e}, [2]string{e, primary})
		}
	}
	switch kind {
	case 0:
		what = "primary and etcd"
		both("etcd")
	case 1:
		what, pairs = "primary to etcd", [][2]string{{primary, "etcd"}}
	case 2:
		what, pairs = "etcd to primary", [][2]string{{"etcd", primary}}
	case 3:
		what = "primary and all secondaries"
		both(others...)
	case 4:
		what = "primary and a secondary"
		both(one)
	case 5:
		what, pairs = "primary to a secondary", [][2]string{{primary, one}}
	case 6:
		what, pairs = "a secondary to the primary", [][2]string{{one, primary}}
	case 7:
		what = "primary and clients"
		both("client")
	case 8:
		what = "primary and everybody but clients"
		both(append(others, "etcd")...)
	case 9:
		what = "primary and everybody"
		both(append(others, "etcd", "client")...)
	}
	return what, pairs
}

const cutKinds = 10

// trouble stops the primary for 0.5 to 10 s, or cuts the network between it and others for 0.5 to 6 s; in every other
// ten rounds it cuts again and again. It returns a description of what it did.
func (s *island) trouble(what, primary string, round int, rnd *rand.Rand) string {
	if what == "pauses" {
		d := 500*time.Millisecond + time.Duration(rnd.IntN(9500))*time.Millisecond
		s.nodes[primary].Process.Signal(syscall.SIGSTOP)
		time.Sleep(d)
		s.nodes[primary].Process.Signal(syscall.SIGCONT)
		return fmt.Sprintf("%s is stopped for %v", primary, d)
	}
	d := 500*time.Millisecond + time.Duration(rnd.IntN(5500))*time.Millisecond
	name, pairs := s.cuts(primary, round%cutKinds, rnd)
	flaps := round/cutKinds%2 == 1
	for end := time.Now().Add(d); ; {
		for _, c := range pairs {
			s.cut(c[0], c[1], true)
		}
		if flaps {
			time.Sleep(time.Duration(50+rnd.IntN(400)) * time.Millisecond)
		} else {
			time.Sleep(d)
		}
		for _, c := range pairs {
			s.cut(c[0], c[1], false)
		}
		if time.Now().After(end) {
			break
		}
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
	}
	return fmt.Sprintf("%s (%s) cut for %v, again and again %v", name, primary, d, flaps)
}

// roundClients are clients that work for one round, on keys of that round.
type roundClients struct {
	r     *recorder
	keys  string
	stop  atomic.Bool
	done  sync.WaitGroup
	acked atomic.Int64 // when the newest acknowledged write began, in nanoseconds since r.began
}

func (s *island) work(clients []*hydra.Client, keys string) *roundClients {
	x := &roundClients{r: &recorder{began: time.Now()}, keys: keys}
	for id, c := range clients {
		for lane := range 3 {
			x.done.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(id), uint64(lane)))
				for n := 0; !x.stop.Load(); n++ {
					call := registerCall{key: x.keys + strconv.Itoa(rnd.IntN(4)), write: rnd.IntN(2) == 0, value: fmt.Sprintf("%d-%d-%d", id, lane, n)}
					began, found := time.Now(), ""
					var err error
					if call.write {
						if _, err = c.Put(context.Background(), []byte(call.key), []byte(call.value)); err == nil {
							at := began.Sub(x.r.began).Nanoseconds()
							for was := x.acked.Load(); at > was && !x.acked.CompareAndSwap(was, at); was = x.acked.Load() {
							}
						}
					} else {
						var b []byte
						if b, err = c.Get(context.Background(), []byte(call.key)); errors.Is(err, hydra.ErrNotFound) {
							err = nil
						}
						found = string(b)
					}
					x.r.done(3*id+lane, call, found, began, err, errors.Is(err, hydra.ErrUnknownOutcome))
					time.Sleep(time.Duration(rnd.IntN(4000)) * time.Microsecond)
				}
			})
		}
	}
	return x
}

// writes waits until a write that began after this call has been acknowledged, and returns how long it waited.
func (x *roundClients) writes(t *testing.T, s *island, what string) time.Duration {
	now := time.Since(x.r.began).Nanoseconds()
	require.Eventually(t, func() bool { return x.acked.Load() > now }, 60*time.Second, time.Millisecond, "no write after %s:\n%s", what, s)
	return time.Since(x.r.began) - time.Duration(now)
}

// TestClusterCut cuts the network between the primary and others, in one direction or both, for up to 6 s or again
// and again, or it stops the primary, while clients write and read over TCP. Their history is linearizable, and
// writes go on after the cut or the stop has ended.
func TestClusterCut(t *testing.T) {
	rounds := map[string]int{"cuts": *clusterCuts, "pauses": *clusterPauses}
	for number, what := range []string{"cuts", "pauses"} {
		t.Run(what, func(t *testing.T) {
			if rounds[what] == 0 {
				t.Skip("see make cut-cluster")
			}
			t.Parallel()
			s := newIsland(t, "async", number)
			s.level()
			var clients []*hydra.Client
			for range 2 {
				none := mem.NewNetwork().Open() // no shared memory: the sockets of the nodes would bypass the cuts
				t.Cleanup(func() { none.Close() })
				c, err := hydra.Dial(t.Context(), []string{"tcp:" + s.tcp["a"], "tcp:" + s.tcp["b"], "tcp:" + s.tcp["c"]}, &hydra.Options{
					Timeout: 30 * time.Second, Secret: []byte(fleetPassword), Fabrics: map[string]fabric.Domain{"shm": none},
				})
				require.NoError(t, err)
				t.Cleanup(func() { c.Close() })
				clients = append(clients, c)
			}
			rnd := rand.New(rand.NewPCG(*clusterSeed, uint64(number)))
			var operations, open, changes int
			var gaps []time.Duration
			for round := range rounds[what] {
				p, _ := s.primary()
				for ; p == ""; p, _ = s.primary() {
					time.Sleep(20 * time.Millisecond)
				}
				x := s.work(clients, fmt.Sprintf("%s-%d-", what, round))
				x.writes(t, s, "the start")
				said := s.trouble(what, p, round, rnd)
				gap := x.writes(t, s, said)
				gaps = append(gaps, gap)
				x.stop.Store(true)
				x.done.Wait()
				if q, _ := s.primary(); q != p {
					changes++
				}
				operations, open = operations+len(x.r.history), open+x.r.open
				t.Logf("%3d  %s: %d operations, %d of unknown outcome, %d refused; the next write took %v", round, said, len(x.r.history), x.r.open, x.r.refused, gap.Round(time.Millisecond))
				if got := porcupine.CheckOperationsTimeout(registers, x.r.history, time.Minute); got != porcupine.Ok {
					t.Fatalf("round %d: %s: the history is not linearizable: %v", round, said, got)
				}
			}
			slices.Sort(gaps)
			t.Logf("%s: %d rounds, %d operations, %d of unknown outcome, %d changes of the primary; all histories are linearizable; the next write: median %v, longest %v",
				what, len(gaps), operations, open, changes, gaps[len(gaps)/2], gaps[len(gaps)-1])
		})
	}
}
