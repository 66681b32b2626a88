package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// isOurs tells flashdbm and its variants from the peers.
func isOurs(store string) bool { return strings.HasPrefix(store, ours) }

// writeReport makes dir/README.md and its plots from files of results.
func writeReport(dir, note string, files []string) error {
	results, err := readResults(files...)
	if err != nil {
		return err
	}
	if len(results) == 0 {
		return errors.New("no results")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, _ := filepath.Glob(filepath.Join(dir, "*.svg"))
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	d := newDataset(results)
	var page bytes.Buffer
	d.writeHead(&page)
	if note != "" {
		fmt.Fprintf(&page, "%s\n\n", note)
	}
	d.writeBars(&page)
	for _, w := range works {
		if err := d.writeWork(&page, dir, w); err != nil {
			return err
		}
	}
	if err := d.writePattern(&page, dir); err != nil {
		return err
	}
	d.writeSyncs(&page)
	d.writeStores(&page)
	return os.WriteFile(filepath.Join(dir, "README.md"), page.Bytes(), 0o644)
}

func (d *dataset) writeHead(page *bytes.Buffer) {
	runs, rounds := map[string]bool{}, map[roundOf]bool{}
	revisions := map[string]bool{}
	first, last := d.results[0].When, d.results[0].When
	verified, cells := 0, 0
	var others []float64
	for _, r := range d.results {
		if r.Error == "" && r.Work != "syncs" {
			others = append(others, 100*r.Others)
		}
		runs[r.Run], rounds[roundOf{r.Run, r.Round}] = true, true
		if r.Revision != "" {
			revisions[r.Revision] = true
		}
		if r.When.Before(first) {
			first = r.When
		}
		if r.When.After(last) {
			last = r.When
		}
		if r.Error == "" {
			verified += r.Verified
			cells++
		}
	}
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range revisions {
			if !yield(name) {
				return
			}
		}
	})
	fmt.Fprintf(page, `# Benchmark of flashdbm

This file is made by `+"`make bench` or `make bench-quick`"+`; [how it works](../README.md). Figures are medians of the rounds, with the range in
brackets; ratios are taken within each round. flashdbm runs as it is shipped, with default options; rows called flashdbm-... have other ones.
*Quick* cells have a tenth of the records, or of the time.

[Bars](#bars) say what flashdbm is to reach, and whether it did. Then comes a section for each workload, the
[write pattern](#write-pattern-over-time), the [syncs that were counted](#calls-that-sync-per-commit) and the
[settings of each store](#stores-and-their-settings).

| | |
|---|---|
| machine | %s, %d processors, %s |
| file system of the disk | %s |
| Go | %s |
| revision of flashdbm | %s |
| measured | %s to %s |
| cells | %d, in %d rounds; %d records read back and compared |
| what else ran | others took %s %% of the processors' time during a cell, the kernel's own work for it included |
| disturbed cells | %d are left out, as there is a calmer result; others are marked with what was taken from them |

`, processor(), runtime.NumCPU(), kernelVersion(), fileSystem("."), runtime.Version(), strings.Join(names, ", "),
		first.Format("2006-01-02 15:04"), last.Format("2006-01-02 15:04 MST"), cells, len(rounds), verified, spreadOf(others), d.disturbed)
}

