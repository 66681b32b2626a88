package main

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// YCSB's core workloads: records of 1 KB, zipfian requests of skew 0.99, two threads, commits unsynced. The database is loaded once and
// A, B, C, F, D, E run on it one after the other. D inserts, so E meets the more records the faster D was: 1.3 M where a store did 1.1 M
// operations a second in D, 640,000 where another one did 440,000. YCSB advises to load the database again before E; reloaded-E does.
func init() {
	rows := []row{}
	for _, m := range ycsbMixes {
		rows = append(rows, row{Metric: "ycsb-" + m.name, Title: m.name + ": " + m.title, Unit: "/s"})
	}
	addWork(&work{
		Place: 50, Name: "ycsb", Title: "YCSB A-F: 200,000 records of 1 KB, zipfian 0.99, 2 threads, unsynced, operations/s", Disk: true,
		Rows: append(append(rows, ycsbRows...), writeRows...), Run: func(c *Cell) error { return runYCSB(c, ycsbMixes) },
	})
	e := ycsbMixes[len(ycsbMixes)-1]
	addWork(&work{
		Place: 50, Name: "reloaded-E", Title: "YCSB E on a database of 200,000 records of 1 KB that was loaded for it, unsynced, operations/s", Disk: true,
		Rows: append(append([]row{{Metric: "ycsb-E", Title: e.name + ": " + e.title, Unit: "/s"}}, ycsbRows...), writeRows...),
		Run:  func(c *Cell) error { return runYCSB(c, []ycsbMix{e}) },
	})
	for _, m := range ycsbMixes {
		if m.name != "A" && m.name != "F" && m.name != "D" {
			continue
		}
		addWork(&work{
			Place: 51, Name: "burst-" + m.name,
			Title: "YCSB " + m.name + " as a burst: 400,000 operations of 2 threads right behind the load of 200,000 records of 1 KB, tmpfs, unsynced",
			Rows: []row{
				{Metric: "rate", Title: "operations/s", Unit: "/s"}, {Metric: "load_rate", Title: "load, records/s", Unit: "/s"},
				{Metric: "disk_per_byte", Title: "space per byte", Unit: "x"},
			},
			Run: func(c *Cell) error { return runBurst(c, m) },
		})
	}
}

// ycsbMix is one of the workloads: shares of operations, adding up to 1, and whether requests go to the latest records.
type ycsbMix struct {
	name, title                         string
	read, update, insert, scan, rewrite float64
	latest                              bool
}

var ycsbMixes = []ycsbMix{
	{name: "A", title: "half updates", read: 0.5, update: 0.5},
	{name: "B", title: "5 % updates", read: 0.95, update: 0.05},
	{name: "C", title: "reads", read: 1},
	{name: "F", title: "half read and then written", read: 0.5, rewrite: 0.5},
	{name: "D", title: "the latest, 5 % inserts", read: 0.95, insert: 0.05, latest: true},
	{name: "E", title: "scans of up to 100, 5 % inserts", scan: 0.95, insert: 0.05},
}

var ycsbRows = []row{
	{Metric: "load_rate", Title: "load, records/s", Unit: "/s"}, {Metric: "records", Title: "records at the end", Unit: ""},
}

const (
	ycsbRecords = 200_000
	ycsbThreads = 2
	ycsbPack    = 32
	burstOps    = 400_000
)

func runYCSB(c *Cell, mixes []ycsbMix) error {
	n := c.scaled(ycsbRecords)
	start := time.Now()
	if err := c.fillIn(c.Dir, largeShape, n); err != nil {
		return err
	}
	c.set("load_rate", float64(n)/time.Since(start).Seconds())
	if err := c.Open(OpenOptions{Clients: ycsbThreads}); err != nil {
		return err
	}
	limit := c.limit()
	if c.Quick {
		limit = 400 * time.Millisecond
	}
	// Room for what is inserted; each thread takes the numbers of new records from one counter.
	d := &drive{shape: largeShape, clients: ycsbThreads}
	if err := d.track(n + ycsbInserts); err != nil {
		return err
	}
	var inserted insertCounter
	inserted.next.Store(int64(n))
	sequence := make([]uint32, ycsbThreads)
	c.Start()
	for _, m := range mixes {
		rate, err := m.run(c, d, n, limit, math.MaxInt64, &inserted, sequence)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		c.set("ycsb-"+m.name, rate)
	}
	if err := c.Done(); err != nil {
		return err
	}
	total := int(inserted.next.Load())
	c.set("records", float64(total))
	c.set("disk_per_byte", c.result.Metrics["disk_bytes"]/float64(total*(largeShape.keyLen+largeShape.valueLen)))
	return c.Verify(largeShape, total, sampleSize/5, d.accept)
}

