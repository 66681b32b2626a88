package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"time"
)

// A cell is one workload on one store. It runs in a process of its own, so that no store inherits another's memory, threads or garbage,
// and a crash costs one cell.

// Task says which cell to run. The runner gives it to the process of the cell.
type Task struct {
	Work, Store string
	Round       int
	Quick       bool   // a tenth of the records and of the time
	Dir         string // of this cell's database; made and removed by the runner
	BaseDir     string // of databases that cells which only read share, one directory for each store
	Crash       bool   // the part of a cell that ends by a kill
	Commits     int    // stop after this many, 0 = by the scale; for counting system calls
	Trace       string // an instance of the kernel's tracer that is on during the measured part
	Profile     string // write a CPU profile of the measured part there
}

// Result is what a cell found. Files of results have one a line.
type Result struct {
	Work, Store string
	Round       int
	Quick       bool
	Run         string // name of the run that it belongs to; ratios are taken within a run and round
	Revision    string // of the source
	When        time.Time
	Others      float64 // share of the processors that everything else took meanwhile, the kernel's own work included
	Metrics     map[string]float64
	Series      map[string][]float64 `json:",omitempty"`
	Verified    int                  // records that were read back and compared
	Error       string               `json:",omitempty"`
}

// Cell is a running one.
type Cell struct {
	Task
	engine  *engine
	store   Store
	options OpenOptions
	result  *Result
	memory  *memoryWatch
	// timeLimit is for workloads that are bound by a number of records; 0 = the scale's.
	timeLimit time.Duration
	io        ioCount // when the measured part began
}

// scaled returns n, or a tenth of it in a quick run.
func (c *Cell) scaled(n int) int {
	if c.Quick {
		return n / 10
	}
	return n
}

// limit is the time that a measured part may take.
func (c *Cell) limit() time.Duration {
	switch {
	case c.timeLimit > 0:
		return c.timeLimit
	case c.Commits > 0:
		return time.Minute
	case c.Quick:
		return 1500 * time.Millisecond
	}
	return 20 * time.Second
}

// set records a metric.
func (c *Cell) set(name string, value float64) { c.result.Metrics[name] = value }

// Open opens the cell's store.
func (c *Cell) Open(o OpenOptions) error { return c.openIn(c.Dir, o) }

func (c *Cell) openIn(dir string, o OpenOptions) error {
	store, err := c.engine.Open(dir, o)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	c.store, c.options = store, o
	return nil
}

// Close closes the store.
func (c *Cell) Close() error {
	if c.store == nil {
		return nil
	}
	err := c.store.Close()
	c.store = nil
	if err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// fillTx is the number of records in a transaction of Fill.
const fillTx = 1000

// Fill puts records 0 to n-1 in key order, in version 0, without syncing each transaction; then it opens the store again with o.
func (c *Cell) Fill(s shape, n int, o OpenOptions) error {
	if c.engine.Baseline {
		return c.Open(o)
	}
	if err := c.fillIn(c.Dir, s, n); err != nil {
		return err
	}
	return c.Open(o)
}

func (c *Cell) fillIn(dir string, s shape, n int) error {
	if err := c.openIn(dir, OpenOptions{Clients: 1}); err != nil {
		return err
	}
	return errors.Join(c.put(s, slices.Values(keyOrder(s, n))), c.store.Sync(), c.Close())
}

// load puts records 0 to n-1, in version 0, into the open store, in the order of their numbers, which need not be that of their
// keys. It waits for nothing after the last commit.
func (c *Cell) load(s shape, n int) error {
	return c.put(s, func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	})
}

// put puts records in version 0, fillTx in a transaction.
func (c *Cell) put(s shape, records iter.Seq[int]) error {
	client, err := c.store.Client()
	if err != nil {
		return err
	}
	var ops Ops
	var out Outcome
	var key, value []byte
	commit := func() error {
		ops.Commit()
		if err := client.Do(&ops, &out); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
		ops.Reset()
		return nil
	}
	for i := range records {
		key, value = s.appendKey(key[:0], i), s.appendValue(value[:0], i, 0)
		ops.Put(key, value)
		if ops.Count == fillTx {
			if err := commit(); err != nil {
				return err
			}
		}
	}
	if ops.Count > 0 {
		if err := commit(); err != nil {
			return err
		}
	}
	return client.Close()
}

