package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// A plan is a run: rounds of all cells, in each round every store on every workload, one after the other. So whatever changes on the
// machine over time meets all stores alike.
type plan struct {
	name           string
	works          []*work
	stores         []string // nil = all that the workload is for
	rounds         int
	quick          bool
	diskDir        string // a directory on the disk's file system
	memDir         string // one on a file system in memory
	baseDir        string
	results        string        // file to which each result is added
	until          time.Duration // start no cell that would not end within so long, by the length of the same cell before; 0 = run all
	calm           float64       // run a cell again, twice at most, if other processes took a larger share of the processors; 0 = don't
	profile        string        // directory for CPU profiles
	commits        int
	keepGoing, dry bool
}

// cellTimeout ends a cell that hangs.
const cellTimeout = 8 * time.Minute

// run carries the plan out. Cells whose result is in the file already are skipped, so a plan cut short goes on where it was.
func (p *plan) run() error {
	done, err := readResults(p.results)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	start, failed := time.Now(), 0
	for round := range p.rounds {
		for _, w := range p.works {
			stores := p.storesOf(w)
			// Each round begins with another store, so none always comes after the same one.
			for at := range stores {
				name := stores[(at+round)%len(stores)]
				task := Task{Work: w.Name, Store: name, Round: round, Quick: p.quick, Commits: p.commits}
				if slices.ContainsFunc(done, func(r *Result) bool {
					return r.Run == p.name && r.Work == task.Work && r.Store == task.Store && r.Round == round && r.Error == ""
				}) {
					continue
				}
				if p.until > 0 && time.Since(start) > p.until {
					fmt.Fprintln(os.Stderr, "time is over; the same command goes on from here")
					return errUnfinished
				}
				r := p.cell(w, task)
				for range 2 {
					if p.calm == 0 || r.Others <= p.calm {
						break
					}
					if again := p.cell(w, task); again.Others < r.Others {
						r = again
					}
				}
				if r.Error != "" {
					failed++
				}
				if err := appendResult(p.results, r); err != nil {
					return err
				}
				show(w, r)
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d cells failed", failed)
	}
	return nil
}

// errUnfinished: there are cells left to run.
var errUnfinished = errors.New("not all cells have run")

// storesOf lists the stores that take part in a workload.
func (p *plan) storesOf(w *work) []string {
	var stores []string
	for _, name := range engineNames(true) {
		e := engines[name]
		switch {
		case p.stores != nil && !slices.Contains(p.stores, name):
		case e.Baseline && !w.Raw:
		case w.Stores != nil && !slices.Contains(w.Stores, name):
		case e.Variant && w.Stores == nil && !slices.Contains(w.Extra, name) && p.stores == nil:
		default:
			stores = append(stores, name)
		}
	}
	return stores
}

// cell runs one cell in a process and a directory of its own.
func (p *plan) cell(w *work, task Task, prefix ...string) *Result {
	result := &Result{Work: task.Work, Store: task.Store, Round: task.Round, Quick: task.Quick, Run: p.name, When: time.Now().UTC()}
	fail := func(err error) *Result {
		result.Error = err.Error()
		return result
	}
	parent := p.memDir
	if w.Disk {
		parent = p.diskDir
	}
	dir, err := os.MkdirTemp(parent, "bench-"+task.Work+"-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	task.Dir, task.BaseDir = dir, p.baseDir
	if p.profile != "" {
		task.Profile = filepath.Join(p.profile, fmt.Sprintf("%s-%s-%d.prof", task.Work, task.Store, task.Round))
	}
	spec, err := json.Marshal(task)
	if err != nil {
		return fail(err)
	}
	self, err := os.Executable()
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cellTimeout)
	defer cancel()
	args := append(append([]string{}, prefix...), self, "-cell", string(spec))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a cell does not outlive the runner; main keeps to its thread
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	start, busy := time.Now(), processorTime()
	err = cmd.Run()
	others := processorTime() - busy - cmd.ProcessState.UserTime() - cmd.ProcessState.SystemTime()
	share := max(0, others.Seconds()/time.Since(start).Seconds()/float64(runtime.NumCPU()))
	if err != nil {
		tail := complaint.Bytes()
		return fail(fmt.Errorf("%w: %s", err, tail[:min(len(tail), 1000)]))
	}
	if err := json.Unmarshal(out.Bytes(), result); err != nil {
		return fail(fmt.Errorf("result of the cell: %w", err))
	}
	result.Run, result.Revision, result.Others = p.name, revision, share
	return result
}

// show prints a result while the run goes on.
func show(w *work, r *Result) {
	fmt.Printf("%-14s %-22s %d ", r.Work, r.Store, r.Round)
	if r.Error != "" {
		fmt.Printf(" FAILED: %s\n", r.Error)
		return
	}
	if r.Others > 0.2 {
		fmt.Printf(" (others took %.0f %% of the processors)", 100*r.Others)
	}
	for _, row := range w.Rows {
		if value, ok := r.Metrics[row.Metric]; ok {
			fmt.Printf("  %s %s", row.Title, number(value/max(row.Scale, 1)))
		}
	}
	fmt.Println()
}

// readResults reads the files of results, one result a line.
func readResults(paths ...string) ([]*Result, error) {
	var all []*Result
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for decoder := json.NewDecoder(bytes.NewReader(content)); decoder.More(); {
			var r Result
			if err := decoder.Decode(&r); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, &r)
		}
	}
	return all, nil
}

func appendResult(path string, r *Result) error {
	if path == "" {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
