package archtest

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

const module = "flashdbm"

// layers are the packages of the module from the bottom up: a package imports, of the module's, only what stands in a row before its
// own. "..." stands for every package below a directory. What fits nowhere is not added here to make a build pass: its place is a
// decision about the whole, see ARCHITECTURE.md.
var layers = [][]string{
	{"lockfree", "logstore/vfs", "internal/btree", "internal/archtest", "internal/formatdoc", "internal/mutants"},
	{"logstore", "internal/opener"},
	{"override"},
	{"mvcc"},
	{"dbm"},
	{"ndbm", "cmd/...", "internal/streams"},
}

// outside are the packages of other modules that a package may import. testOutside are those that any test may import as well.
var (
	outside = map[string][]string{
		"internal/btree": {"golang.org/x/sys/unix"},
		"logstore/vfs":   {"golang.org/x/sys/unix", "golang.org/x/sys/windows", "github.com/edsrzf/mmap-go"},
		"ndbm":           {"golang.org/x/sys/unix"},
		"cmd/flashdbm":   {"github.com/spf13/cobra", "github.com/pkg/profile", "golang.org/x/term"},
	}
	testOutside = []string{"github.com/stretchr/testify/assert", "github.com/stretchr/testify/require", "golang.org/x/sys/unix"}
)

// testSupport are packages that the tests of any package may import, and nothing else may.
var testSupport = []string{"internal/formatdoc", "internal/streams"}

// unsafeFiles are the files that may use package unsafe, and cgoDirs the directories that may use C.
var (
	unsafeFiles = []string{
		"internal/btree/view.go",       // typed access to pages and to blocks outside the Go heap
		"logstore/vfs/os_darwin.go",    // a system call that x/sys does not wrap
		"logstore/vfs/os_windows.go",   // the buffer of a system call
		"logstore/vfs/window_linux.go", // one store of eight bytes to a mapping
		"lockfree/registry_test.go",    // the size of a slot
		"ndbm/exports.go",              // memory of C callers
		"ndbm/still.go",                // addresses that C is shown
	}
	cgoDirs = []string{"ndbm"}
)

// layerOf returns the row of a package's directory, -1 if it has none.
func layerOf(dir string) int {
	return slices.IndexFunc(layers, func(row []string) bool {
		return slices.ContainsFunc(row, func(p string) bool {
			under, wild := strings.CutSuffix(p, "...")
			return dir == p || (wild && strings.HasPrefix(dir, under))
		})
	})
}

func TestImports(t *testing.T) {
	for _, f := range source(t) {
		layer := layerOf(f.dir())
		if !assert.GreaterOrEqual(t, layer, 0, "%s: its package has no place among the layers", f.path) {
			continue
		}
		for _, imported := range f.imports {
			dir, ours := strings.CutPrefix(imported, module+"/")
			switch {
			case imported == "unsafe":
				assert.Contains(t, unsafeFiles, f.path, "unsafe in a file that is not meant for it")
			case imported == "C":
				assert.Contains(t, cgoDirs, f.dir(), "%s: C in a package that is not meant for it", f.path)
			case ours && f.test && dir == f.dir():
				// A test from outside its package.
			case ours && slices.Contains(testSupport, dir):
				assert.True(t, f.test, "%s imports %s, which is for tests", f.path, imported)
			case ours:
				below := layerOf(dir)
				assert.True(t, 0 <= below && below < layer, "%s imports %s, which is not below it", f.path, imported)
			case strings.Contains(strings.SplitN(imported, "/", 2)[0], "."):
				allowed := slices.Contains(outside[f.dir()], imported) || (f.test && slices.Contains(testOutside, imported))
				assert.True(t, allowed, "%s imports %s", f.path, imported)
			}
		}
	}
}

// TestUnsafeFiles fails when a file no longer needs its exception.
func TestUnsafeFiles(t *testing.T) {
	used := map[string]bool{}
	for _, f := range source(t) {
		used[f.path] = slices.Contains(f.imports, "unsafe")
	}
	for _, name := range unsafeFiles {
		assert.True(t, used[name], "%s does not use unsafe", name)
	}
}

// TestNames finds names that say nothing about what is inside.
func TestNames(t *testing.T) {
	empty := []string{"base", "common", "core", "data", "helper", "helpers", "info", "manager", "misc", "process", "types", "util", "utils"}
	for _, f := range source(t) {
		assert.NotContains(t, empty, strings.TrimSuffix(f.name, "_test"), "%s: name of the package", f.path)
		for word := range strings.SplitSeq(strings.TrimSuffix(path.Base(f.path), ".go"), "_") {
			assert.NotContains(t, empty, word, "%s: name of the file", f.path)
		}
	}
}
