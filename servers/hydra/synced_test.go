package hydra

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/dbm"
	served "flashdbm/servers/shard"
)

var syncedPuts = flag.Int("hydra.synced", 0, "goroutines of TestSyncedPuts that put at the same time; 0: it is not run, as it needs the machine for itself")

// TestSyncedPuts has goroutines put, each in one key at a time, by turns into a node in sync mode by function calls,
// into it by messages, and into a database of the engine by Durable transactions. Puts into the node must not wait
// longer than the transactions: their p99 is at most that of the transactions.
func TestSyncedPuts(t *testing.T) {
	n := *syncedPuts
	if n == 0 {
		t.Skip("-hydra.synced 5000")
	}
	k := newClusterOf(t, 1, served.Sync)
	local := k.local(nil)
	db, err := dbm.Open(filepath.Join(t.TempDir(), "db"), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	value := make([]byte, 100)
	ways := []struct {
		name string
		put  func(key []byte) error
	}{
		{"Durable transactions", func(key []byte) error { return db.Put(key, value) }},
		{"calls", func(key []byte) error { _, err := local.Put(k.ctx, key, value); return err }},
		{"messages", func(key []byte) error { _, err := k.c.Put(k.ctx, key, value); return err }},
	}
	const rounds = 5
	p50, p99, rates := make([][]time.Duration, len(ways)), make([][]time.Duration, len(ways)), make([][]float64, len(ways))
	for range rounds {
		for w, way := range ways {
			times := make([][]time.Duration, n)
			var all sync.WaitGroup
			began := time.Now()
			for g := range n {
				all.Go(func() {
					for i := 0; time.Since(began) < 2*time.Second; i++ {
						key, at := fmt.Appendf(nil, "key %08d", (g*7919+i*104729)%1_000_000), time.Now()
						if !assert.NoError(t, way.put(key)) {
							return
						}
						times[g] = append(times[g], time.Since(at))
					}
				})
			}
			all.Wait()
			took := time.Since(began)
			list := slices.Concat(times...)
			slices.Sort(list)
			p50[w], p99[w] = append(p50[w], list[len(list)/2]), append(p99[w], list[len(list)*99/100])
			rates[w] = append(rates[w], float64(len(list))/took.Seconds())
		}
	}
	for w, way := range ways {
		slices.Sort(p50[w])
		slices.Sort(p99[w])
		slices.Sort(rates[w])
		t.Logf("%s: %d goroutines, %.0f/s, median %v, p99 %v", way.name, n, rates[w][rounds/2], p50[w][rounds/2], p99[w][rounds/2])
	}
	assert.LessOrEqual(t, p99[1][rounds/2], p99[0][rounds/2], "by calls")
}
