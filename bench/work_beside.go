package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// What single lookups of one reader take beside writers at full speed. The processors are shared with these and with what they leave to do in the
// background, so the same reader is measured beside goroutines that only compute, one more than there were writers: so much of the tail is the
// scheduler's.
func init() {
	for _, durable := range []bool{true, false} {
		name, title := "beside-durable", "durable updates"
		if !durable {
			name, title = "beside-buffered", "buffered updates"
		}
		w := &work{
			Place: 61, Name: name, Durable: durable, Disk: true, Stores: []string{ours},
			Title: "Single lookups of one reader beside writers of random " + title + ", of 1 M records of 16+100 bytes",
			Run:   func(c *Cell) error { return runBeside(c, durable) },
		}
		for _, of := range companies {
			w.Rows = append(w.Rows, row{Metric: of.name + "_p99.9_us", Title: "p99.9 beside " + of.title + ", µs", Unit: "µs"})
		}
		for _, of := range companies {
			w.Rows = append(w.Rows, row{Metric: of.name + "_p50_us", Title: "p50 beside " + of.title + ", µs", Unit: "µs"})
		}
		addWork(w)
	}
}

// company is who is at work while the reader reads.
type company struct {
	name, title    string
	writers, loops int
}

// companies come in turns. Writers come last: after them the store has time to settle.
var companies = []company{
	{"alone", "nobody", 0, 0},
	{"loops2", "2 loops", 0, 2},
	{"loops5", "5 loops", 0, 5},
	{"writers1", "1 writer", 1, 0},
	{"writers4", "4 writers", 4, 0},
}

const (
	mostWriters   = 4
	besideTurns   = 4
	mostBeside    = 10 * time.Second // with each company, in all turns
	pauseBeside   = time.Second
	besideLookups = 1 << 19 // keys that the reader goes through before it begins again
)

// looker is a store with a call for a single lookup.
type looker interface {
	Get(key []byte) ([]byte, error)
}

func runBeside(c *Cell, durable bool) error {
	n := readRecords // as in read: fewer would fit the processor's cache
	d := &drive{shape: smallShape, clients: mostWriters, pick: func(r *random) int { return r.below(n) }}
	if err := d.track(n); err != nil {
		return err
	}
	if err := c.Fill(smallShape, n, OpenOptions{Durable: durable, Clients: mostWriters}); err != nil {
		return err
	}
	if err := c.warm(n); err != nil {
		return err
	}
	b := &beside{drive: d, store: c.store.(looker)}
	r := newRandom(uint64(c.Round) + 17)
	for range besideLookups {
		b.keys = append(b.keys, smallShape.appendKey(nil, r.below(n)))
	}
	for id := range b.writers {
		client, err := c.store.Client()
		if err != nil {
			return err
		}
		b.writers[id] = besideWriter{id: id, client: client, random: newRandom(uint64(c.Round)<<32 + uint64(id))}
	}
	limit := min(c.limit(), mostBeside)
	stop := c.profile()
	looked := make([]histogram, len(companies))
	for range besideTurns {
		for i, of := range companies {
			if err := b.measure(of, limit/besideTurns, &looked[i]); err != nil {
				return err
			}
		}
		if err := c.store.Sync(); err != nil {
			return err
		}
		time.Sleep(pauseBeside)
	}
	stop()
	for i, of := range companies {
		h := &looked[i]
		for metric, q := range map[string]float64{"p50_us": 0.5, "p99_us": 0.99, "p99.9_us": 0.999, "p99.99_us": 0.9999, "max_us": 1} {
			c.set(of.name+"_"+metric, h.quantile(q))
		}
		c.set(of.name+"_rate", float64(h.count)/limit.Seconds())
	}
	var failure error
	for id := range b.writers {
		w := &b.writers[id]
		c.set(fmt.Sprintf("commits of writer %d", id), float64(w.sequence))
		failure = errors.Join(failure, w.client.Close())
	}
	if err := errors.Join(failure, c.Close()); err != nil {
		return err
	}
	return c.Verify(smallShape, n, sampleSize, d.accept)
}

// beside is a reader and those who may be at work beside him.
type beside struct {
	drive   *drive
	store   looker
	keys    [][]byte
	next    int // of keys
	writers [mostWriters]besideWriter
}

// measure looks records up for so long, and adds what each lookup took.
func (b *beside) measure(of company, limit time.Duration, looked *histogram) error {
	var stop atomic.Bool
	var others sync.WaitGroup
	failures := make([]error, of.writers)
	for id := range of.writers {
		others.Go(func() { failures[id] = b.writers[id].write(b.drive, &stop) })
	}
	for range of.loops {
		others.Go(func() { compute(&stop) })
	}
	err := func() error {
		for start := time.Now(); ; b.next = (b.next + 1) % len(b.keys) {
			began := time.Now()
			value, err := b.store.Get(b.keys[b.next])
			took := time.Since(began)
			if err != nil {
				return err
			}
			if len(value) != b.drive.valueLen {
				return fmt.Errorf("a value of %d bytes", len(value))
			}
			looked.add(took)
			if began.Sub(start) > limit {
				return nil
			}
		}
	}()
	stop.Store(true)
	others.Wait()
	return errors.Join(append(failures, err)...)
}

// besideWriter updates records, one in a transaction.
type besideWriter struct {
	id         int
	client     Client
	random     *random
	sequence   uint32 // of its updates
	ops        Ops
	out        Outcome
	key, value []byte
}

func (w *besideWriter) write(d *drive, stop *atomic.Bool) error {
	for !stop.Load() {
		i := d.pick(w.random)
		w.sequence++
		d.last[w.id][i] = w.sequence
		w.key, w.value = d.appendKey(w.key[:0], i), d.appendValue(w.value[:0], i, version(w.id, w.sequence))
		w.ops.Reset()
		w.ops.Put(w.key, w.value)
		w.ops.Commit()
		if err := w.client.Do(&w.ops, &w.out); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	return nil
}

// compute keeps a processor busy.
func compute(stop *atomic.Bool) {
	r := newRandom(1)
	for !stop.Load() {
		r.next()
	}
}
