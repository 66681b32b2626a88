package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Reading: random lookups among a million records of 16+100 bytes by one and by two threads, and scans of all. The database is filled
// once for each store, in key order, and shared by the rounds; it is opened again for each cell and read whole once before the clock runs.
func init() {
	addWork(&work{
		Place: 40, Name: "read", Title: "Random lookups among 1 M records of 16+100 bytes, 1 and 2 threads", Disk: true, Raw: true,
		Rows: []row{
			{Metric: "rate", Title: "1 thread, lookups/s", Unit: "/s"}, {Metric: "rate2", Title: "2 threads, lookups/s", Unit: "/s"},
			{Metric: "scaling", Title: "2 threads against 1", Unit: "x"},
		},
		Run: runRead,
	})
	addWork(&work{
		Place: 40, Name: "scan", Title: "Scan of 1 M records of 16+100 bytes", Disk: true,
		Rows: []row{{Metric: "rate", Title: "records/s", Unit: "/s"}},
		Run:  runScan,
	})
}

const readPack = 128 // lookups in a pack, which is one snapshot where a store has them

// openBase opens the database that the cells which only read share; the first one fills it.
func (c *Cell) openBase(s shape, n int) error {
	dir := filepath.Join(c.BaseDir, fmt.Sprintf("%s-%d-%d", c.Store, s.valueLen, n))
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err != nil {
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "db"), 0o700)); err != nil {
			return err
		}
		if err := c.fillIn(filepath.Join(dir, "db"), s, n); err != nil {
			return err
		}
		if err := os.WriteFile(complete, nil, 0o600); err != nil {
			return err
		}
	}
	c.Dir = filepath.Join(dir, "db")
	return c.Open(OpenOptions{Clients: 1})
}

// readRecords is the number of records of read and scan; a quick run keeps it, because a smaller database would be another workload: one
// that fits the processor's cache.
const readRecords = 1_000_000

func runRead(c *Cell) error {
	n := readRecords
	switch {
	case c.engine.Baseline:
		if err := c.Open(OpenOptions{}); err != nil {
			return err
		}
		c.store.(*rawStore).Chase()
	default:
		if err := c.openBase(smallShape, n); err != nil {
			return err
		}
		if err := c.warm(n); err != nil {
			return err
		}
	}
	limit := min(c.limit()/2, 5*time.Second)
	if _, err := lookups(c, 1, n, limit/4); err != nil {
		return err
	}
	stop := c.profile()
	one, err := lookups(c, 1, n, limit)
	stop()
	if err != nil {
		return err
	}
	two, err := lookups(c, 2, n, limit)
	if err != nil {
		return err
	}
	c.set("rate", one)
	c.set("rate2", two)
	c.set("scaling", two/one)
	if err := c.Close(); err != nil || c.engine.Baseline {
		return err
	}
	return c.Verify(smallShape, n, sampleSize/10, func(_ int, v uint64) bool { return v == 0 })
}

// warm reads everything once.
func (c *Cell) warm(n int) error {
	client, err := c.store.Client()
	if err != nil {
		return err
	}
	var ops Ops
	var out Outcome
	ops.Scan(nil, 1<<31-1)
	if err := client.Do(&ops, &out); err != nil {
		return err
	}
	if out.Scanned != uint64(n) {
		return fmt.Errorf("%d records instead of %d", out.Scanned, n)
	}
	return client.Close()
}

// readPacks is the number of packs that a reader goes through before it begins again: half a million lookups, far more than the
// processor caches the pages of.
const readPacks = 4096

// lookups runs random lookups of n records from several threads and returns how many there were a second. All must be found.
func lookups(c *Cell, threads, n int, limit time.Duration) (float64, error) {
	counts, failures := make([]int, threads), make([]error, threads)
	var ready, all sync.WaitGroup
	ready.Add(threads)
	all.Add(threads)
	for t := range threads {
		go func() {
			defer all.Done()
			packs := lookupPacks(newRandom(uint64(c.Round)<<32+uint64(t)+17), n, readPacks)
			client, err := c.store.Client()
			ready.Done()
			if err != nil {
				failures[t] = err
				return
			}
			ready.Wait()
			var out Outcome
			start := time.Now()
			for p := 0; time.Since(start) < limit; p = (p + 1) % len(packs) {
				if err := client.Do(&packs[p], &out); err != nil {
					failures[t] = err
					return
				}
				counts[t] += readPack
			}
			if out.Missing > 0 {
				err = fmt.Errorf("%d of %d records not found", out.Missing, counts[t])
			}
			failures[t] = errors.Join(err, client.Close())
		}()
	}
	all.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / limit.Seconds(), errors.Join(failures...)
}

// lookupPacks makes a reader's packs of lookups among n records before the clock runs.
func lookupPacks(r *random, n, count int) []Ops {
	packs := make([]Ops, count)
	var key []byte
	for p := range packs {
		packs[p].buf = make([]byte, 0, readPack*(9+16))
		for range readPack {
			key = smallShape.appendKey(key[:0], r.below(n))
			packs[p].Get(key)
		}
	}
	return packs
}

func runScan(c *Cell) error {
	n := readRecords
	if err := c.openBase(smallShape, n); err != nil {
		return err
	}
	if err := c.warm(n); err != nil {
		return err
	}
	client, err := c.store.Client()
	if err != nil {
		return err
	}
	var ops Ops
	var out Outcome
	ops.Scan(nil, 1<<31-1)
	stop := c.profile()
	start, limit := time.Now(), min(c.limit()/2, 4*time.Second)
	for rounds := 0; rounds < 3 || time.Since(start) < limit; rounds++ {
		if err := client.Do(&ops, &out); err != nil {
			return err
		}
		if out.Scanned != uint64((rounds+1)*n) {
			return fmt.Errorf("%d records in %d scans of %d", out.Scanned, rounds+1, n)
		}
	}
	c.set("rate", float64(out.Scanned)/time.Since(start).Seconds())
	stop()
	if err := errors.Join(client.Close(), c.Close()); err != nil {
		return err
	}
	return c.Verify(smallShape, n, sampleSize/10, func(_ int, v uint64) bool { return v == 0 })
}
