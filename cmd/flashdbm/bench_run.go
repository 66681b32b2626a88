package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"flashdbm/dbm"
	"flashdbm/logstore/vfs"
)

// The parameters of bench. The records are like those of the benchmark in bench/, so that figures can
// be compared.
const (
	benchSteps      = 6 // of equal length
	benchPage       = 4096
	benchRawBytes   = 32 << 20 // size of the file for the bare disk, which is overwritten again and again
	benchValueBytes = 100
	benchBatch      = 100     // records in a buffered transaction
	benchWriters    = 64      // goroutines that commit at once
	benchMaxRecords = 400_000 // about 60 MB of file, which a slow card takes in seconds; the buffered step ends there
	benchFewest     = 100_000 // least records for the lookups: loaded if the disk was too slow for them
)

// benchFigure is the result of one step.
type benchFigure struct {
	Name   string        `json:"name"`
	Per    string        `json:"unit"` // what was counted
	Count  int64         `json:"count"`
	Time   time.Duration `json:"time"`
	Median time.Duration `json:"median,omitempty"` // of one call; 0 if calls were not timed
	P99    time.Duration `json:"p99,omitempty"`
	Rate   float64       `json:"per_second"`
}

// benchRun is one run of bench. Each step works until its time is over or the context ends.
type benchRun struct {
	ctx    context.Context
	raw    string // file for the bare disk
	path   string // of the database
	step   time.Duration
	ended  func(time.Duration) // called with the duration of each step
	result benchResult
}

func (b *benchRun) run() error {
	if err := b.bareDisk(); err != nil {
		return err
	}
	db, err := dbm.Open(b.path, &dbm.Options{Events: func(dbm.Event) {}})
	if err != nil {
		return err
	}
	err = b.durable(db)
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	db, err = dbm.Open(b.path, &dbm.Options{Durability: dbm.Buffered, Events: func(dbm.Event) {}})
	if err != nil {
		return err
	}
	err = b.buffered(db)
	return errors.Join(err, db.Close())
}

// measure starts goroutines that call fn until the step is over, each at least once, and appends the figure. The
// arguments of fn are the number of the goroutine and the number of the call. A call counts as the given number
// of operations (each).
func (b *benchRun) measure(f benchFigure, goroutines int, each int64, timed bool, fn func(rng *rand.Rand, worker, call int) error) error {
	var mu sync.Mutex // guards all and first, and f.Count
	var all []time.Duration
	var first error
	var workers sync.WaitGroup
	begin := time.Now()
	for w := range goroutines {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			var took []time.Duration
			var calls int64
			var err error
			for last := begin; err == nil; calls++ {
				if look := timed || calls&benchLook == 0; look && (b.ctx.Err() != nil || calls > 0 && time.Since(begin) >= b.step) {
					break
				}
				if err = fn(rng, w, int(calls)); timed {
					now := time.Now()
					took = append(took, now.Sub(last))
					last = now
				}
			}
			if errors.Is(err, errBenchEnough) {
				err = nil
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			f.Count += calls * each
			if first == nil {
				first = err
			}
		})
	}
	workers.Wait()
	f.Time = time.Since(begin)
	b.ended(f.Time)
	if first == nil {
		first = b.ctx.Err()
	}
	if first != nil {
		return fmt.Errorf("%s: %w", f.Name, first)
	}
	if len(all) > 0 {
		slices.Sort(all)
		f.Median, f.P99 = all[len(all)/2], all[len(all)*99/100]
	}
	f.Rate = float64(f.Count) / f.Time.Seconds()
	b.result.Figures = append(b.result.Figures, f)
	return nil
}

// benchLook: calls that are not timed look at the clock only when these bits of the call's number are zero.
const benchLook = 63

// errBenchEnough ends a step before its time is over.
var errBenchEnough = errors.New("there is enough")

