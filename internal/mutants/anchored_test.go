package mutants

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAnchors: a hunk finds its text in whichever file of the package has the declaration, and independently of
// layout and comments.
func TestAnchors(t *testing.T) {
	const text = `package p

// f doubles.
func f(a int) int { return a * 2 }

func (l *List[T]) f(a int) {
	if a > 1 { // more than one
		l.n = a
	}
	if a > 1 { l.n++ }
}

const (
	one = 1 // a comment
	two = "a  b"
)

var three, four = f(3), f(4)
`
	s, err := parseSource("a/p.go", text)
	require.NoError(t, err)
	sources.Lock()
	if sources.packages == nil {
		sources.packages = map[string][]*source{}
	}
	sources.packages["a"] = []*source{s}
	sources.Unlock()
	for _, c := range []struct{ decl, old, found string }{
		{"f", "return a*2", "return a * 2"},
		{"f", "a int", "a int"},
		{"List.f", "if a > 1 {\n\n\tl.n = a\n}", "if a > 1 { // more than one\n\t\tl.n = a\n\t}"},
		{"List.f", "if a > 1 { l.n++ /* another */ }", "if a > 1 { l.n++ }"},
		{"one", "1", "1"},
		{"two", `"a  b"`, `"a  b"`},
		{"four", "f(3)", "f(3)"},
	} {
		p, err := hunk{pkg: "a", decl: c.decl, old: c.old, new: "x"}.find()
		if assert.NoError(t, err, c.old) {
			assert.Equal(t, c.found, text[p.begin:p.end])
		}
	}
	for _, c := range []struct{ decl, old, err string }{
		{"List.f", "if a > 1 {", "List.f of package a has this text 2 times and not once"},
		{"f", "l.n++", "f of package a has this text 0 times and not once; the text stands in List.f (a/p.go)"},
		{"two", `"a b"`, "two of package a has this text 0 times and not once"},
		{"g", "a * 2", `package a declares no "g"; the text stands in f (a/p.go)`},
		{"f", "// doubles", "a replacement that does nothing"},
	} {
		_, err := hunk{pkg: "a", decl: c.decl, old: c.old, new: "x"}.find()
		assert.ErrorContains(t, err, c.err)
	}
	m := mutant{hunks: []hunk{{"a", "f", "2", "3"}, {"a", "f", "a * 2", "a"}}}
	_, err = m.apply()
	assert.ErrorContains(t, err, "two replacements of the same text")
	m.hunks[1] = hunk{"a", "four", "f(4)", "f(5)"}
	files, err := m.apply()
	require.NoError(t, err)
	assert.Contains(t, files["a/p.go"], "return a * 3")
	assert.Contains(t, files["a/p.go"], "f(3), f(5)")
}
