package main

import (
	"fmt"
	"strings"
)

// The bars that flashdbm sets itself. Each is judged by what was measured, and none is left out: what was not measured is said so.

// A judgement is one row of the bar table.
type judgement struct {
	of, work, bar, measured string // of: the name of the workload
	verdict                 verdict
	mine, against, metric   string // the two stores of a ratio, and their metric
}

type verdict string

const (
	pass        verdict = "pass"
	miss        verdict = "**miss**"
	notMeasured verdict = "not measured"
	onlyShown   verdict = "" // a figure that is printed next to a bar
)

const ours = "flashdbm"

// judgements judges every bar.
func (d *dataset) judgements() []judgement {
	var all []judgement
	variant := func(mine, work, metric, name, other string, factor float64) {
		all = append(all, d.atLeast(mine, work, metric, name, other, factor))
	}
	atLeast := func(work, metric, name, other string, factor float64) {
		variant(ours, work, metric, name, other, factor)
	}
	atLeast("paper1-disk", "rate", "1 record per transaction, durable, disk", "raw", 0.9)
	all = append(all, d.lesser())
	atLeast("paper100-disk", "rate", "100 records per transaction, durable, disk", "leveldb", 1.36)
	atLeast("paper100-disk", "rate", "100 records per transaction, durable, disk", "", 1.2)
	atLeast("paper1-mem", "rate", "1 record per transaction, tmpfs, Buffered", "", 1.5)
	atLeast("paper100-mem", "rate", "100 records per transaction, tmpfs, Buffered", "", 1.2)
	atLeast("rand1", "rate", "random updates, one writer, durable", "raw", 0.9)
	atLeast("conc16", "rate", "random updates, 16 writers, durable", "", 1.2)
	atLeast("conc64", "rate", "random updates, 64 writers, durable", "", 1.2)
	atLeast("load-durable", "rate", "random load, durable, 300,000 records", "", 1)
	atLeast("load", "rate", "random load, unsynced, 1 M records", "", 1)
	atLeast("read", "rate", "random read, 1 thread", "lmdb", 1.3)
	atLeast("read", "scaling", "random read, 2 threads against 1, beside a pointer chase", "raw", 0.95)
	atLeast("scan", "rate", "full scan", "bbolt", 1)
	variant("flashdbm-update", "paper1-mem", "rate", "1 record per transaction through Update, tmpfs, Buffered", "pebble", 1.2)
	for _, goroutines := range []string{"1", "16"} {
		atLeast("behind-read"+goroutines, "rate", "random read right behind a load, goroutines: "+goroutines, "lmdb", 1)
	}
	atLeast("behind-rand1", "rate", "random updates right behind a load, one writer, durable", "raw", 0.85)
	for _, calls := range []struct{ store, name string }{{ours, "Range"}, {"flashdbm-cursor", "Cursor"}} {
		variant(calls.store, "first-scan", "rate", "first scan behind Open, by "+calls.name, "lmdb", 1)
		variant(calls.store, "first-scan", "rate", "first scan behind Open, by "+calls.name, "bbolt", 0.6)
		variant(calls.store, "first-scan", "warm_rate", "second scan, by "+calls.name, "bbolt", 1)
	}
	for _, bar := range []struct {
		mix   string
		ratio float64
	}{{"A", 1.1}, {"B", 1.5}, {"C", 1.4}, {"F", 1.1}, {"D", 1.1}, {"E", 1}} {
		atLeast("ycsb", "ycsb-"+bar.mix, "YCSB "+bar.mix, "", bar.ratio)
	}
	atLeast("reloaded-E", "ycsb-E", "YCSB E, database loaded for it", "", 1)
	for _, bar := range []struct {
		mix   string
		ratio float64
	}{{"A", 0.9}, {"F", 0.9}, {"D", 1}} {
		atLeast("burst-"+bar.mix, "rate", "YCSB "+bar.mix+" as a burst right behind a load, tmpfs", "pebble", bar.ratio)
	}
	variant("flashdbm-load", "bulk", "device_mb", "sorted load by DB.Load, bytes of the file", "raw-sequential", 0.9)
	variant("flashdbm-load", "bulk", "device_mb", "sorted load by DB.Load, bytes of the file, past the page cache", "raw-direct", 0.9)
	variant("flashdbm-load", "bulk", "rate", "sorted load by DB.Load", "lmdb-append", 1.5)
	variant("flashdbm-load", "bulk", "rate", "sorted load by DB.Load", "pebble-ingest", 1.5)
	all = append(all, d.bytes()...)
	for _, work := range []string{"tail1", "tail16"} {
		name := "p99.9 commit latency, one writer"
		if work == "tail16" {
			name = "p99.9 commit latency, 16 writers"
		}
		r := d.ratio(work, "p99.9_us", ours, "flashdbm-nobackground")
		all = append(all, judgement{work, name, "at most 3x that without background work", r.String() + "x", judge(r, r.median <= 3), ours, "flashdbm-nobackground", "p99.9_us"})
	}
	all = append(all, d.besideWriters()...)
	for _, work := range []string{"memory", "memory-large"} {
		name := "peak memory beyond the mapping, MemoryLimit 64 MiB"
		if work == "memory-large" {
			name += ", one transaction of 300 MiB"
		}
		s := d.spread(work, "flashdbm-64m", "beyond_bytes")
		all = append(all, judgement{work, name, "at most 160 MiB", s.scaled(1<<20) + " MiB", judge(s, s.high <= 160<<20), "", "", ""})
	}
	for i := range all {
		if all[i].verdict != notMeasured && d.quick(all[i].of, "") {
			all[i].measured += " (quick)"
		}
		share := d.disturbance(all[i].of, ours)
		if all[i].against != "" {
			if _, _, share = d.ratios(all[i].of, all[i].metric, all[i].mine, all[i].against); share <= calmShare {
				share = 0
			}
		}
		if all[i].verdict != notMeasured && share > 0 {
			all[i].measured += fmt.Sprintf(" (disturbed: others took %.0f %% of the processors)", 100*share)
		}
	}
	return all
}

