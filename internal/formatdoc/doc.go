// Package formatdoc reads docs/format.md, so that tests of the packages that write the file can compare the tables there, and the
// example, with what their code does. It is for tests only.
//
// A table is known by the heading it stands under; each heading has one at most. A table with the columns offset, size and field
// describes a layout: see Layout.
package formatdoc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Doc is the parsed document.
type Doc struct {
	t      testing.TB
	Tables []*Table
	blocks map[string]string // fenced blocks by heading
}

// Table is one table, its cells without markup.
type Table struct {
	t       testing.TB
	Heading string
	columns []string
	rows    [][]string
}

// Open reads the document. It fails the test if there is none.
func Open(t testing.TB) *Doc {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), "docs", "format.md"))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

// moduleRoot returns the directory of go.mod: a test runs in the directory of its package.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("not in a module")
		}
	}
	t.Fatal(err)
	return ""
}

func parse(t testing.TB, text string) *Doc {
	t.Helper()
	d := &Doc{t: t, blocks: map[string]string{}}
	var heading string
	var table *Table
	var block []string
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "```"):
			if fenced {
				d.blocks[heading] = strings.Join(block, "\n") + "\n"
			}
			fenced, block = !fenced, nil
		case fenced:
			block = append(block, line)
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		case strings.HasPrefix(line, "|"):
			if table == nil {
				if slices.ContainsFunc(d.Tables, func(o *Table) bool { return o.Heading == heading }) {
					t.Fatalf("docs/format.md: two tables under %q", heading)
				}
				table = &Table{t: t, Heading: heading, columns: cells(line)}
				d.Tables = append(d.Tables, table)
			} else if c := cells(line); strings.Trim(strings.Join(c, ""), "-: ") != "" {
				table.rows = append(table.rows, c)
			}
			continue
		}
		table = nil
	}
	return d
}

// cells splits a row of a table and takes off the markup of each cell.
func cells(line string) []string {
	var all []string
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		all = append(all, strings.Trim(strings.TrimSpace(cell), "`*"))
	}
	return all
}

// Table returns the table under a heading.
func (d *Doc) Table(heading string) *Table {
	d.t.Helper()
	for _, table := range d.Tables {
		if table.Heading == heading {
			return table
		}
	}
	d.t.Fatalf("docs/format.md: no table under %q", heading)
	return nil
}

// Block returns the fenced block under a heading, without its lines that start with "#".
func (d *Doc) Block(heading string) string {
	d.t.Helper()
	block, ok := d.blocks[heading]
	if !ok {
		d.t.Fatalf("docs/format.md: no block under %q", heading)
	}
	var b strings.Builder
	for line := range strings.Lines(block) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Column returns the cells of a column from top to bottom.
func (t *Table) Column(name string) []string {
	t.t.Helper()
	i := slices.Index(t.columns, name)
	if i < 0 {
		t.t.Fatalf("docs/format.md: %s has no column %q", t.Heading, name)
	}
	var all []string
	for _, row := range t.rows {
		if len(row) != len(t.columns) {
			t.t.Fatalf("docs/format.md: %s: row %q", t.Heading, row)
		}
		all = append(all, row[i])
	}
	return all
}

// Map returns a column by the cells of another.
func (t *Table) Map(key, value string) map[string]string {
	t.t.Helper()
	all := map[string]string{}
	values := t.Column(value)
	for i, k := range t.Column(key) {
		if _, twice := all[k]; twice {
			t.t.Fatalf("docs/format.md: %s: %q twice", t.Heading, k)
		}
		all[k] = values[i]
	}
	return all
}

// Numbers returns a column of whole numbers by the cells of another. Digits may be grouped by commas; 0x starts a hexadecimal number.
func (t *Table) Numbers(key, value string) map[string]uint64 {
	t.t.Helper()
	all := map[string]uint64{}
	for k, v := range t.Map(key, value) {
		all[k] = t.number(v)
	}
	return all
}
