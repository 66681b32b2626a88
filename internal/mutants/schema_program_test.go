package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSchema: one program contains several mutants, and an environment variable chooses one. Mutants that change
// more than the body of a function are left out.
func TestSchema(t *testing.T) {
	const text = `package main

import "os"

func main() { os.Stdout.WriteString(find(7) + unnamed("b")) }

func find(a int) (s string) {
outer:
	for i := 0; ; i++ {
		for j := range 10 {
			if i*j == a {
				break outer
			}
		}
	}
	set(&s)
	return s
}

func set(s *string) { *s += "a" }

func unnamed(string) string {
	return one
}

const one = "1"
`
	was, err := parseSource("p.go", text)
	require.NoError(t, err)
	s := &schema{map[string]int{}, map[*source]map[int][]body{was: {}}}
	for i, m := range []struct {
		name, old, new string
		fits           bool
	}{
		{"loop", "i*j == a", "i*j == a-1", true},
		{"label", "break outer", "continue outer", true}, // it never ends, so it is compiled and not run
		{"set", `*s += "a"`, `*s += "c"`, true},
		{"nothing", `*s += "a"`, "", true},
		{"unnamed", "return one", `return "2" // another one`, true},
		{"constant", `one = "1"`, `one = "2"`, false},
		{"signature", "unnamed(string) string", "unnamed(s string) string", false},
		{"another", "func set(", "func another() {}\n\nfunc set(", false},
		{"invalid", `*s += "a"`, `*t += "a"`, true},
	} {
		require.Equal(t, 1, strings.Count(text, m.old))
		some, fits := was.bodies(m.name, i+1, strings.Replace(text, m.old, m.new, 1))
		assert.Equal(t, m.fits, fits, m.name)
		if fits {
			s.numbers[m.name] = i + 1
			for d, b := range some {
				s.bodies[was][d] = append(s.bodies[was][d], b)
			}
		}
	}
	dir := t.TempDir()
	build := func() ([]byte, error) {
		files := s.files()
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		cmd := exec.Command("go", "build", "-o", "p", "p.go", "seeded_bug.go")
		cmd.Dir = dir
		return cmd.CombinedOutput()
	}
	out, err := build()
	require.Error(t, err)
	require.Equal(t, []string{"invalid"}, culprits(string(out)), "%s", out)
	s.drop("invalid")
	out, err = build()
	require.NoError(t, err, "%s", out)
	for number, want := range map[string]string{"": "a1", "0": "a1", "1": "a1", "3": "c1", "4": "1", "5": "a2", "6": "a1"} {
		cmd := exec.Command(filepath.Join(dir, "p"))
		cmd.Env = append(os.Environ(), chosen+"="+number)
		out, err := cmd.Output()
		require.NoError(t, err)
		assert.Equal(t, want, string(out), "mutant %q", number)
	}
}