// besideWriters is the bar of a reader beside writers: what the tail of his lookups may take longer than alone. What it takes beside loops that only
// compute stands beside it.
func (d *dataset) besideWriters() (all []judgement) {
	above := func(work, beside string) spread {
		alone, with := d.values(work, ours, "alone_p99.9_us"), d.values(work, ours, beside+"_p99.9_us")
		var more []float64
		for round, v := range with {
			if a, ok := alone[round]; ok {
				more = append(more, v-a)
			}
		}
		return spreadOf(more)
	}
	for _, work := range []string{"beside-durable", "beside-buffered"} {
		for _, of := range []struct{ writers, loops, name string }{{"writers1", "loops2", "1 writer"}, {"writers4", "loops5", "4 writers"}} {
			s := above(work, of.writers)
			all = append(all, judgement{
				work, "p99.9 of lookups beside " + of.name + ", " + work[len("beside-"):], "at most 50 µs above the same alone",
				fmt.Sprintf("%s µs above; beside loops that only compute %s µs above", s, above(work, of.loops)),
				judge(s, s.median <= 50), "", "", "",
			})
		}
	}
	return all
}

func judge(s spread, reached bool) verdict {
	switch {
	case s.n == 0:
		return notMeasured
	case reached:
		return pass
	}
	return miss
}

// atLeast compares one of ours with another store, "" = the best peer.
func (d *dataset) atLeast(mine, work, metric, name, other string, factor float64) judgement {
	title := other
	if other == "" {
		other = d.best(work, metric)
		title = "the best peer, " + other
	}
	r := d.ratio(work, metric, mine, other)
	if r.n == 0 {
		return judgement{work, name, fmt.Sprintf("%gx %s", factor, strings.TrimSuffix(title, ", ")), "–", notMeasured, "", "", ""}
	}
	return judgement{
		work, name, fmt.Sprintf("%gx %s", factor, title),
		r.String() + "x",
		judge(r, r.median >= factor), mine, other, metric,
	}
}

// lesser is the bar of the lone durable commit: the lesser of 1.5x LevelDB and 0.95 of the raw device, in each round.
func (d *dataset) lesser() judgement {
	const work = "paper1-disk"
	mine, level, raw := d.values(work, ours, "rate"), d.values(work, "leveldb", "rate"), d.values(work, "raw", "rate")
	var shares []float64
	for round, v := range mine {
		l, hasLevel := level[round]
		r, hasRaw := raw[round]
		if hasLevel && hasRaw {
			shares = append(shares, v/min(1.5*l, 0.95*r))
		}
	}
	s := spreadOf(shares)
	toLevel := d.ratio(work, "rate", ours, "leveldb")
	return judgement{
		work, "1 record per transaction, durable, disk", "the lesser of 1.5x leveldb and 0.95x raw",
		fmt.Sprintf("%s of it; %sx leveldb", s, toLevel), judge(s, s.median >= 1), ours, "leveldb", "rate",
	}
}

// bytes is the bar of bytes written, with the default's figure and both open times next to
// it.
func (d *dataset) bytes() []judgement {
	const name = "bytes written per byte of payload, 5 M random updates"
	open := func(store string) string {
		return fmt.Sprintf("; open after a kill %s ms", d.spread("open", store, "open_ms"))
	}
	large, standard := d.spread("bytes", "flashdbm-redo128m", "written_per_byte"), d.spread("bytes", ours, "written_per_byte")
	reached := judge(large, large.median <= 3)
	if d.quick("bytes", "flashdbm-redo128m") {
		reached = "not measured at this size" // with fewer records a flush has fewer pages to write, so a quick run says nothing about the bar
	}
	return []judgement{
		{"bytes", name, "at most 3, RedoLimit 128 MiB", large.String() + open("flashdbm-redo128m"), reached, "", "", ""},
		{"bytes", name, "the default's figure, RedoLimit 32 MiB", standard.String() + open(ours), onlyShown, "", "", ""},
	}
}
