package main

import (
	"bufio"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// histogram counts durations in nanoseconds, in buckets a 32nd of a power of two wide.
type histogram struct {
	buckets [64 * 32]uint64
	count   uint64
	max     time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(uint64(d))]++
	h.count++
	h.max = max(h.max, d)
}

func bucketOf(ns uint64) int {
	if ns < 32 {
		return int(ns)
	}
	shift := bits.Len64(ns) - 6
	return (shift+1)*32 + int(ns>>shift) - 32
}

func bucketFloor(b int) float64 {
	if b < 32 {
		return float64(b)
	}
	return float64(uint64(b%32+32) << (b/32 - 1))
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.count += o.count
	h.max = max(h.max, o.max)
}

// quantile returns the duration in microseconds that a share q of all does not exceed.
func (h *histogram) quantile(q float64) float64 {
	if q >= 1 {
		return float64(h.max) / 1000
	}
	rank, seen := uint64(q*float64(h.count)), uint64(0)
	for b, n := range h.buckets {
		if seen += n; seen > rank {
			return bucketFloor(b) / 1000
		}
	}
	return float64(h.max) / 1000
}

// memoryWatch follows the process's anonymous memory: what is resident beyond the mappings of files.
type memoryWatch struct{ highest atomic.Int64 }

func watchMemory() *memoryWatch {
	w := &memoryWatch{}
	w.peak()
	go func() {
		for range time.Tick(20 * time.Millisecond) {
			w.peak()
		}
	}()
	return w
}

// peak returns the most that there has been, in bytes.
func (w *memoryWatch) peak() int64 {
	now := anonBytes()
	for {
		before := w.highest.Load()
		if now <= before || w.highest.CompareAndSwap(before, now) {
			return max(now, before)
		}
	}
}

func anonBytes() int64 { return field("/proc/self/status", "RssAnon:") * 1024 }

// field returns the number after a name in a file of lines, 0 if it is not there.
func field(path, name string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == name {
			n, _ := strconv.ParseInt(words[1], 10, 64)
			return n
		}
	}
	return 0
}

// ioCount is what this process has given to the system to write. The kernel's own count of bytes that reach devices, write_bytes, is of
// no use: it counts the whole folio, up to some MiB, of each page that is made dirty. Stores through a mapping are not counted; of the
// stores here only Kyoto Cabinet makes them.
type ioCount struct{ written int64 }

func countIO() ioCount { return ioCount{field("/proc/self/io", "wchar:")} }

// diskBytes is what the files below dir occupy.
func diskBytes(dir string) (sum int64) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				sum += stat.Blocks * 512
			}
		}
		return nil
	})
	return sum
}

// keyOrder lists the records 0 to n-1 in the order of their keys.
func keyOrder(s shape, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if !s.ascending {
		slices.SortFunc(order, func(a, b int) int {
			if mix(uint64(a)) < mix(uint64(b)) {
				return -1
			}
			return 1
		})
	}
	return order
}

func fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
	os.Exit(1)
}
