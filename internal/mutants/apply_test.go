package mutants

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestApply checks that every mutant can still be applied to the engine, and that there is one for each rule.
func TestApply(t *testing.T) {
	rules, broken := map[string]bool{}, map[string]bool{}
	for _, r := range readRules(t) {
		assert.False(t, rules[r.name], "rule %s stands there twice", r.name)
		rules[r.name] = true
	}
	names := map[string]bool{}
	all := readMutants(t)
	for _, m := range all {
		assert.False(t, names[m.name], "there are two mutants %s", m.name)
		names[m.name], broken[m.rule] = true, true
		assert.True(t, rules[m.rule], "mutant %s: unknown rule %q", m.name, m.rule)
		assert.NotEmpty(t, m.what, "mutant %s: what is wrong with it?", m.name)
		assert.NotEmpty(t, m.tests, "mutant %s: which tests find it?", m.name)
		for _, r := range m.tests {
			assert.True(t, hasTest(t, r.dir), "mutant %s: no tests in %s", m.name, r.dir)
		}
		files, err := m.apply()
		if !assert.NoError(t, err, "mutant %s no longer fits: break the same thing (%s) in the new text", m.name, m.what) {
			continue
		}
		for name, text := range files {
			_, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
			assert.NoError(t, err, "mutant %s is no Go", m.name)
		}
	}
	for name := range rules {
		assert.True(t, broken[name], "no mutant breaks rule %s", name)
	}
	require.GreaterOrEqual(t, len(all), 40)
}

func hasTest(t *testing.T, dir string) bool {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, dir))
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), "_test.go") })
}
