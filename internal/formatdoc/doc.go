// Package formatdoc reads docs/format.md and other documents of formats. Tests of the packages that write these
// formats compare the tables and examples there with what the code does. The package is for tests only.
//
// A table is identified by its heading; there is at most one table under a heading. A table with the columns
// offset, size and field describes a layout: see Layout.
package formatdoc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Doc is a parsed document.
type Doc struct {
	t      testing.TB
	name   string
	Tables []*Table
	blocks map[string]string // fenced blocks by heading
}

// Table is a table; its cells have no markup.
type Table struct {
	t       testing.TB
	name    string // name of the document
	Heading string
	columns []string
	rows    [][]string
}

// Open reads docs/format.md. It fails the test if the file does not exist.
func Open(t testing.TB) *Doc {
	t.Helper()
	return OpenNamed(t, "format.md")
}

// OpenNamed reads a document in the directory docs of the test's module, which may be nested in this one.
func OpenNamed(t testing.TB, name string) *Doc {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, "docs/"+name, string(text))
}

// moduleRoot returns the directory of go.mod. A test runs in the directory of its package.
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

func parse(t testing.TB, name, text string) *Doc {
	t.Helper()
	d := &Doc{t: t, name: name, blocks: map[string]string{}}
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
					t.Fatalf("%s: two tables under %q", name, heading)
				}
				table = &Table{t: t, name: name, Heading: heading, columns: cells(line)}
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

// cells splits a row of a table and strips the markup of each cell.
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
	d.t.Fatalf("%s: no table under %q", d.name, heading)
	return nil
}

// Block returns the fenced block under a heading, without its lines that start with "#".
func (d *Doc) Block(heading string) string {
	d.t.Helper()
	block, ok := d.blocks[heading]
	if !ok {
		d.t.Fatalf("%s: no block under %q", d.name, heading)
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
		t.t.Fatalf("%s: %s has no column %q", t.name, t.Heading, name)
	}
	var all []string
	for _, row := range t.rows {
		if len(row) != len(t.columns) {
			t.t.Fatalf("%s: %s: row %q", t.name, t.Heading, row)
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
			t.t.Fatalf("%s: %s: %q twice", t.name, t.Heading, k)
		}
		all[k] = values[i]
	}
	return all
}

// Numbers returns a column of whole numbers, keyed by the cells of another column. Digits may be grouped by commas;
// 0x begins a hexadecimal number.
func (t *Table) Numbers(key, value string) map[string]uint64 {
	t.t.Helper()
	all := map[string]uint64{}
	for k, v := range t.Map(key, value) {
		all[k] = t.number(v)
	}
	return all
}
