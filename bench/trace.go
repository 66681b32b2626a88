package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The write pattern over time, the paper's figure 4: a store runs alone on a file system on a loop device, and the kernel's tracer notes
// each write that the device is given. These are the events that blktrace shows; the tracer is asked directly because it is there where
// blktrace's own files are not to be had.

const (
	tracing      = "/sys/kernel/tracing"
	traceBytes   = 1 << 30 // of the device
	tracePoints  = 300     // kept of each store, evenly
	traceWork    = "rand1"
	sectorsInMiB = 2048
)

// traceStores have different ways: a log, a tree that is copied, a merge tree, a tree in place.
var traceStores = []string{"flashdbm", "lmdb", "leveldb", "berkeleydb"}

// recordPatterns adds a result of the workload "pattern" for each of traceStores.
func (p *plan) recordPatterns() error {
	w, err := workNamed(traceWork)
	if err != nil {
		return err
	}
	for _, store := range traceStores {
		if _, err := engineNamed(store); err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		r, err := p.recordPattern(w, store)
		if err != nil {
			return fmt.Errorf("write pattern of %s: %w", store, err)
		}
		if err := appendResult(p.results, r); err != nil {
			return err
		}
		fmt.Printf("write pattern of %s: %d writes\n", store, int(r.Metrics["writes"]))
	}
	return nil
}

func (p *plan) recordPattern(w *work, store string) (r *Result, err error) {
	dir, err := os.MkdirTemp(p.diskDir, "bench-pattern-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "mount")
	f, err := os.Create(image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(traceBytes), f.Close(), os.Mkdir(mount, 0o700)); err != nil {
		return nil, err
	}
	device, err := run("losetup", "-f", "--show", image)
	if err != nil {
		return nil, err
	}
	defer run("losetup", "-d", device)
	if _, err := run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device); err != nil {
		return nil, err
	}
	if _, err := run("mount", device, mount); err != nil {
		return nil, err
	}
	defer run("umount", mount)
	trace, err := newTracer(device)
	if err != nil {
		return nil, err
	}
	defer trace.remove()
	inLoop := *p
	inLoop.diskDir, inLoop.quick = mount, true
	r = inLoop.cell(w, Task{Work: w.Name, Store: store, Quick: true, Trace: trace.dir})
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	times, places, bytes, err := trace.writes()
	if err != nil {
		return nil, err
	}
	if len(times) == 0 {
		return nil, errors.New("no writes were traced")
	}
	r.Work = "pattern"
	r.Metrics = map[string]float64{"writes": float64(len(times)), "bytes": bytes, "commits": r.Metrics["records"], "seconds": r.Metrics["seconds"]}
	step := max(1, len(times)/tracePoints)
	r.Series = map[string][]float64{}
	for i := 0; i < len(times); i += step {
		r.Series["ms"] = append(r.Series["ms"], float64(int((times[i]-times[0])*1000)))
		r.Series["mib"] = append(r.Series["mib"], float64(int(places[i]*100/sectorsInMiB))/100)
	}
	return r, nil
}

// tracer is an instance of the kernel's tracer, its own buffers and switches.
type tracer struct{ dir string }

func newTracer(device string) (*tracer, error) {
	if _, err := os.Stat(filepath.Join(tracing, "events")); err != nil {
		if err := syscall.Mount("none", tracing, "tracefs", 0, ""); err != nil {
			return nil, err
		}
	}
	t := &tracer{filepath.Join(tracing, "instances", "flashdbm-bench")}
	os.Remove(t.dir) // left by a run that was killed
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return nil, err
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(device, &stat); err != nil {
		return nil, err
	}
	number := (stat.Rdev>>8&0xfff)<<20 | stat.Rdev&0xff
	for _, setting := range [][2]string{
		{"tracing_on", "0"},
		{"buffer_size_kb", "8192"},
		{"events/block/block_bio_queue/filter", fmt.Sprintf("dev == %d", number)},
		{"events/block/block_bio_queue/enable", "1"},
	} {
		if err := os.WriteFile(filepath.Join(t.dir, setting[0]), []byte(setting[1]), 0o600); err != nil {
			t.remove()
			return nil, err
		}
	}
	return t, nil
}

func (t *tracer) remove() { os.Remove(t.dir) }

// "  bench-123 [001] ..... 45.678901: block_bio_queue: 7,0 WS 1234 + 8 [bench]"
var traceLine = regexp.MustCompile(`([0-9]+\.[0-9]+): block_bio_queue: \S+ (\S+) ([0-9]+) \+ ([0-9]+)`)

// writes returns when each write was queued, in seconds, and where, in sectors, and how many bytes they all had.
func (t *tracer) writes() (times, places []float64, bytes float64, err error) {
	f, err := os.Open(filepath.Join(t.dir, "trace"))
	if err != nil {
		return nil, nil, 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := traceLine.FindStringSubmatch(lines.Text())
		if m == nil || !strings.Contains(m[2], "W") || m[4] == "0" {
			continue
		}
		at, _ := strconv.ParseFloat(m[1], 64)
		sector, _ := strconv.ParseFloat(m[3], 64)
		sectors, _ := strconv.ParseFloat(m[4], 64)
		times, places, bytes = append(times, at), append(places, sector), bytes+512*sectors
	}
	return times, places, bytes, nil
}

// traceMeasured switches the tracer on or off, if the cell has one.
func (c *Cell) traceMeasured(on string) {
	if c.Trace == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(c.Trace, "tracing_on"), []byte(on), 0o600); err != nil {
		fatalf("tracer: %v", err)
	}
}

func run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
