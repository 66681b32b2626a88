package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/hydra"
)

var clusterDemo = flag.Duration("cluster.demo", 0, "how long each part of the demo of a cluster works; 0: it is left out")

// A registerCall is a call on a key, for the checker: it writes a value or reads one.
type registerCall struct {
	key   string
	write bool
	value string
}

var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(registerCall).key
			by[k] = append(by[k], o)
		}
		var parts [][]porcupine.Operation
		for _, p := range by {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		if c := input.(registerCall); c.write {
			return true, c.value
		}
		return state == output, state
	},
}

// A recorder records a history, and when writes were acknowledged.
type recorder struct {
	began   time.Time
	mu      sync.Mutex
	history []porcupine.Operation
	last    time.Time // time of the last acknowledged write
	longest time.Duration
	writes  int
	refused int
	open    int
}

func (r *recorder) done(client int, c registerCall, found string, began time.Time, err error, unknown bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	o := porcupine.Operation{ClientId: client, Input: c, Output: found, Call: began.Sub(r.began).Nanoseconds(), Return: now.Sub(r.began).Nanoseconds()}
	switch {
	case err != nil && (!c.write || !unknown):
		r.refused++
		return
	case err != nil:
		r.open++
		o.Return = math.MaxInt64
	case c.write:
		if r.writes++; !r.last.IsZero() {
			r.longest = max(r.longest, now.Sub(r.last))
		}
		r.last = now
	}
	r.history = append(r.history, o)
}

// part returns the longest time without an acknowledged write since the last call of part, and the number of writes
// in that time.
func (r *recorder) part() (time.Duration, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.longest, r.writes = 0, 0 }()
	return r.longest, r.writes
}

// TestClusterDemo is make demo-cluster: three nodes, and clients of the library and of Redis that work. The primary
// is killed, a node is added, the primary is drained. At the end the history of all operations is checked.
func TestClusterDemo(t *testing.T) {
	if *clusterDemo == 0 {
		t.Skip("see make demo-cluster")
	}
	f := newFleet(t, "async", true, "a", "b", "c")
	f.level()
	p, _ := f.primary()
	fmt.Printf("three nodes of a cluster, each a process with a directory of its own, on an etcd of one process; a write is acknowledged once all copies have it in memory\nnode %s serves\n\n", p)
	r := &recorder{began: time.Now()}
	var stop atomic.Bool
	var done sync.WaitGroup
	c := f.client()
	const keys = 8
	for id := range 4 {
		done.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(id), 1))
			for n := 0; !stop.Load(); n++ {
				call := registerCall{key: "key-" + strconv.Itoa(rnd.IntN(keys)), write: rnd.IntN(2) == 0, value: fmt.Sprintf("%d-%d", id, n)}
				began, found := time.Now(), ""
				var err error
				if call.write {
					_, err = c.Put(context.Background(), []byte(call.key), []byte(call.value))
				} else {
					var b []byte
					if b, err = c.Get(context.Background(), []byte(call.key)); errors.Is(err, hydra.ErrNotFound) {
						err = nil
					}
					found = string(b)
				}
				r.done(id, call, found, began, err, errors.Is(err, hydra.ErrUnknownOutcome))
				time.Sleep(time.Duration(rnd.IntN(2000)) * time.Microsecond)
			}
		})
	}
	for id := 4; id < 6; id++ {
		done.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(id), 1))
			var x redis.Conn
			for n := 0; !stop.Load(); n++ {
				if x == nil { // any node answers for any key: use another node if this one is gone
					names := []string{"a", "b", "c", "d"}
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					s, err := askStatus(ctx, f.dir(names[rnd.IntN(len(names))]), "")
					cancel()
					if err != nil {
						time.Sleep(20 * time.Millisecond)
						continue
					}
					if x, err = redis.Dial("tcp", s.RESP, redis.DialPassword(fleetPassword), redis.DialReadTimeout(15*time.Second)); err != nil {
						x = nil
						continue
					}
				}
				call := registerCall{key: "key-" + strconv.Itoa(rnd.IntN(keys)), write: rnd.IntN(2) == 0, value: fmt.Sprintf("%d-%d", id, n)}
				began, found := time.Now(), ""
				var err error
				if call.write {
					_, err = x.Do("SET", call.key, call.value)
				} else if found, err = redis.String(x.Do("GET", call.key)); errors.Is(err, redis.ErrNil) {
					err = nil
				}
				r.done(id, call, found, began, err, true)
				if err != nil {
					x.Close()
					x = nil
				}
				time.Sleep(time.Duration(rnd.IntN(2000)) * time.Microsecond)
			}
		})
	}
	say := func(what string) {
		gap, writes := r.part()
		fmt.Printf("%-58s %7d writes; %6d ms was the longest time without one\n", what, writes, gap.Milliseconds())
	}
	time.Sleep(*clusterDemo)
	say("four goroutines of the library and two clients of Redis:")
	require.NoError(t, f.nodes[p].Process.Kill())
	f.nodes[p].Wait()
	q := ""
	require.Eventually(t, func() bool { q, _ = f.primary(); return q != "" && q != p }, time.Minute, 10*time.Millisecond, "%s", f)
	time.Sleep(*clusterDemo)
	say(fmt.Sprintf("node %s was killed (-9), node %s serves:", p, q))
	f.start(p)
	f.level()
	time.Sleep(*clusterDemo)
	say(fmt.Sprintf("node %s was started again, and is in sync:", p))
	f.start("d")
	time.Sleep(*clusterDemo)
	q, _ = f.primary()
	require.NoError(t, runDrain("drain", []string{"--etcd", "http://" + f.at, "--node", q}, func(string) (string, bool) { return "", false }, io.Discard), "%s", f)
	require.NoError(t, f.nodes[q].Process.Signal(syscall.SIGTERM))
	require.NoError(t, f.nodes[q].Wait(), "%s", f)
	delete(f.nodes, q)
	f.level()
	time.Sleep(*clusterDemo)
	q2, _ := f.primary()
	say(fmt.Sprintf("node d was added, node %s was drained and ended, %s serves:", q, q2))
	stop.Store(true)
	done.Wait()
	fmt.Printf("\n%d operations, %d of unknown outcome, %d refused; ", len(r.history), r.open, r.refused)
	if got := porcupine.CheckOperationsTimeout(registers, r.history, time.Minute); got != porcupine.Ok {
		fmt.Printf("they are not linearizable (%v)\n", got)
		t.Fatal("the history is not linearizable: ", got)
	}
	fmt.Printf("all of them are linearizable: each read has\nfound what was written last\n")
}
