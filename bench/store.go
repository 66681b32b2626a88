package main

import (
	"fmt"
	"sort"
	"strings"
)

// A Store is an open database of one of the engines under comparison.
type Store interface {
	// Client returns a handle for one goroutine.
	Client() (Client, error)
	// Sync makes all that was committed durable.
	Sync() error
	Close() error
}

// counted is a store that reports what it has done; the results keep these counts, to find causes
// of differences.
type counted interface{ Counters() map[string]float64 }

// A Client runs packs of operations. It belongs to one goroutine.
type Client interface {
	Do(ops *Ops, out *Outcome) error
	Close() error
}

// OpenOptions is what a workload asks of a store.
type OpenOptions struct {
	Durable bool // each commit survives a power cut; else none needs to be synced
	Clients int  // that write at once
}

// cacheBytes is what each store may use as its cache.
const cacheBytes = 1 << 30

// An engine is a store that can take part. Each adapter's file registers its own.
type engine struct {
	Name     string
	Baseline bool // the device or the memory itself: keeps no records, so there is nothing to verify
	Variant  bool // of another one, with other options: runs only where a workload or the user names it
	Version  func() string
	Settings string // one line for the report
	// Open opens or creates the store in dir, which exists.
	Open func(dir string, o OpenOptions) (Store, error)
}

var engines = map[string]*engine{}

func register(e *engine) { engines[e.Name] = e }

// engineNamed finds a registered engine.
func engineNamed(name string) (*engine, error) {
	if e := engines[name]; e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("no store %q in this build; there are %s", name, strings.Join(engineNames(true), ", "))
}

// engineNames lists the engines, ours first, the baseline next, then the peers by name.
func engineNames(variants bool) []string {
	var names []string
	for name, e := range engines {
		if variants || !e.Variant {
			names = append(names, name)
		}
	}
	rank := func(name string) string {
		switch {
		case strings.HasPrefix(name, "flashdbm"):
			return "0" + name
		case engines[name].Baseline:
			return "1" + name
		}
		return "2" + name
	}
	sort.Slice(names, func(i, j int) bool { return rank(names[i]) < rank(names[j]) })
	return names
}
