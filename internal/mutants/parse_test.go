package mutants

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the directory of the module, relative to that of this package.
const root = "../.."

// A mutant is a deliberate bug.
type mutant struct {
	name, rule, what string
	hunks            []hunk
	tests            []testRun
	hangs            bool // the tests do not end with this mutant
}

// hunk is one replacement in a declaration of a package.
type hunk struct{ pkg, decl, old, new string }

// testRun is a command that runs tests of a package.
type testRun struct {
	dir  string // relative to the root of the module
	run  string // regular expression for the names of the tests
	args []string
}

func (r testRun) String() string { return strings.Join(append([]string{r.dir, r.run}, r.args...), " ") }

// rule is a line of testdata/rules.txt.
type rule struct{ name, text string }

func readRules(t *testing.T) (rules []rule) {
	t.Helper()
	text, err := os.ReadFile("testdata/rules.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, text, ok := strings.Cut(line, " ")
		require.True(t, ok, "a rule without text: %q", line)
		rules = append(rules, rule{name, strings.TrimSpace(text)})
	}
	return rules
}

// readMutants reads all of testdata/*.mutants.
func readMutants(t *testing.T) (all []mutant) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.mutants")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		f, err := os.Open(name)
		require.NoError(t, err)
		defer f.Close()
		some, err := parse(bufio.NewScanner(f))
		require.NoError(t, err, name)
		all = append(all, some...)
	}
	return all
}

// parse reads a file of mutants.
func parse(lines *bufio.Scanner) (all []mutant, err error) {
	var m *mutant
	var h *hunk
	add := func(to *string, line string) {
		if *to != "" {
			*to += "\n"
		}
		*to += line
	}
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case word == "mutant":
			all = append(all, mutant{name: rest})
			m, h = &all[len(all)-1], nil
		case m == nil:
			return nil, fmt.Errorf("line %d: %q before the first mutant", n, line)
		case word == "rule":
			m.rule = rest
		case word == "what":
			m.what = rest
		case word == "hangs":
			m.hangs = true
		case word == "in":
			pkg, decl, _ := strings.Cut(rest, " ")
			if strings.HasSuffix(pkg, ".go") { // TestApply reports which declaration has the text
				pkg = path.Dir(pkg)
			}
			m.hunks = append(m.hunks, hunk{pkg: pkg, decl: strings.TrimSpace(decl)})
			h = &m.hunks[len(m.hunks)-1]
		case word == "test":
			fields := strings.Fields(rest)
			if len(fields) < 2 {
				return nil, fmt.Errorf("line %d: a test needs a package and an expression", n)
			}
			m.tests = append(m.tests, testRun{fields[0], fields[1], fields[2:]})
		case h != nil && line[0] == '-':
			add(&h.old, line[1:])
		case h != nil && line[0] == '+':
			add(&h.new, line[1:])
		default:
			return nil, fmt.Errorf("line %d: %q", n, line)
		}
	}
	return all, lines.Err()
}

// apply returns the changed files of the mutant by name.
func (m *mutant) apply() (map[string]string, error) {
	changed, err := m.change()
	files := map[string]string{}
	for s, text := range changed {
		files[s.name] = text
	}
	return files, err
}

// change returns the new texts of the changed files.
func (m *mutant) change() (map[*source]string, error) {
	places := map[*source][]change{}
	for _, h := range m.hunks {
		p, err := h.find()
		if err != nil {
			return nil, err
		}
		places[p.in] = append(places[p.in], change{p, strings.TrimSpace(h.new)})
	}
	files := map[*source]string{}
	for s, changes := range places {
		slices.SortFunc(changes, func(a, b change) int { return a.begin - b.begin })
		var text strings.Builder
		at := 0
		for _, c := range changes {
			if c.begin < at {
				return nil, fmt.Errorf("%s: two replacements of the same text", s.name)
			}
			text.WriteString(s.text[at:c.begin])
			text.WriteString(c.new)
			at = c.end
		}
		text.WriteString(s.text[at:])
		files[s] = text.String()
	}
	return files, nil
}

// change is a place and the new text there.
type change struct {
	place
	new string
}