// runBurst loads and goes on at once with a fixed number of operations: what a user meets whose program writes, then works, and never
// waits for the store to settle.
func runBurst(c *Cell, m ycsbMix) error {
	n := c.scaled(ycsbRecords)
	if err := c.Open(OpenOptions{Clients: ycsbThreads}); err != nil {
		return err
	}
	d := &drive{shape: largeShape, clients: ycsbThreads}
	if err := d.track(n + burstOps); err != nil {
		return err
	}
	start := time.Now()
	if err := c.load(largeShape, n); err != nil {
		return err
	}
	c.set("load_rate", float64(n)/time.Since(start).Seconds())
	var inserted insertCounter
	inserted.next.Store(int64(n))
	c.Start()
	stop := c.profile()
	rate, err := m.run(c, d, n, time.Hour, int64(c.scaled(burstOps)), &inserted, make([]uint32, ycsbThreads))
	stop()
	if err != nil {
		return err
	}
	c.set("rate", rate)
	if err := c.Done(); err != nil {
		return err
	}
	total := int(inserted.next.Load())
	c.set("disk_per_byte", c.result.Metrics["disk_bytes"]/float64(total*(largeShape.keyLen+largeShape.valueLen)))
	return c.Verify(largeShape, total, sampleSize/5, d.accept)
}

// ycsbInserts is more than fit in the time.
const ycsbInserts = 6_000_000

// insertCounter numbers new records and tells up to which all are committed.
type insertCounter struct {
	next    atomic.Int64
	pending [ycsbThreads]atomic.Int64 // by thread: at most the lowest number that it took and has not committed
}

// take returns a number for a thread. What it stores in pending comes before the number is taken, so committed never passes it.
func (n *insertCounter) take(thread int) int {
	if n.pending[thread].Load() == math.MaxInt64 {
		n.pending[thread].Store(n.next.Load())
	}
	return int(n.next.Add(1)) - 1
}

// committed returns a number below which all records are committed.
func (n *insertCounter) committed() int {
	lowest := n.next.Load()
	for t := range n.pending {
		lowest = min(lowest, n.pending[t].Load())
	}
	return int(lowest)
}

// run drives one mix until the time or the number of operations is over, and returns the operations per second.
func (m ycsbMix) run(c *Cell, d *drive, n int, limit time.Duration, total int64, inserted *insertCounter, sequence []uint32) (float64, error) {
	var all sync.WaitGroup
	var left atomic.Int64
	left.Store(total)
	counts, failures := make([]int, ycsbThreads), make([]error, ycsbThreads)
	popular, scattered := newZipfian(n, 0.99, false), newZipfian(n, 0.99, true)
	for t := range inserted.pending {
		inserted.pending[t].Store(math.MaxInt64)
	}
	start := time.Now()
	for t := range ycsbThreads {
		all.Add(1)
		go func() {
			defer all.Done()
			client, err := c.store.Client()
			if err != nil {
				failures[t] = err
				return
			}
			defer func() { failures[t] = errors.Join(failures[t], client.Close()) }()
			r := newRandom(uint64(c.Round)<<32 + uint64(t)<<16 + uint64(m.name[0]))
			var ops Ops
			var out Outcome
			var key, value []byte
			put := func(i int, v uint64) {
				key, value = d.appendKey(key[:0], i), d.appendValue(value[:0], i, v)
				ops.Put(key, value)
				ops.Commit()
			}
			reads := uint64(0)
			for time.Since(start) < limit && left.Add(-ycsbPack) >= 0 {
				ops.Reset()
				committed := inserted.committed()
				for range ycsbPack {
					i := scattered.draw(r)
					if m.latest {
						i = max(0, committed-1-popular.draw(r))
					}
					switch u := r.float(); {
					case u < m.read+m.rewrite:
						key = d.appendKey(key[:0], i)
						ops.Get(key)
						reads++
						if u < m.read {
							break
						}
						fallthrough
					case u < m.read+m.rewrite+m.update:
						sequence[t]++
						d.last[t][i] = sequence[t]
						put(i, version(t, sequence[t]))
					case u < m.read+m.rewrite+m.update+m.insert:
						i := inserted.take(t)
						if i >= len(d.last[t]) {
							failures[t] = errors.New("more inserts than there is room for")
							return
						}
						put(i, 0)
					default:
						key = d.appendKey(key[:0], i)
						ops.Scan(key, 1+r.below(100))
					}
					counts[t]++
				}
				if err := client.Do(&ops, &out); err != nil {
					failures[t] = err
					return
				}
				inserted.pending[t].Store(math.MaxInt64)
			}
			if out.Found != reads {
				failures[t] = fmt.Errorf("%d of %d records found", out.Found, reads)
			}
		}()
	}
	all.Wait()
	done := 0
	for _, n := range counts {
		done += n
	}
	return float64(done) / time.Since(start).Seconds(), errors.Join(failures...)
}
