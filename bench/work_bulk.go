package main

import (
	"errors"
	"fmt"
	"iter"
	"time"
)

// Sorted records into an empty store, by the way that each has for it, durable at the end: ours by DB.Load, LMDB by MDB_APPEND in one transaction, Pebble by
// tables that are written beside it and ingested. The baselines write as many bytes as the records have, from the beginning of a file to its
// end, and sync it: one through the page cache, one past it, which is what the device can do.
func init() {
	addWork(&work{
		Place: 95, Name: "bulk", Title: "10 M sorted records of 16+100 bytes into an empty store, by its own way for that", Disk: true, Raw: true,
		Stores: []string{"flashdbm-load", "lmdb-append", "pebble-ingest", "raw-sequential", "raw-direct"},
		Rows: []row{{Metric: "rate", Title: "records/s", Unit: "/s"}, {Metric: "payload_mb", Title: "payload, MB/s", Unit: "MB/s"},
			{Metric: "device_mb", Title: "of the file, MB/s", Unit: "MB/s"}},
		Run: runBulk,
	})
}

// bulkLoader is a store that takes records in one call, and returns once they survive a power cut. Others get packs of puts with one commit.
type bulkLoader interface {
	Bulk(records iter.Seq2[[]byte, []byte]) error
}

func runBulk(c *Cell) error {
	s, n := shape{16, 100, true}, c.scaled(10_000_000)
	if err := c.Open(OpenOptions{Clients: 1}); err != nil {
		return err
	}
	c.Start()
	start := time.Now()
	if err := errors.Join(bulk(c.store, s, n), c.store.Sync()); err != nil {
		return fmt.Errorf("bulk: %w", err)
	}
	seconds := time.Since(start).Seconds()
	if err := c.Done(); err != nil {
		return err
	}
	m := c.result.Metrics
	c.set("seconds", seconds)
	c.set("rate", float64(n)/seconds)
	c.set("payload_mb", float64(n)*116/seconds/1e6)
	c.set("device_mb", m["disk_bytes"]/seconds/1e6)
	return c.Verify(s, n, 10_000, func(_ int, version uint64) bool { return version == 0 })
}

func bulk(store Store, s shape, n int) error {
	if loader, ok := store.(bulkLoader); ok {
		var key, value []byte
		return loader.Bulk(func(yield func(key, value []byte) bool) {
			for i := range n {
				key, value = s.appendKey(key[:0], i), s.appendValue(value[:0], i, 0)
				if !yield(key, value) {
					return
				}
			}
		})
	}
	client, err := store.Client()
	if err != nil {
		return err
	}
	var ops Ops
	var out Outcome
	var key, value []byte
	for i := range n {
		key, value = s.appendKey(key[:0], i), s.appendValue(value[:0], i, 0)
		ops.Put(key, value)
		if i == n-1 {
			ops.Commit()
		}
		if ops.Count == fillTx || i == n-1 {
			if err := client.Do(&ops, &out); err != nil {
				return err
			}
			ops.Reset()
		}
	}
	return client.Close()
}
