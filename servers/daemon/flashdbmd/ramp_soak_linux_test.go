package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/shm"
	"flashdbm/servers/ramp"
)

var (
	rampTxns = flag.Int64("ramp.txns", 0, "transactions of TestRampClusterSoak")
	rampTime = flag.Duration("ramp.time", time.Hour, "and how long it lasts at most")
)

// A doomedClient dies between the phases of its first transaction of several partitions: its connections end, and
// nobody learns what became of the transaction.
func doomedClient(t *testing.T, addrs []string) bool {
	memory, err := shm.Open()
	require.NoError(t, err)
	died := make(chan struct{})
	o := rampOptions()
	o.Fabrics = map[string]fabric.Domain{"shm": memory}
	o.BeforeCommit = func(ramp.Timestamp) {
		close(died)
		runtime.Goexit() // this goroutine ends and never unlocks the client's lock
	}
	c, err := ramp.Dial(context.Background(), addrs, o)
	if err != nil {
		memory.Close()
		return false
	}
	failed := make(chan error, 1)
	w := &rampLoad{t: t}
	go func() {
		for r := rand.New(rand.NewPCG(rand.Uint64(), 1)); ; {
			before := w.puts.Load()
			if w.write(c, r); w.puts.Load() == before { // the client has lost its partitions
				failed <- ramp.ErrUnavailable
				return
			}
		}
	}()
	select {
	case <-died:
		memory.Close()
		go c.Close() // Close waits for the client's lock for ever; it runs for what the client still has in this process
		return true
	case <-failed:
		c.Close()
		memory.Close()
		return false
	}
}

// TestRampClusterSoak has clients write and read transactions until there are -ramp.txns of them, while nodes are
// killed and started again and clients die between the phases. No transaction is seen in part, nothing that was
// acknowledged is lost, and nothing stays prepared.
func TestRampClusterSoak(t *testing.T) {
	if *rampTxns == 0 {
		t.Skip("see make soak-ramp")
	}
	f, first := newRampFleet(t, *rampModes)
	w := &rampLoad{t: t}
	var addrs []string
	for name := range f.nodes {
		addrs = append(addrs, "shm:"+filepath.Join(f.dir(name), "node.sock"))
	}
	clients := []*ramp.Client{first}
	for i := range 3 {
		o := rampOptions()
		o.Slots = []int{0, -1, 0}[i]
		c, err := ramp.Dial(t.Context(), addrs, o)
		require.NoError(t, err)
		defer c.Close()
		clients = append(clients, c)
	}
	for _, c := range clients {
		w.begin(c, 2, 14)
	}
	kills, dead, said := 0, 0, time.Now()
	say := func() {
		fmt.Printf("%s: %d transactions written, %d read, %d of unknown outcome, %d refused; %d nodes killed, %d clients dead between the phases; the slowest call took %v\n",
			*rampModes, w.puts.Load(), w.gets.Load(), w.unknown.Load(), w.refused.Load(), kills, dead, time.Duration(w.slowest.Load()).Round(time.Millisecond))
	}
	for end := time.Now().Add(*rampTime); w.puts.Load()+w.gets.Load() < *rampTxns && time.Now().Before(end) && !t.Failed(); {
		for next := time.Now().Add(time.Duration(5+rand.IntN(15)) * time.Second); time.Now().Before(next); time.Sleep(500 * time.Millisecond) {
			if doomedClient(t, addrs) {
				dead++
			}
		}
		f.rampLevel(false) // otherwise this node may have the only copy of a partition; with async and memory that partition would serve nothing until all nodes are back
		name := f.rampPrimary(rand.IntN(rampPartitions))
		if name == "" {
			continue
		}
		require.NoError(t, f.nodes[name].Process.Kill())
		f.nodes[name].Wait()
		kills++
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
		f.start(name)
		f.rampLevel(false)
		if time.Since(said) > time.Minute {
			said = time.Now()
			say()
		}
	}
	w.end()
	for range 3 { // by messages, and by Reads
		w.read(first, rand.Perm(rampKeys))
	}
	f.rampLevel(true)
	say()
	require.False(t, t.Failed(), f.String())
}
