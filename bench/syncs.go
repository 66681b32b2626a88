package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Whether the stores promise the same is not taken from their manuals: a tracer counts the system calls that sync, in a run of few
// commits and in one of many, and the difference is what a commit costs.

// syncWorks are the workloads counted, and how many commits each is given.
var syncWorks = []struct {
	name      string
	few, many int
}{
	{"paper1-disk", 100, 600},
	{"load-durable", 20, 120},
	{"conc16", 200, 2200},
	{"paper1-mem", 100, 600},
}

// syncCalls matches a traced call that makes data durable: a sync, or a file opened so that each write is one. A line of a call that was
// interrupted by another thread's is counted once, where it begins.
var (
	syncCalls = regexp.MustCompile(`\b(fdatasync|fsync|sync_file_range|syncfs|msync)\(`)
	syncOpens = regexp.MustCompile(`O_D?SYNC`)
)

// countSyncs counts for each store and adds a result of the workload "syncs": for each of syncWorks the calls a commit, and whether a
// file was opened for synced writes.
func (p *plan) countSyncs() error {
	done, _ := readResults(p.results)
	for _, name := range engineNames(false) {
		if p.stores != nil && !slices.Contains(p.stores, name) || engines[name].Baseline {
			continue
		}
		if slices.ContainsFunc(done, func(r *Result) bool { return r.Work == "syncs" && r.Store == name && r.Run == p.name }) {
			continue
		}
		result := &Result{Work: "syncs", Store: name, Run: p.name, Quick: p.quick, When: time.Now().UTC(), Metrics: map[string]float64{}}
		for _, s := range syncWorks {
			w, err := workNamed(s.name)
			if err != nil {
				return err
			}
			few, _, err := p.traced(w, name, s.few)
			if err != nil {
				return err
			}
			many, opens, err := p.traced(w, name, s.many)
			if err != nil {
				return err
			}
			result.Metrics[s.name] = float64(many-few) / float64(s.many-s.few)
			if opens > 0 {
				result.Metrics[s.name+" synced files"] = float64(opens)
			}
		}
		fmt.Println("syncs a commit:", name, result.Metrics)
		if err := appendResult(p.results, result); err != nil {
			return err
		}
	}
	return nil
}

// traced runs a cell under strace and counts its syncs and the files that it opens for synced writes.
func (p *plan) traced(w *work, store string, commits int) (syncs, opens int, err error) {
	if _, err := exec.LookPath("strace"); err != nil {
		return 0, 0, err
	}
	dir, err := os.MkdirTemp("", "bench-trace-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	trace := filepath.Join(dir, "trace")
	r := p.cell(w, Task{Work: w.Name, Store: store, Quick: true, Commits: commits},
		"strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=fdatasync,fsync,sync_file_range,syncfs,msync,openat", "-e", "signal=none", "-o", trace)
	if r.Error != "" {
		return 0, 0, fmt.Errorf("%s, %s, traced: %s", w.Name, store, r.Error)
	}
	f, err := os.Open(trace)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		switch line := lines.Bytes(); {
		case syncCalls.Match(line):
			syncs++
		case syncOpens.Match(line):
			opens++
		}
	}
	return syncs, opens, nil
}
