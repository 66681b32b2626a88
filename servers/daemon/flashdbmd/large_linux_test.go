package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"flashdbm/servers/hydra"
)

var (
	largeRecords = flag.Int("large.records", 20_000, "records of TestLargerThanMemory, of 1,000 bytes")
	largeDir     = flag.String("large.dir", "", "where its file is; empty: where tests have their files. A file that is there already is used")
	largeTime    = flag.Duration("large.time", 500*time.Millisecond, "how long it reads, by each way")
)

func largeValue(b []byte, n int) []byte {
	b = append(b[:0], make([]byte, 1000)...)
	copy(b, fmt.Sprint(n))
	return b
}

// TestLargerThanMemory has a quarter of the records in memory. A node that is killed answers within 2 s of its next
// start, and GETs of random records are as fast as random reads of the device with several reads under way. With
// -large.records 10000000 there are 10 GB, and both are measured with nothing of the file in the system's cache.
func TestLargerThanMemory(t *testing.T) {
	dir := *largeDir
	if dir == "" {
		dir = t.TempDir()
	}
	n := *largeRecords
	args := []string{"--durability", "async", "--memory", fmt.Sprint(max(int64(n)*1000/4>>20, 8))}
	ctx := context.Background()
	dial := func() *hydra.Client {
		c, err := hydra.Dial(ctx, []string{"shm:" + filepath.Join(dir, "node.sock")}, &hydra.Options{Pointers: -1, Timeout: time.Minute})
		require.NoError(t, err)
		return c
	}
	d := start(t, dir, args...)
	c := dial()
	began := time.Now()
	if _, err := c.Get(ctx, keyOf(n-1)); err != nil {
		var next atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				const size = 100
				list := make([]hydra.Request, size)
				for {
					at := int(next.Add(size)) - size
					if at >= n {
						return
					}
					for i := range list {
						list[i] = hydra.Request{Kind: hydra.Put, Key: keyOf((at + i) % n), Value: largeValue(list[i].Value, (at+i)%n)}
					}
					if !assert.NoError(t, c.Batch(ctx, list)) {
						return
					}
				}
			})
		}
		all.Wait()
		require.False(t, t.Failed())
	}
	t.Logf("%d records of 1,000 bytes in %v", n, time.Since(began).Round(time.Millisecond))
	stop, cancel := context.WithCancel(ctx)
	var writers sync.WaitGroup
	for w := range 4 { // the load; the node is killed in the middle of it
		writers.Go(func() {
			for i := w; stop.Err() == nil; i += 4 {
				if _, err := c.Put(stop, keyOf(i*7919%n), largeValue(nil, i*7919%n)); err != nil {
					return
				}
			}
		})
	}
	time.Sleep(*largeTime)
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGKILL))
	cancel()
	writers.Wait()
	c.Close()
	d.cmd.Wait()

	files, err := filepath.Glob(filepath.Join(dir, "*.fdbm"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	forget := func() {
		for _, name := range files {
			f, err := os.Open(name)
			require.NoError(t, err)
			require.NoError(t, f.Sync())
			require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
			f.Close()
		}
	}
	forget()
	for _, under := range []int{1, 16, 64} {
		t.Logf("the device: %s", randomReads(t, files[0], under, *largeTime))
		forget()
	}
	began = time.Now()
	d = start(t, dir, args...)
	c = dial()
	defer c.Close()
	got, err := c.Get(ctx, keyOf(n/2))
	answered := time.Since(began)
	require.NoError(t, err)
	require.Equal(t, largeValue(nil, n/2), got)
	t.Logf("the first answer %v after the start behind a kill", answered.Round(time.Millisecond))
	if *largeDir != "" {
		assert.Less(t, answered, 2*time.Second)
	}
	for _, clients := range []int{1, 16, 64} {
		var all sync.WaitGroup
		times := make([][]time.Duration, clients)
		began := time.Now()
		for g := range clients {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), rand.Uint64()))
				for time.Since(began) < *largeTime {
					at, i := time.Now(), r.IntN(n)
					got, err := c.Get(ctx, keyOf(i))
					times[g] = append(times[g], time.Since(at))
					if !assert.NoError(t, err) || !assert.Equal(t, string(largeValue(nil, i)[:12]), string(got[:12])) {
						return
					}
				}
			})
		}
		all.Wait()
		t.Logf("GETs of random records by %d goroutines: %s", clients, rate(times, time.Since(began)))
	}
	if *largeDir == "" {
		return
	}
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
}

func rate(times [][]time.Duration, took time.Duration) string {
	all := slices.Concat(times...)
	slices.Sort(all)
	n := len(all)
	return fmt.Sprintf("%.0f/s, median %v, p99 %v", float64(n)/took.Seconds(), all[n/2].Round(time.Microsecond), all[n*99/100].Round(time.Microsecond))
}

// randomReads reads random pages of a file, with under reads under way at a time.
func randomReads(t *testing.T, name string, under int, each time.Duration) string {
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM))
	var all sync.WaitGroup
	times := make([][]time.Duration, under)
	began := time.Now()
	for g := range under {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), rand.Uint64()))
			page := make([]byte, 4096)
			for time.Since(began) < each {
				at := time.Now()
				_, err := f.ReadAt(page, r.Int64N(info.Size()/4096)*4096)
				times[g] = append(times[g], time.Since(at))
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	all.Wait()
	return fmt.Sprintf("%d reads of 4 KiB under way: %s", under, rate(times, time.Since(began)))
}
