package main

import (
	"fmt"
	"sync"
	"time"
)

// What a user meets first: a store that has just been loaded, with all that the load has left to do still under way, and one that has
// just been opened. The load is a million records of 16+100 bytes in random order of keys, 1,000 per transaction.
func init() {
	for _, goroutines := range []int{1, 16} {
		addWork(&work{
			Place: 45, Name: fmt.Sprintf("behind-read%d", goroutines), Disk: true,
			Title: fmt.Sprintf("1 M random lookups by %d goroutines right behind an unsynced load of 1 M records of 16+100 bytes", goroutines),
			Rows: []row{
				{Metric: "rate", Title: "lookups/s", Unit: "/s"}, {Metric: "first_ms", Title: "longest first pack of 128, ms", Unit: "ms"},
				{Metric: "load_rate", Title: "load, records/s", Unit: "/s"},
			},
			Run: func(c *Cell) error { return runBehindRead(c, goroutines) },
		})
	}
	addWork(&work{
		Place: 46, Name: "behind-rand1", Title: "Random durable updates, one per transaction, right behind a durable load of 1 M records of 16+100 bytes",
		Durable: true, Disk: true, Raw: true,
		Rows: append(append([]row{}, latencyRows...), writeRows...),
		Run:  runBehindUpdates,
	})
	addWork(&work{
		Place: 47, Name: "first-scan", Title: "First full scan behind Open, page cache warm, of 1 M records of 16+100 bytes loaded in random order", Disk: true,
		Extra: []string{"flashdbm-cursor"},
		Rows: []row{
			{Metric: "rate", Title: "first, records/s", Unit: "/s"}, {Metric: "warm_rate", Title: "second, records/s", Unit: "/s"},
			{Metric: "open_ms", Title: "open, ms", Unit: "ms"},
		},
		Run: runFirstScan,
	})
}

func runBehindRead(c *Cell, goroutines int) error {
	n := c.scaled(readRecords)
	packs := make([][]Ops, goroutines)
	for g := range packs {
		packs[g] = lookupPacks(newRandom(uint64(c.Round)<<32+uint64(g)+17), n, n/goroutines/readPack)
	}
	if err := c.Open(OpenOptions{Clients: 1}); err != nil {
		return err
	}
	start := time.Now()
	if err := c.load(smallShape, n); err != nil {
		return err
	}
	c.set("load_rate", float64(n)/time.Since(start).Seconds())
	stop := c.profile()
	firsts, failures := make([]time.Duration, goroutines), make([]error, goroutines)
	var all sync.WaitGroup
	start = time.Now()
	for g := range goroutines {
		all.Go(func() {
			client, err := c.store.Client()
			if err != nil {
				failures[g] = err
				return
			}
			var out Outcome
			for p := range packs[g] {
				if err := client.Do(&packs[g][p], &out); err != nil {
					failures[g] = err
					return
				}
				if p == 0 {
					firsts[g] = time.Since(start)
				}
			}
			if out.Missing > 0 {
				failures[g] = fmt.Errorf("%d records not found", out.Missing)
				return
			}
			failures[g] = client.Close()
		})
	}
	all.Wait()
	took := time.Since(start)
	stop()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	longest := time.Duration(0)
	for _, d := range firsts {
		longest = max(longest, d)
	}
	c.set("rate", float64(goroutines*len(packs[0])*readPack)/took.Seconds())
	c.set("first_ms", longest.Seconds()*1e3)
	if err := c.Close(); err != nil {
		return err
	}
	return c.Verify(smallShape, n, sampleSize/10, func(_ int, v uint64) bool { return v == 0 })
}

func runBehindUpdates(c *Cell) error {
	n := c.scaled(readRecords)
	d := &drive{shape: smallShape, clients: 1, perTx: 1, perPack: 1, pick: func(r *random) int { return r.below(n) }}
	if err := d.track(n); err != nil {
		return err
	}
	if err := c.Open(OpenOptions{Durable: true, Clients: 1}); err != nil {
		return err
	}
	if !c.engine.Baseline {
		if err := c.load(smallShape, n); err != nil {
			return err
		}
	}
	return d.updateAll(c, n)
}

func runFirstScan(c *Cell) error {
	n := readRecords // as in scan
	if err := c.Open(OpenOptions{Clients: 1}); err != nil {
		return err
	}
	if err := c.load(smallShape, n); err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return err
	}
	start := time.Now()
	if err := c.Open(OpenOptions{Clients: 1}); err != nil {
		return err
	}
	c.set("open_ms", time.Since(start).Seconds()*1e3)
	stop := c.profile()
	for _, metric := range []string{"rate", "warm_rate"} {
		start = time.Now()
		if err := c.warm(n); err != nil {
			return err
		}
		c.set(metric, float64(n)/time.Since(start).Seconds())
	}
	stop()
	if err := c.Close(); err != nil {
		return err
	}
	return c.Verify(smallShape, n, sampleSize/10, func(_ int, v uint64) bool { return v == 0 })
}
