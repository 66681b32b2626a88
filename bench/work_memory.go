package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"

	"flashdbm/dbm"
)

// Peak memory with MemoryLimit 64 MiB: every kind of work on one database, one after the other. Counted is what is resident beyond the
// mapping of the file, less what the benchmark itself had before the store was opened. A quick run has as many records: with fewer there
// would be nothing to bound.
func init() {
	addWork(&work{
		Place: 85, Name: "memory", Title: "Peak memory with MemoryLimit 64 MiB: load, updates from 64 goroutines, scan and lookups", Disk: true,
		Stores: []string{"flashdbm-64m"},
		Rows: []row{
			{Metric: "beyond_bytes", Title: "peak beyond the mapping, MiB", Unit: "MiB", Scale: 1 << 20},
			{Metric: "load_bytes", Title: "after load, MiB", Unit: "MiB", Scale: 1 << 20},
			{Metric: "update_bytes", Title: "after updates, MiB", Unit: "MiB", Scale: 1 << 20},
			{Metric: "read_bytes", Title: "after reads, MiB", Unit: "MiB", Scale: 1 << 20},
		},
		Run: runMemory,
	})
	addWork(&work{
		Place: 85, Name: "memory-large", Title: "Peak memory with MemoryLimit 64 MiB: one transaction of 300 MiB", Disk: true,
		Stores: []string{"flashdbm-64m"},
		Rows: []row{
			{Metric: "beyond_bytes", Title: "peak beyond the mapping, MiB", Unit: "MiB", Scale: 1 << 20},
			{Metric: "seconds", Title: "s", Unit: "s"},
		},
		Run: runLargeTransaction,
	})
}

// runLargeTransaction does not go through a pack, which would hold the transaction a second time.
func runLargeTransaction(c *Cell) error {
	n := 300 << 20 / (largeShape.keyLen + largeShape.valueLen)
	own := anonBytes()
	if err := c.Open(OpenOptions{Durable: true, Clients: 1}); err != nil {
		return err
	}
	stop := c.profile()
	start := time.Now()
	err := c.store.(*flashStore).Update(func(tx *dbm.Tx) error {
		var key, value []byte
		for i := range n {
			key, value = largeShape.appendKey(key[:0], i), largeShape.appendValue(value[:0], i, 0)
			if err := tx.Put(key, value); err != nil {
				return err
			}
		}
		return nil
	})
	stop()
	if err != nil {
		return err
	}
	c.set("seconds", time.Since(start).Seconds())
	if err := c.Done(); err != nil {
		return err
	}
	c.set("beyond_bytes", float64(c.memory.peak()-own))
	return c.Verify(largeShape, n, sampleSize/10, func(_ int, v uint64) bool { return v == 0 })
}

func runMemory(c *Cell) error {
	const n = 1_000_000
	limit := min(c.limit(), 10*time.Second)
	load := &drive{shape: smallShape, clients: 1, perTx: 1000, perPack: 1, total: n}
	update := &drive{shape: smallShape, clients: 64, perTx: 1, perPack: 1, pick: func(r *random) int { return r.below(100_000) }}
	if err := update.track(n); err != nil {
		return err
	}
	packs := lookupPacks(newRandom(1), n, 64)
	debug.FreeOSMemory()
	own := anonBytes()
	peak := func(metric string) {
		c.set(metric, float64(c.memory.peak()-own))
		c.set("beyond_bytes", float64(c.memory.peak()-own))
		if c.Profile != "" {
			if f, err := os.Create(c.Profile + "." + metric); err == nil {
				pprof.Lookup("heap").WriteTo(f, 0)
				f.Close()
			}
		}
		var heap runtime.MemStats
		runtime.ReadMemStats(&heap)
		c.set(strings.TrimSuffix(metric, "bytes")+"go_bytes", float64(heap.Sys-heap.HeapReleased)) // what of it is Go's, at this moment
		if s, ok := c.store.(counted); ok {
			c.set(strings.TrimSuffix(metric, "bytes")+"versions_bytes", s.Counters()["memory_bytes"])
		}
	}

	if err := c.Open(OpenOptions{Clients: 1}); err != nil {
		return err
	}
	c.timeLimit = 2 * time.Minute // the load has a number, not a time
	if _, err := load.run(c); err != nil {
		return err
	}
	peak("load_bytes")
	if err := c.Close(); err != nil {
		return err
	}
	if err := c.Open(OpenOptions{Durable: true, Clients: 64}); err != nil {
		return err
	}
	c.timeLimit = limit
	if _, err := update.run(c); err != nil {
		return err
	}
	peak("update_bytes")
	client, err := c.store.Client()
	if err != nil {
		return err
	}
	var out Outcome
	for p := range packs {
		if err := client.Do(&packs[p], &out); err != nil {
			return err
		}
	}
	var ops Ops
	ops.Scan(nil, 1<<31-1)
	if err := client.Do(&ops, &out); err != nil {
		return err
	}
	if err := client.Close(); err != nil {
		return err
	}
	peak("read_bytes")
	if err := c.Done(); err != nil {
		return err
	}
	peak("close_bytes")
	return c.Verify(smallShape, n, sampleSize, update.accept)
}
