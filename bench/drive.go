package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A drive writes: clients at once, each committing transactions of perTx records one after the other.
type drive struct {
	shape
	clients int
	perTx   int
	perPack int  // transactions in a pack; 1 measures the latency of each
	total   int  // records to write in all; 0 = until the time is over
	synced  bool // each pack is made durable by one Sync, and its latency is from the first commit to the end of that
	// pick chooses the next record of a client. nil inserts 0, 1, 2, ..., in version 0: for one client.
	pick func(r *random) int

	last []lastVersions // by client: what each wrote to each record last
}

// lastVersions has, for each record, the number of its client's last write to it; 0 = none.
type lastVersions []uint32

// version packs who wrote a value and as which of its writes. Version 0 is that of Fill and of inserts.
func version(client int, sequence uint32) uint64 { return uint64(client+1)<<32 | uint64(sequence) }

// accept tells whether a version may be what is left of record i: a client's last write to it, or the first version if no client wrote it.
func (d *drive) accept(i int, v uint64) bool {
	if v == 0 {
		for _, last := range d.last {
			if last[i] != 0 {
				return false
			}
		}
		return true
	}
	client := int(v>>32) - 1
	return client >= 0 && client < len(d.last) && d.last[client][i] == uint32(v)
}

// track makes room to remember the last versions of n records. It is outside Go's heap, whose size decides how much garbage the collector
// lets lie, and is touched before the store's memory is measured.
func (d *drive) track(n int) error {
	d.last = make([]lastVersions, d.clients)
	for i := range d.last {
		block, err := unix.Mmap(-1, 0, 4*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
		if err != nil {
			return err
		}
		d.last[i] = unsafe.Slice((*uint32)(unsafe.Pointer(&block[0])), n)
	}
	return nil
}

// run drives the cell's store and records rate, latencies and time. It returns the number of records written.
func (d *drive) run(c *Cell) (int, error) {
	perPack, total := d.perPack, d.total
	if c.Commits > 0 {
		perPack, total = 1, c.Commits*d.perTx
	}
	limit := c.limit()
	var left atomic.Int64 // records
	left.Store(int64(total))
	if total == 0 {
		left.Store(1 << 60)
	}
	stopProfile := c.profile()
	defer stopProfile()

	type worker struct {
		written int
		busy    time.Duration
		latency histogram
		err     error
	}
	workers := make([]worker, d.clients)
	var all sync.WaitGroup
	start := time.Now()
	for id := range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			w := &workers[id]
			client, err := c.store.Client()
			if err != nil {
				w.err = err
				return
			}
			defer func() { w.err = errors.Join(w.err, client.Close()) }()
			r := newRandom(uint64(c.Round)<<32 + uint64(id))
			var ops Ops
			var out Outcome
			var key, value []byte
			sequence := uint32(0)
			for time.Since(start) < limit && left.Add(-int64(perPack*d.perTx)) >= 0 {
				ops.Reset()
				for range perPack {
					for range d.perTx {
						i, v := w.written, uint64(0)
						if d.pick != nil {
							i = d.pick(r)
							sequence++
							v = version(id, sequence)
							d.last[id][i] = sequence
						}
						key, value = d.appendKey(key[:0], i), d.appendValue(value[:0], i, v)
						ops.Put(key, value)
						w.written++
					}
					ops.Commit()
				}
				began := time.Now()
				if err := client.Do(&ops, &out); err != nil {
					w.err = fmt.Errorf("commit: %w", err)
					return
				}
				if d.synced {
					if err := c.store.Sync(); err != nil {
						w.err = fmt.Errorf("sync: %w", err)
						return
					}
				}
				took := time.Since(began)
				w.busy += took
				if perPack == 1 || d.synced {
					w.latency.add(took)
				}
			}
		}()
	}
	all.Wait()
	wall := time.Since(start)

	written, latency := 0, &histogram{}
	for i := range workers {
		if workers[i].err != nil {
			return 0, workers[i].err
		}
		written += workers[i].written
		latency.merge(&workers[i].latency)
	}
	if d.clients == 1 {
		wall = workers[0].busy // without the time that making records takes
	}
	if written == 0 {
		return 0, errors.New("nothing was written")
	}
	c.set("records", float64(written))
	c.set("seconds", wall.Seconds())
	c.set("rate", float64(written)/wall.Seconds())
	if latency.count > 0 {
		c.set("p50_us", latency.quantile(0.5))
		c.set("p99_us", latency.quantile(0.99))
		c.set("p99.9_us", latency.quantile(0.999))
		c.set("max_us", latency.quantile(1))
	}
	return written, nil
}

// profile starts the CPU profile that was asked for, and returns what ends it.
func (c *Cell) profile() func() {
	if c.Profile == "" {
		return func() {}
	}
	f, err := os.Create(c.Profile)
	if err != nil {
		fatalf("profile: %v", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		fatalf("profile: %v", err)
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}
}
