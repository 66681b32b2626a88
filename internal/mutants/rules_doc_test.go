package mutants

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRulesOfTheDocument: for each rule of the design, docs/reliability.md says what enforces it and what would
// detect a violation. The tests and functions that it names exist.
func TestRulesOfTheDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "reliability.md"))
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "\n## The rules, and what would notice\n")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n## ")
	known := map[string]bool{}
	for _, m := range readMutants(t) {
		known[m.name] = true
	}
	for name := range testsOfTheProject(t) {
		known[name] = true
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(cells[0], "--") || strings.TrimSpace(cells[0]) == "rule" {
			continue
		}
		rows++
		source := ""
		for _, q := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if strings.HasSuffix(q[1], ".go") {
				b, err := os.ReadFile(filepath.Join(root, q[1]))
				require.NoError(t, err, cells[0])
				source = string(b)
				continue
			}
			assert.Regexp(t, `\b`+regexp.QuoteMeta(q[1])+`\(`, source, cells[0])
		}
		assert.NotEmpty(t, source, "nothing keeps: %s", cells[0])
		noticed := quoted.FindAllStringSubmatch(cells[2], -1)
		assert.NotEmpty(t, noticed, "nobody would notice: %s", cells[0])
		for _, q := range noticed {
			assert.True(t, known[q[1]], "there is no test and no mutant %s", q[1])
		}
	}
	require.Greater(t, rows, 30)
}

// testsOfTheProject returns the names of all tests of the module.
func testsOfTheProject(t *testing.T) map[string]bool {
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(b, -1) {
			names[string(m[1])] = true
		}
		return err
	}))
	return names
}