// Start marks the beginning of the measured part, Done its end: what was written in between is counted.
func (c *Cell) Start() {
	c.io = countIO()
	c.traceMeasured("1")
}

// Done closes the store and records what the whole has cost: bytes written until the store is closed, its size then, and the peak of the
// process's memory.
func (c *Cell) Done() error {
	c.traceMeasured("0")
	if s, ok := c.store.(counted); ok {
		for name, value := range s.Counters() {
			c.set("counter "+name, value)
		}
	}
	start := time.Now()
	err := c.Close()
	c.set("close_s", time.Since(start).Seconds())
	c.set("written_bytes", float64(countIO().written-c.io.written))
	c.set("disk_bytes", float64(diskBytes(c.Dir)))
	return err
}

// Verify opens the store again, counts its records, and compares the values of up to sample of them, drawn from all n: accept says
// whether a version of record i may be there.
func (c *Cell) Verify(s shape, n, sample int, accept func(i int, version uint64) bool) error {
	if c.engine.Baseline {
		return nil
	}
	if err := c.Open(OpenOptions{Clients: 1}); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	client, err := c.store.Client()
	if err != nil {
		return err
	}
	var ops Ops
	var out Outcome
	ops.Scan(nil, 1<<31-1)
	if err := client.Do(&ops, &out); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if out.Scanned != uint64(n) {
		return fmt.Errorf("verify: %d records, %d were committed", out.Scanned, n)
	}
	pick := newRandom(uint64(n))
	var numbers []int
	var key, want []byte
	for done := 0; done < min(n, sample); done += len(numbers) {
		ops.Reset()
		numbers, out.Values = numbers[:0], out.Values[:0]
		for len(numbers) < min(100, min(n, sample)-done) {
			i := done + len(numbers)
			if n > sample {
				i = pick.below(n)
			}
			numbers = append(numbers, i)
			key = s.appendKey(key[:0], i)
			ops.Fetch(key)
		}
		if err := client.Do(&ops, &out); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		values := out.Values
		for _, i := range numbers {
			length := binary.LittleEndian.Uint32(values)
			values = values[4:]
			if length == absent {
				return fmt.Errorf("verify: record %d is lost", i)
			}
			value := values[:length]
			values = values[length:]
			if len(value) != s.valueLen {
				return fmt.Errorf("verify: record %d has %d bytes", i, len(value))
			}
			version := binary.LittleEndian.Uint64(value)
			want = s.appendValue(want[:0], i, version)
			if string(value) != string(want) {
				return fmt.Errorf("verify: record %d has a value that was never written", i)
			}
			if !accept(i, version) {
				return fmt.Errorf("verify: record %d has version %x, which is not its last", i, version)
			}
		}
	}
	c.result.Verified += min(n, sample)
	return errors.Join(client.Close(), c.Close())
}

const sampleSize = 50_000

// runCell is the main function of a cell's process.
func runCell(spec string) {
	var task Task
	if err := json.Unmarshal([]byte(spec), &task); err != nil {
		fatalf("-cell: %v", err)
	}
	result := &Result{Work: task.Work, Store: task.Store, Round: task.Round, Quick: task.Quick, When: time.Now().UTC(), Metrics: map[string]float64{}}
	c := &Cell{Task: task, result: result}
	err := func() (err error) {
		w, err := workNamed(task.Work)
		if err != nil {
			return err
		}
		if c.engine, err = engineNamed(task.Store); err != nil {
			return err
		}
		c.memory = watchMemory()
		err = w.Run(c)
		c.set("anon_peak_bytes", float64(c.memory.peak()))
		return err
	}()
	if err != nil {
		result.Error = err.Error()
	}
	json.NewEncoder(os.Stdout).Encode(result)
}
