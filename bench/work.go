package main

import (
	"fmt"
	"slices"
	"strings"
)

// A work is one workload. Each file work_*.go registers its own; they run and are shown in the order of Place.
type work struct {
	Place   int
	Name    string
	Title   string
	Durable bool // commits are synced: the system calls that do it are counted
	Disk    bool // runs in the directory on the disk's file system, else in the one in memory
	Raw     bool // the raw baseline takes part
	// Stores restricts who takes part; nil = every store. Variants of ours take part only where they are named.
	Stores []string
	Extra  []string // variants that take part in addition to all stores
	// Rows are what the report shows, the metric that it compares first.
	Rows []row
	Run  func(c *Cell) error
}

// A row of the report: one metric of a work.
type row struct {
	Metric string
	Title  string
	Unit   string
	Scale  float64 // the metric is divided by it; 0 = 1
}

var works []*work

func addWork(w *work) {
	works = append(works, w)
	slices.SortStableFunc(works, func(a, b *work) int { return a.Place - b.Place })
}

func workNamed(name string) (*work, error) {
	for _, w := range works {
		if w.Name == name {
			return w, nil
		}
	}
	return nil, fmt.Errorf("no workload %q", name)
}

// worksMatching lists the works that a comma-separated list of names or beginnings of names means; all for the empty list.
func worksMatching(list string) ([]*work, error) {
	if list == "" {
		return works, nil
	}
	var found []*work
	for _, name := range strings.Split(list, ",") {
		before := len(found)
		exact, _ := workNamed(name)
		for _, w := range works {
			if w == exact || (exact == nil && strings.HasPrefix(w.Name, name)) {
				found = append(found, w)
			}
		}
		if len(found) == before {
			return nil, fmt.Errorf("no workload begins with %q", name)
		}
	}
	return found, nil
}
