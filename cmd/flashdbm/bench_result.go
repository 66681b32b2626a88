package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// benchResult is what bench prints: the figures in the order of its steps.
type benchResult struct {
	Directory string        `json:"directory"`
	Figures   []benchFigure `json:"figures"`
	Advice    string        `json:"advice"`
}

// The steps, as indexes of the figures.
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

// share returns the commits of a step for each page that the bare disk wrote and synced in the same time.
func (r *benchResult) share(step int) float64 {
	return r.Figures[step].Rate / max(r.Figures[benchBare].Rate, 1)
}

// What the advice goes by.
const (
	benchInstant  = 20 * time.Microsecond // no device that waits for its medium syncs faster
	benchSlowDisk = 4 * time.Millisecond  // a disk that turns, or one behind a network
	benchUneasy   = 20                    // times the median that the p99 of a quiet device stays below
	benchFair     = 0.7                   // of the bare disk that one durable writer has at least, else something was in its way
)

// advise says what the figures mean for who would use this disk.
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
