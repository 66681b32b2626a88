package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"flashdbm/dbm"
)

// demoRow is the result of one phase of demo. Times are in nanoseconds in JSON.
type demoRow struct {
	Phase    string        `json:"phase"`
	Records  int64         `json:"records"` // written or read
	Bytes    int64         `json:"bytes"`   // keys and values of them
	Time     time.Duration `json:"time"`
	Commits  int64         `json:"commits"`
	Syncs    int64         `json:"syncs"`
	Pages    int64         `json:"pages"` // written
	FileSize int64         `json:"file_size"`
	OpenTime time.Duration `json:"open_time"` // the longest, if it opened several times

	// uncounted: the work was done by processes that were killed, so their commits and syncs are unknown.
	uncounted bool
}

// count sets the columns that the database counts.
func (row *demoRow) count(before, after dbm.Stats) {
	row.Commits = int64(after.Commits - before.Commits)
	row.Syncs = int64(after.Syncs - before.Syncs)
	row.Pages = int64(after.PagesWritten - before.PagesWritten)
	row.FileSize = after.FileBytes
}

func (row *demoRow) add(key, value []byte) {
	row.Records++
	row.Bytes += int64(len(key) + len(value))
}

// phaseColumns is the width of the longest name of a phase.
const phaseColumns = len("verify again")

func printDemoTable(out io.Writer, rows []demoRow) error {
	// All numbers are aligned to the right. The names are padded, so they stay
	// to the left.
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%-*s\t", phaseColumns, "phase")
	fmt.Fprintln(w, "records\tbytes\ttime\tcommits\tsyncs\tpages/commit\tfile size\topen time\t")
	for _, row := range rows {
		commits, syncs, perCommit := formatCount(row.Commits), formatCount(row.Syncs), "-"
		if row.uncounted {
			commits, syncs = "-", "-"
		} else if row.Commits > 0 {
			perCommit = fmt.Sprintf("%.1f", float64(row.Pages)/float64(row.Commits))
		}
		fmt.Fprintf(w, "%-*s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n",
			phaseColumns, row.Phase, formatCount(row.Records), formatBytes(row.Bytes), formatDuration(row.Time),
			commits, syncs, perCommit, formatBytes(row.FileSize), formatDuration(row.OpenTime))
	}
	return w.Flush()
}