// writeWork writes the table and the plot of a workload.
func (d *dataset) writeWork(page *bytes.Buffer, dir string, w *work) error {
	stores := d.stores(w.Name)
	fmt.Fprintf(page, "## %s\n\n", w.Title)
	if len(stores) == 0 {
		fmt.Fprintf(page, "Not measured.\n\n")
		return nil
	}
	allQuick := !slices.ContainsFunc(stores, func(store string) bool { return !d.quick(w.Name, store) })
	fmt.Fprintf(page, "`%s`", w.Name)
	if allQuick {
		page.WriteString(", quick")
	}
	page.WriteString("\n\n")
	var rows []row
	for _, r := range w.Rows {
		if slices.ContainsFunc(stores, func(store string) bool { return d.spread(w.Name, store, r.Metric).n > 0 }) {
			rows = append(rows, r)
		}
	}
	ofRaw := w.Raw && w.Durable && d.spread(w.Name, "raw", rows[0].Metric).n > 0
	page.WriteString("| store |")
	columns := len(rows)
	for i, r := range rows {
		fmt.Fprintf(page, " %s |", r.Title)
		if i == 0 && ofRaw {
			page.WriteString(" of the bare device |")
			columns++
		}
	}
	page.WriteString("\n|---|" + strings.Repeat("---|", columns) + "\n")
	for _, store := range stores {
		name := store
		if store == ours {
			name = "**" + store + "**"
		}
		if d.quick(w.Name, store) && !allQuick {
			name += " (quick)"
		}
		if share := d.disturbance(w.Name, store); share > 0 {
			name += fmt.Sprintf(" (others %.0f %%)", 100*share)
		}
		fmt.Fprintf(page, "| %s |", name)
		if why := d.failure(w.Name, store); why != "" {
			fmt.Fprintf(page, " failed: %s |\n", strings.ReplaceAll(why[:min(len(why), 120)], "\n", " "))
			continue
		}
		for i, r := range rows {
			if engines[store].Baseline && !slices.Contains(baselineMetrics, r.Metric) {
				page.WriteString(" |")
				continue
			}
			fmt.Fprintf(page, " %s |", d.spread(w.Name, store, r.Metric).scaled(max(r.Scale, 1)))
			if i == 0 && ofRaw {
				fmt.Fprintf(page, " %s |", d.ratio(w.Name, r.Metric, store, "raw"))
			}
		}
		page.WriteString("\n")
	}
	page.WriteString("\n")
	if len(stores) < 3 {
		return nil
	}
	plot := w.Name + ".svg"
	if err := d.plotWork(filepath.Join(dir, plot), w, rows); err != nil {
		return err
	}
	fmt.Fprintf(page, "![%s](%s)\n\n", w.Title, plot)
	return nil
}

// baselineMetrics are those that say something about a baseline.
var baselineMetrics = []string{"rate", "rate2", "scaling", "p50_us", "p99_us", "p99.9_us", "payload_mb"}

func (d *dataset) writeSyncs(page *bytes.Buffer) {
	page.WriteString("## Calls that sync, per commit\n\nCounted by strace. Where a file is opened for synced writes (O_SYNC, O_DSYNC), each write of it is one more.\n\n| store |")
	for _, s := range syncWorks {
		fmt.Fprintf(page, " %s |", s.name)
	}
	page.WriteString("\n|---|" + strings.Repeat("---|", len(syncWorks)) + "\n")
	for _, store := range d.stores("syncs") {
		fmt.Fprintf(page, "| %s |", store)
		for _, s := range syncWorks {
			fmt.Fprintf(page, " %s", d.spread("syncs", store, s.name))
			if d.spread("syncs", store, s.name+" synced files").n > 0 {
				page.WriteString(" + synced writes")
			}
			page.WriteString(" |")
		}
		page.WriteString("\n")
	}
	page.WriteString("\n")
}

func (d *dataset) writeStores(page *bytes.Buffer) {
	page.WriteString("## Stores and their settings\n\n| store | version | settings |\n|---|---|---|\n")
	for _, name := range engineNames(true) {
		e := engines[name]
		fmt.Fprintf(page, "| %s | %s | %s |\n", name, e.Version(), e.Settings)
	}
	page.WriteString("\n")
}

func (d *dataset) writeBars(page *bytes.Buffer) {
	page.WriteString("## Bars\n\nThe best peer is the one that flashdbm is least ahead of. *raw* is the bare device: a loop of `pwrite` into written space and " +
		"`fdatasync`; in `read`, the bare memory: a chase of pointers.\n\n| work | cell | at least | measured | |\n|---|---|---|---|---|\n")
	for _, j := range d.judgements() {
		fmt.Fprintf(page, "| %s | `%s` | %s | %s | %s |\n", j.work, j.of, j.bar, j.measured, j.verdict)
	}
	page.WriteString("\n")
}

// fileSystem names the file system of a directory: that of the longest mount point above it.
func fileSystem(dir string) string {
	path, err := filepath.Abs(dir)
	mounts, _ := os.ReadFile("/proc/mounts")
	name, longest := "unknown", 0
	for _, line := range strings.Split(string(mounts), "\n") {
		if words := strings.Fields(line); err == nil && len(words) > 2 {
			at := strings.TrimSuffix(words[1], "/")
			if (path == at || strings.HasPrefix(path, at+"/")) && len(words[1]) > longest {
				name, longest = words[2], len(words[1])
			}
		}
	}
	return name
}
