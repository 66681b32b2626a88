package formatdoc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// unchecked lists the tables that a program cannot compare with anything.
var unchecked = map[string]bool{"What each checksum covers": true}

// TestEveryTableIsChecked looks for the heading of each table in the tests that compare the document with the code.
func TestEveryTableIsChecked(t *testing.T) {
	var tests strings.Builder
	for _, pattern := range []string{"*/format_doc_test.go", "internal/*/format_doc_test.go", "logstore/*/format_doc_test.go"} {
		names, err := filepath.Glob(filepath.Join(moduleRoot(t), pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %d files", pattern, err, len(names))
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(text)
		}
	}
	d := Open(t)
	if len(d.Tables) < 20 {
		t.Errorf("only %d tables were found", len(d.Tables))
	}
	for _, table := range d.Tables {
		if !unchecked[table.Heading] && !strings.Contains(tests.String(), strconv.Quote(table.Heading)) {
			t.Errorf("docs/format.md: no test reads the table under %q", table.Heading)
		}
	}
}

const sample = "# One\n\n| offset | size | field | constraint |\n|---|---|---|---|\n" +
	"| 0 | 4 | `first` | |\n| 4 | 2n + 1 | rest | x |\n| 5 + 2n | 1,024 | **zero** | |\n\n## Two\n\n```\n# note\nline\n```\n"

func TestParse(t *testing.T) {
	d := parse(t, "a document", sample)
	l := d.Layout("One", map[string]int{"n": 3})
	want := []Field{{"first", 0, 4, ""}, {"rest", 4, 7, "x"}, {"zero", 11, 1024, ""}}
	if len(l.Fields) != len(want) || l.Fields[0] != want[0] || l.Fields[1] != want[1] || l.Fields[2] != want[2] {
		t.Errorf("%+v", l.Fields)
	}
	if got := d.Block("Two"); got != "line\n" {
		t.Errorf("%q", got)
	}
}

// recorder collects the failures that a check is expected to report.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Helper()               {}

// TestCheckFindsDrift runs Check with encoders that differ from the table.
func TestCheckFindsDrift(t *testing.T) {
	table := "# S\n\n| offset | size | field | constraint |\n|---|---|---|---|\n| 0 | 2 | a | |\n| 2 | 2 | b | |\n| 4 | 4 | zero | |\n"
	for name, c := range map[string]struct {
		a, b, other int
		fails       bool
	}{
		"right":                {a: 0, b: 2, other: -1},
		"fields exchanged":     {a: 2, b: 0, other: -1, fails: true},
		"reserved bytes used":  {a: 0, b: 2, other: 6, fails: true},
		"a field one byte off": {a: 0, b: 3, other: -1, fails: true},
	} {
		r := &recorder{TB: t}
		parse(r, "a document", table).Layout("S", nil).Check(func(field string, v []byte) ([]byte, bool) {
			image := make([]byte, 8)
			switch field {
			case "a":
				copy(image[c.a:], v)
			case "b":
				copy(image[c.b:], v)
			default:
				return nil, false
			}
			if c.other >= 0 {
				image[c.other] = 1
			}
			return image, true
		})
		if r.failed != c.fails {
			t.Errorf("%s: failed = %v", name, r.failed)
		}
	}
}
