package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// benchResult is the output of bench: the figures in the order of the steps.
type benchResult struct {
	Directory string        `json:"directory"`
	Figures   []benchFigure `json:"figures"`
	Advice    string        `json:"advice"`
}

// Indexes of the first steps in benchResult.Figures.
const (
	benchBare = iota
	benchAlone
	benchTogether
	benchBuffered
)

// print writes the figures as a table and the advice below it.
func (r *benchResult) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	width := 0
	for _, f := range r.Figures {
		width = max(width, len(f.Name))
	}
	fmt.Fprintf(w, "%-*s\tper second\tmedian\tp99\tto bare disk\t\n", width, r.Directory)
	for i, f := range r.Figures {
		median, p99, share := "", "", ""
		if f.Median > 0 {
			median, p99 = formatDuration(f.Median), formatDuration(f.P99)
		}
		if i == benchAlone || i == benchTogether {
			share = fmt.Sprintf("%.2fx", r.share(i))
		}
		fmt.Fprintf(w, "%-*s\t%s %s\t%s\t%s\t%s\t\n", width, f.Name, formatCount(int64(f.Rate)), f.Per, median, p99, share)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n", r.Advice)
	return err
}

// share returns the rate of a step divided by the rate at which the bare disk wrote and synced pages.
func (r *benchResult) share(step int) float64 {
	return r.Figures[step].Rate / max(r.Figures[benchBare].Rate, 1)
}

// Thresholds of the advice.
const (
	benchInstant  = 20 * time.Microsecond // a sync that takes less did not wait for a medium
	benchSlowDisk = 4 * time.Millisecond  // a rotating disk, or one behind a network, takes this long or longer
	benchUneasy   = 20                    // the p99 of a quiet device is below this many times its median
	benchFair     = 0.7                   // one durable writer reaches at least this share of the bare disk's rate, unless other work disturbed it
)

// advise says what the figures mean for a user of this disk.
func (r *benchResult) advise() string {
	bare, together, buffered := r.Figures[benchBare], r.Figures[benchTogether], r.Figures[benchBuffered]
	gain := together.Rate / max(r.Figures[benchAlone].Rate, 1)
	switch {
	case bare.Median < benchInstant:
		return fmt.Sprintf("A sync takes %s here: this is memory, or a device that says \"done\" before it is. Do not expect what is durable to survive a power cut, and measure where the data will live.", formatDuration(bare.Median))
	case bare.Median >= benchSlowDisk:
		return fmt.Sprintf("A sync takes %s here, and every durable commit waits for one: commit from many goroutines at once (%.0f times as many commits with %d), put more into each transaction, or use Durability: Buffered (%s records a second) where the last second may be lost.",
			formatDuration(bare.Median), gain, benchWriters, formatCount(int64(buffered.Rate)))
	case bare.P99 > benchUneasy*bare.Median:
		return fmt.Sprintf("Syncs take %s, but one in a hundred took %s or longer: other programs use this disk, or it pauses by itself. Measure again when it is quiet; commits will see the same pauses.", formatDuration(bare.Median), formatDuration(bare.P99))
	case r.share(benchAlone) < benchFair:
		return fmt.Sprintf("One durable writer reached %.0f %% of the bare disk, less than it should: the disk or the processors were busy with something else meanwhile. Measure again.", 100*r.share(benchAlone))
	}
	return fmt.Sprintf("One durable writer gets %.0f %% of what this disk can sync; goroutines that commit at once share syncs, %d of them commit %.0f times as much. Prefer many small writers to one that waits.", 100*r.share(benchAlone), benchWriters, gain)
}
