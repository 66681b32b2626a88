package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"flashdbm/dbm"

	"golang.org/x/term"
)

// watched is one moment of stat --watch: all that a reader beside the writer can see.
type watched struct {
	At       time.Time     `json:"at"`
	Records  int64         `json:"records"`
	File     int64         `json:"file_bytes"`
	Live     int64         `json:"live_bytes"`
	Free     int64         `json:"free_bytes"`
	Group    uint64        `json:"group"` // newest group of the log
	segments []dbm.Segment // the map of the file
}

// watch shows the database at path once in each interval: on a terminal in place, otherwise with a new line each
// time. It returns nil when the context ends.
func (p *program) watch(ctx context.Context, path string, interval time.Duration, asJSON bool) error {
	p.beside = true
	return p.inspect(path, func(db *dbm.DB) error {
		v := p.newView(path, interval, asJSON)
		defer v.end()
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			now, err := look(db)
			if err != nil {
				return err
			}
			if err := v.show(now); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
}

// look reads the present state of the file. The transaction comes first, because its begin reads what the writer
// has written since. In a file with keyspaces the number of records is that of all keyspaces, as in stat: Len would
// count only the default keyspace, and read all its pages for that.
func look(db *dbm.DB) (watched, error) {
	var records int64
	spaces := false
	err := db.View(func(tx *dbm.Tx) (err error) {
		for range tx.Keyspaces() {
			spaces = true
			break
		}
		if !spaces {
			records, err = tx.Len()
		}
		return err
	})
	if err != nil {
		return watched{}, err
	}
	s := db.Stats()
	if spaces {
		records = s.Records
	}
	w := watched{
		At: time.Now(), Records: records, File: s.FileBytes, Live: s.LiveBytes, Free: s.FreeBytes, segments: db.Segments(),
	}
	for _, g := range w.segments {
		w.Group = max(w.Group, g.Group)
	}
	return w, nil
}

// view shows moments, one after the other.
type view interface {
	show(now watched) error
	end() // is called once
}

func (p *program) newView(path string, interval time.Duration, asJSON bool) view {
	switch {
	case asJSON:
		return &jsonView{p.stdout}
	case isTerminal(p.stdout):
		return &screenView{p: p, path: path, interval: interval}
	}
	return &lineView{out: p.stdout}
}

// jsonView prints an object on each line.
type jsonView struct{ out io.Writer }

func (v *jsonView) show(now watched) error { return printJSON(v.out, now) }
func (v *jsonView) end()                   {}

// lineView prints a line for each moment, for pipes and files.
type lineView struct {
	out  io.Writer
	last watched
	row  int
}

// headEvery is the number of lines after which the column headings are printed again.
const headEvery = 20

func (v *lineView) show(now watched) error {
	if v.row%headEvery == 0 {
		if _, err := fmt.Fprintf(v.out, "%-8s %15s %12s %10s %10s %10s %10s\n", "time", "records", "per second", "file", "live", "free", "groups/s"); err != nil {
			return err
		}
	}
	records, groups := "-", "-"
	if v.row > 0 {
		records, groups = perSecond(v.last.Records, now.Records, now.At.Sub(v.last.At)), perSecond(int64(v.last.Group), int64(now.Group), now.At.Sub(v.last.At))
	}
	_, err := fmt.Fprintf(v.out, "%-8s %15s %12s %10s %10s %10s %10s\n", now.At.Format(time.TimeOnly), formatCount(now.Records), records,
		formatBytes(now.File), formatBytes(now.Live), formatBytes(now.Free), groups)
	v.last = now
	v.row++
	return err
}

func (v *lineView) end() {}

// perSecond formats the change of a number per second.
func perSecond(before, now int64, time time.Duration) string {
	return formatCount(int64(float64(now-before) / max(time.Seconds(), 1e-9)))
}

// screenView uses a terminal's second screen, so that the content of the first one reappears afterwards.
type screenView struct {
	p        *program
	path     string
	interval time.Duration
	first    watched
	last     watched
	begun    bool
}

const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the second screen, without the cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	restOfLine  = "\x1b[K"
	restOfPage  = "\x1b[J"

	// screenLines is assumed if the terminal does not tell its height.
	screenLines = 24
)

func (v *screenView) show(now watched) error {
	columns, lines, err := term.GetSize(int(v.p.stdout.Fd()))
	if err != nil || columns <= 0 || lines <= 0 {
		columns, lines = progressColumns, screenLines
	}
	var b strings.Builder
	if !v.begun {
		b.WriteString(enterScreen)
		v.begun, v.first, v.last = true, now, now
	}
	b.WriteString(toTop)
	for i, line := range v.page(now, columns, lines) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(cutTo(line, columns))
		b.WriteString(restOfLine)
	}
	b.WriteString(restOfPage)
	v.last = now
	_, err = io.WriteString(v.p.stdout, b.String())
	return err
}

