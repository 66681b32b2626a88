package main

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const statHelp = `stat prints what the database says about itself: records, file size, live and
free bytes, and what opening it found. Counters of work, such as syncs, begin at
zero with each opening. A map of the file follows, with one character for each
segment or for several neighbours: the live share in tenths, 0 to 9, "." for free,
"_" for given back to the file system, ">" where the log ends.
"flashdbm plot" draws it with more detail.

--watch shows the figures again and again until it is interrupted, by default once
a second: on a terminal in place, in a pipe as a line each time, with --json as an
object. Another process may have the database open and write to it. "groups" are
what the writer has appended to the log, one for each batch of commits. Figures that
the writer counts in its memory, such as conflicts, are in its own DB.Stats only.`

func newStatCommand(p *program) *cobra.Command {
	var asJSON bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "stat DATABASE",
		Short: "Print records, sizes and counters",
		Long:  statHelp,
		Example: `  flashdbm stat app.fdbm --json | jq .records
  flashdbm stat app.fdbm --watch=5s`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeDatabase,
		RunE: p.command(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("watch") {
				if every < leastWatch {
					return usagef("--watch: %v is too short, %v is the least", every, leastWatch)
				}
				return p.watch(cmd.Context(), args[0], every, asJSON)
			}
			return p.inspect(args[0], func(db *dbm.DB) error {
				if _, err := db.Len(); err != nil { // this finishes the redo that Open has left to the background, so that its records are counted
					return err
				}
				stats := db.Stats()
				if asJSON {
					return printJSON(p.stdout, stats)
				}
				w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
				printFields(w, "", reflect.ValueOf(stats))
				if err := w.Flush(); err != nil {
					return err
				}
				return printSegments(p.stdout, db.Segments())
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all fields as a JSON object, sizes in bytes, times in nanoseconds")
	cmd.Flags().DurationVar(&every, "watch", 0, "show it again each `TIME`, until interrupted")
	cmd.Flags().Lookup("watch").NoOptDefVal = "1s"
	return cmd
}

// leastWatch is the shortest interval of --watch: each refresh takes time for each segment, and a person does not
// read faster.
const leastWatch = 10 * time.Millisecond

const (
	segmentsInLine = 64
	segmentLines   = 16 // at the most
)

// printSegments prints a map of the file.
func printSegments(w io.Writer, segments []dbm.Segment) error {
	each := max(1, (len(segments)+segmentsInLine*segmentLines-1)/(segmentsInLine*segmentLines))
	var line strings.Builder
	fmt.Fprintf(&line, "segments, %d a character:\n", each)
	for n, from := 0, 0; from < len(segments); n, from = n+1, from+each {
		if n > 0 && n%segmentsInLine == 0 {
			line.WriteByte('\n')
		}
		c := cellOf(segments[from:min(from+each, len(segments))])
		line.WriteByte(c.symbol())
	}
	line.WriteByte('\n')
	_, err := io.WriteString(w, line.String())
	return err
}

// symbol returns the character of a cell.
func (c *cell) symbol() byte {
	used := c.segments - c.absent - c.free
	switch {
	case c.tail:
		return '>'
	case c.absent > c.free && c.absent > used:
		return '_'
	case c.free >= used:
		return '.'
	}
	return '0' + byte(min(9, 10*c.live/c.space))
}

// printFields prints the exported fields of a struct, one on a line; the fields of a nested struct have its name
// before theirs. It uses reflection, so that the report stays complete when Stats gains a field.
func printFields(w io.Writer, under string, fields reflect.Value) {
	for field, value := range fields.Fields() {
		if !field.IsExported() {
			continue
		}
		label := under + words(field.Name)
		if value.Kind() == reflect.Struct {
			printFields(w, label+" ", value)
			continue
		}
		if value.Kind() == reflect.String && value.Len() == 0 { // unknown, or nothing to report
			continue
		}
		fmt.Fprintf(w, "%s\t%s\n", label, formatField(field.Name, value))
	}
}

// formatField formats a field with the unit that its type or name implies.
func formatField(name string, value reflect.Value) string {
	if d, ok := value.Interface().(time.Duration); ok {
		return formatDuration(d)
	}
	switch bytes := strings.HasSuffix(name, "Bytes"); {
	case bytes && value.CanInt():
		return formatBytes(value.Int())
	case bytes && value.CanUint():
		return formatBytes(int64(value.Uint()))
	case value.CanInt():
		return formatCount(value.Int())
	case value.CanUint():
		return formatCount(int64(value.Uint()))
	}
	return fmt.Sprint(value.Interface())
}

// words turns the name of a field into words: "FileBytes" into "file bytes".
func words(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
