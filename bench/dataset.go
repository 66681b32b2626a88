package main

import (
	"fmt"
	"slices"
)

// A dataset is the results that a report is made of. Where a cell has results in full scale, those of quick runs are left out; where
// it has results of a calm machine, those are that other processes disturbed.
type dataset struct {
	results   []*Result
	paired    []*Result // those and the disturbed ones: a ratio within a round tells something as long as both sides were disturbed
	disturbed int       // left out for that
}

// calmShare is the share of the processors that others, the kernel's work for the cell among them, may take in a calm cell.
const calmShare = 0.3

// roundOf tells which results may be compared directly.
type roundOf struct {
	run   string
	round int
}

func newDataset(all []*Result) *dataset {
	type cell struct{ work, store string }
	full, calm := map[cell]bool{}, map[cell]bool{}
	for _, r := range all {
		if !r.Quick && r.Error == "" {
			full[cell{r.Work, r.Store}] = true
		}
	}
	for _, r := range all {
		at := cell{r.Work, r.Store}
		if r.Quick != full[at] && r.Others <= calmShare && r.Error == "" {
			calm[at] = true
		}
	}
	d := &dataset{}
	for _, r := range all {
		at := cell{r.Work, r.Store}
		switch {
		case r.Quick && full[at]:
			continue
		case r.Others > calmShare && calm[at]:
			d.disturbed++
		default:
			d.results = append(d.results, r)
		}
		d.paired = append(d.paired, r)
	}
	return d
}

// disturbance tells how much others took of the processors in the calmest result of a cell, if that was more than calmShare; else 0.
func (d *dataset) disturbance(work, store string) float64 {
	least := 0.0
	for _, r := range d.results {
		if r.Work == work && r.Store == store && r.Error == "" {
			if r.Others <= calmShare {
				return 0
			}
			if least == 0 || r.Others < least {
				least = r.Others
			}
		}
	}
	return least
}

// values returns a metric of a store in a workload, by round.
func (d *dataset) values(work, store, metric string) map[roundOf]float64 {
	found := map[roundOf]float64{}
	for _, r := range d.results {
		if r.Work == work && r.Store == store && r.Error == "" {
			if v, ok := r.Metrics[metric]; ok {
				found[roundOf{r.Run, r.Round}] = v
			}
		}
	}
	return found
}

// failure returns why a store has no result of a workload, "" if it has one or did not take part.
func (d *dataset) failure(work, store string) (why string) {
	for _, r := range d.results {
		if r.Work == work && r.Store == store {
			if r.Error == "" {
				return ""
			}
			why = r.Error
		}
	}
	return why
}

// A spread is the median of some values, and their range.
type spread struct {
	median, low, high float64
	n                 int
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return spread{(values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1], n}
}

func (d *dataset) spread(work, store, metric string) spread {
	var values []float64
	for _, v := range d.values(work, store, metric) {
		values = append(values, v)
	}
	return spreadOf(values)
}

// String prints the median and, where there is more than one round, the range.
func (s spread) String() string { return s.scaled(1) }

func (s spread) scaled(by float64) string {
	switch s.n {
	case 0:
		return "–"
	case 1:
		return number(s.median / by)
	}
	low, high := number(s.low/by), number(s.high/by)
	if low == high {
		return low
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.median/by), low, high)
}

// ratio compares a metric of two stores: the median of the ratios of each round that has both, of calm rounds only if there are any.
func (d *dataset) ratio(work, metric, store, other string) spread {
	calm, all, _ := d.ratios(work, metric, store, other)
	if len(calm) > 0 {
		return spreadOf(calm)
	}
	return spreadOf(all)
}

// ratios lists the ratios of the rounds that have both stores in the same scale, and what others took of the processors in the calmest.
func (d *dataset) ratios(work, metric, store, other string) (calm, all []float64, others float64) {
	others = 1
	for _, mine := range d.paired {
		if mine.Work != work || mine.Store != store || mine.Error != "" {
			continue
		}
		for _, theirs := range d.paired {
			if theirs.Work != work || theirs.Store != other || theirs.Error != "" || theirs.Run != mine.Run || theirs.Round != mine.Round ||
				theirs.Quick != mine.Quick || theirs.Metrics[metric] <= 0 {
				continue
			}
			ratio, share := mine.Metrics[metric]/theirs.Metrics[metric], max(mine.Others, theirs.Others)
			all, others = append(all, ratio), min(others, share)
			if share <= calmShare {
				calm = append(calm, ratio)
			}
		}
	}
	return calm, all, others
}

// stores lists the stores that have results of a workload, in the order of the report.
func (d *dataset) stores(work string) []string {
	var names []string
	for _, name := range engineNames(true) {
		if slices.ContainsFunc(d.results, func(r *Result) bool { return r.Work == work && r.Store == name }) {
			names = append(names, name)
		}
	}
	return names
}

// best returns the peer that is hardest to beat: that with the lowest ratio of ours to it. "" if none can be compared.
func (d *dataset) best(work, metric string) (best string) {
	lowest := 0.0
	for _, name := range d.stores(work) {
		if engines[name].Baseline || isOurs(name) {
			continue
		}
		if s := d.ratio(work, metric, ours, name); s.n > 0 && (best == "" || s.median < lowest) {
			best, lowest = name, s.median
		}
	}
	return best
}

// quick tells whether the results of a store in a workload, or of any store if it is "", are those of quick runs.
func (d *dataset) quick(work, store string) bool {
	return slices.ContainsFunc(d.results, func(r *Result) bool {
		return r.Work == work && (store == "" || r.Store == store) && r.Quick
	})
}
