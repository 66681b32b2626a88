package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var (
	benchTurn    = flag.Duration("cluster.turn", 0, "how long a turn of synced puts lasts, of a cluster and of etcd; 0: not at all")
	benchTCP     = flag.Bool("cluster.tcp", true, "nodes of the cluster reach each other over TCP, as etcd's do, and not over shared memory")
	benchClients = flag.Int("cluster.clients", 50, "how many put at the same time")
)

// etcdMembers starts an etcd of three members.
func (f *fleet) etcdMembers() (addrs []string, members []*exec.Cmd) {
	var peers, cluster []string
	for i := range 3 {
		addrs, peers = append(addrs, free(f.t)), append(peers, free(f.t))
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i, peers[i]))
	}
	for i := range 3 {
		name := fmt.Sprintf("m%d", i)
		members = append(members, f.spawn(name, "member", name, filepath.Join(f.root, "replicated-"+name), addrs[i], peers[i], strings.Join(cluster, ",")))
	}
	return addrs, members
}

// processors returns how long the processes and this one have been on a processor.
func processors(t *testing.T, list []*exec.Cmd) (all time.Duration) {
	for _, pid := range append([]int{os.Getpid()}, pidsOf(list)...) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(t, err)
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		for _, f := range fields[11:13] { // in user mode, and in the kernel
			ticks, err := strconv.Atoi(f)
			require.NoError(t, err)
			all += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return all
}

// calls returns how often the processes and this one have called read and write, and how often one of their threads
// went to sleep.
func calls(t *testing.T, list []*exec.Cmd) (io, sleeps int64) {
	for _, pid := range append([]int{os.Getpid()}, pidsOf(list)...) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		require.NoError(t, err)
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		require.NoError(t, err)
		for _, path := range threads {
			text, _ := os.ReadFile(path) // the thread may have ended
			b = append(b, text...)
		}
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(line, ":")
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			switch name {
			case "syscr", "syscw":
				io += n
			case "voluntary_ctxt_switches":
				sleeps += n
			}
		}
	}
	return io, sleeps
}

func pidsOf(list []*exec.Cmd) (pids []int) {
	for _, c := range list {
		pids = append(pids, c.Process.Pid)
	}
	return pids
}

// putFor has clients put for the duration, and returns the puts per second and a description of them.
func putFor(t *testing.T, d time.Duration, of []*exec.Cmd, put func(client int, key string) error) (rate float64, said string) {
	all, before := &latencies{}, processors(t, of)
	io, sleeps := calls(t, of)
	var done sync.WaitGroup
	var n atomic.Int64
	began := time.Now()
	for i := range *benchClients {
		done.Go(func() {
			for k := 0; time.Since(began) < d; k++ {
				at := time.Now()
				if !assert.NoError(t, put(i, fmt.Sprintf("key-%04d-%07d", i, k%1000))) {
					return
				}
				all.add(time.Since(at))
				n.Add(1)
			}
		})
	}
	done.Wait()
	rate = float64(n.Load()) / time.Since(began).Seconds()
	took, puts := processors(t, of)-before, max(n.Load(), 1)
	io2, sleeps2 := calls(t, of)
	return rate, fmt.Sprintf("%.0f/s; for each %d µs of processors, %.1f reads and writes, %.1f sleeps of a thread (%v)",
		rate, took.Microseconds()/puts, float64(io2-io)/float64(puts), float64(sleeps2-sleeps)/float64(puts), all)
}

// TestSyncedPuts measures, by turns, puts that three copies have synced and puts of an etcd of three members.
func TestSyncedPuts(t *testing.T) {
	if *benchTurn == 0 {
		t.Skip("see -cluster.turn")
	}
	f := newFleet(t, "sync", *benchTCP, "a", "b", "c")
	f.level()
	c := f.client()
	addrs, members := f.etcdMembers()
	nodes := slices.Collect(maps.Values(f.nodes))
	var stores []*clientv3.Client // etcd's own benchmark has several connections, too
	for range 10 {
		e, err := clientv3.New(clientv3.Config{Endpoints: addrs, DialTimeout: 10 * time.Second})
		require.NoError(t, err)
		defer e.Close()
		stores = append(stores, e)
	}
	value := strings.Repeat("v", 32)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := stores[0].Put(ctx, "first", value)
		return err == nil
	}, 60*time.Second, 100*time.Millisecond)
	var ratios []float64
	for range 5 {
		ours, said := putFor(t, *benchTurn, nodes, func(_ int, key string) error {
			_, err := c.Put(context.Background(), []byte(key), []byte(value))
			return err
		})
		theirs, theirSaid := putFor(t, *benchTurn, members, func(client int, key string) error {
			_, err := stores[client%len(stores)].Put(context.Background(), key, value)
			return err
		})
		t.Log("flashdbmd ", said)
		t.Log("etcd      ", theirSaid)
		ratios = append(ratios, ours/theirs)
	}
	slices.Sort(ratios)
	t.Logf("%d clients, three copies that sync: median %.1f times as many puts as etcd; of five turns %.1f to %.1f", *benchClients, ratios[2], ratios[0], ratios[4])
}
