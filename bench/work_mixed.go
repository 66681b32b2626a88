package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Readers during writes: one goroutine commits durable single updates of a million records, another looks up random ones.
func init() {
	addWork(&work{
		Place: 60, Name: "mixed", Title: "One reader beside one writer: random lookups, and random durable updates, of 1 M records of 16+100 bytes",
		Durable: true, Disk: true,
		Rows: []row{
			{Metric: "reads", Title: "lookups/s", Unit: "/s"}, {Metric: "rate", Title: "commits/s", Unit: "/s"},
			{Metric: "p99.9_us", Title: "p99.9 of commits, µs", Unit: "µs"},
		},
		Run: runMixed,
	})
}

func runMixed(c *Cell) error {
	n := c.scaled(readRecords)
	d := &drive{shape: smallShape, clients: 1, perTx: 1, perPack: 1, pick: func(r *random) int { return r.below(n) }}
	if err := d.track(n); err != nil {
		return err
	}
	if err := c.Fill(smallShape, n, OpenOptions{Durable: true, Clients: 1}); err != nil {
		return err
	}
	var reading sync.WaitGroup
	var stop atomic.Bool
	var reads int
	var failure error
	packs := lookupPacks(newRandom(uint64(c.Round)), n, readPacks)
	reading.Add(1)
	start := time.Now()
	go func() {
		defer reading.Done()
		client, err := c.store.Client()
		if err != nil {
			failure = err
			return
		}
		var out Outcome
		for p := 0; !stop.Load() && err == nil; p = (p + 1) % len(packs) {
			err = client.Do(&packs[p], &out)
			reads += readPack
		}
		if out.Missing > 0 {
			err = fmt.Errorf("%d of %d records not found", out.Missing, reads)
		}
		failure = errors.Join(err, client.Close())
	}()
	_, err := d.run(c)
	stop.Store(true)
	reading.Wait()
	c.set("reads", float64(reads)/time.Since(start).Seconds())
	if err := errors.Join(err, failure, c.Close()); err != nil {
		return err
	}
	return c.Verify(smallShape, n, sampleSize, d.accept)
}