func (v *screenView) end() {
	if v.begun {
		_, _ = io.WriteString(v.p.stdout, leaveScreen) // if the terminal is gone, there is nothing to restore
	}
}

// page returns the lines of a screen.
func (v *screenView) page(now watched, columns, lines int) []string {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 3, ' ', tabwriter.AlignRight)
	since, all := now.At.Sub(v.last.At), now.At.Sub(v.first.At)
	fmt.Fprintf(w, "\tnow\tper second\tsince %s\t\n", v.first.At.Format(time.TimeOnly))
	row := func(name string, format func(int64) string, first, last, value int64) {
		rate, change := "", ""
		if since > 0 {
			rate = signed(format, int64(float64(value-last)/since.Seconds()))
			change = signed(format, value-first)
		}
		fmt.Fprintf(w, "%-8s\t%s\t%s\t%s\t\n", name, format(value), rate, change)
	}
	row("records", formatCount, v.first.Records, v.last.Records, now.Records)
	row("groups", formatCount, int64(v.first.Group), int64(v.last.Group), int64(now.Group))
	row("file", formatBytes, v.first.File, v.last.File, now.File)
	row("live", formatBytes, v.first.Live, v.last.Live, now.Live)
	row("free", formatBytes, v.first.Free, v.last.Free, now.Free)
	_ = w.Flush() // into memory
	page := []string{fmt.Sprintf("%s, every %v for %v; Ctrl-C ends   %s", now.At.Format(time.TimeOnly), v.interval, all.Round(time.Second), v.path), ""}
	page = append(page, strings.Split(strings.TrimRight(table.String(), "\n"), "\n")...)
	page = append(page, "")
	return append(page, segmentLinesIn(now.segments, columns, lines-len(page))...)
}

// signed formats a change with its sign.
func signed(format func(int64) string, n int64) string {
	switch {
	case n > 0:
		return "+" + format(n)
	case n < 0:
		return "-" + format(-n)
	}
	return "0"
}

// segmentLinesIn returns the map of the file, fitted to the given columns and lines, below a line that explains its
// characters.
func segmentLinesIn(segments []dbm.Segment, columns, lines int) []string {
	if lines < 2 || columns < 1 || len(segments) == 0 {
		return nil
	}
	cells := columns * (lines - 1)
	each := max(1, (len(segments)+cells-1)/cells)
	page := []string{fmt.Sprintf("segments, %d a character: 0-9 live tenths, . free, _ given back, > log ends", each)}
	var line strings.Builder
	for from := 0; from < len(segments); from += each {
		c := cellOf(segments[from:min(from+each, len(segments))])
		line.WriteByte(c.symbol())
		if line.Len() == columns {
			page = append(page, line.String())
			line.Reset()
		}
	}
	if line.Len() > 0 {
		page = append(page, line.String())
	}
	return page
}

// cutTo shortens a line to the given number of columns, at one character a column.
func cutTo(line string, columns int) string {
	if runes := []rune(line); len(runes) > columns {
		return string(runes[:columns])
	}
	return line
}