// bareDisk writes pages to a file whose space is allocated already, like the log of a database that has grown, and
// syncs after each.
func (b *benchRun) bareDisk() (err error) {
	file, err := vfs.OS().Open(b.raw, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(b.raw)) }()
	rng := rand.New(rand.NewPCG(1, 0))
	page := make([]byte, benchPage) // random: some devices compress
	part := make([]byte, 1<<20)
	for i := 0; i < len(part); i += 8 {
		binary.LittleEndian.PutUint64(part[i:], rng.Uint64())
	}
	for at := int64(0); at < benchRawBytes; at += int64(len(part)) {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		if _, err := file.WriteAt(part, at); err != nil {
			return err
		}
	}
	if err := file.Datasync(); err != nil {
		return err
	}
	f := benchFigure{Name: "bare disk, write and sync", Per: "pages"}
	return b.measure(f, 1, 1, true, func(rng *rand.Rand, _, call int) error {
		binary.LittleEndian.PutUint64(page, rng.Uint64())
		if _, err := file.WriteAt(page, int64(call)*benchPage%benchRawBytes); err != nil {
			return err
		}
		return file.Datasync()
	})
}

// benchKey returns the key of record n. The multiplication scatters the keys of
// consecutive numbers over all keys.
func benchKey(n uint64) []byte {
	key := make([]byte, 16)
	binary.BigEndian.PutUint64(key, n*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(key[8:], n)
	return key
}

func benchValue(rng *rand.Rand) []byte {
	value := make([]byte, benchValueBytes)
	for i := 0; i+8 <= len(value); i += 8 {
		binary.LittleEndian.PutUint64(value[i:], rng.Uint64())
	}
	return value
}

// durable measures transactions of one record, synced. The numbers of its records are above those of buffered, so
// the keys differ.
func (b *benchRun) durable(db *dbm.DB) error {
	put := func(rng *rand.Rand, _, _ int) error {
		return db.Put(benchKey(rng.Uint64()%benchMaxRecords+benchMaxRecords), benchValue(rng))
	}
	if err := b.measure(benchFigure{Name: "durable, 1 goroutine", Per: "commits"}, 1, 1, true, put); err != nil {
		return err
	}
	return b.measure(benchFigure{Name: fmt.Sprintf("durable, %d goroutines", benchWriters), Per: "commits"}, benchWriters, 1, true, put)
}

// buffered measures transactions of many records that are synced in the background, and lookups of these records.
func (b *benchRun) buffered(db *dbm.DB) error {
	records := uint64(0)
	put := func(rng *rand.Rand, _, _ int) error {
		if records >= benchMaxRecords {
			return errBenchEnough
		}
		err := db.Update(func(tx *dbm.Tx) error {
			for i := range uint64(benchBatch) {
				if err := tx.Put(benchKey(records+i), benchValue(rng)); err != nil {
					return err
				}
			}
			return nil
		})
		records += benchBatch
		return err
	}
	if err := b.measure(benchFigure{Name: fmt.Sprintf("buffered, %d records each", benchBatch), Per: "records"}, 1, benchBatch, false, put); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(2, 0))
	for records < benchFewest && b.ctx.Err() == nil {
		if err := put(rng, 0, 0); err != nil {
			return err
		}
	}
	if err := db.Checkpoint(); err != nil { // lookups are measured on a database at rest
		return err
	}
	get := func(rng *rand.Rand, _, _ int) error {
		return db.View(func(tx *dbm.Tx) error {
			_, err := tx.Get(benchKey(rng.Uint64() % records))
			return err
		})
	}
	if err := b.measure(benchFigure{Name: "lookups, 1 goroutine", Per: "lookups"}, 1, 1, false, get); err != nil {
		return err
	}
	n := runtime.GOMAXPROCS(0)
	return b.measure(benchFigure{Name: fmt.Sprintf("lookups, %d goroutines", n), Per: "lookups"}, n, 1, false, get)
}
