package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file is a Go file of a module, for whatever system it is built.
type file struct {
	module  *module
	path    string // relative to the module's root, with slashes
	lines   int
	test    bool
	name    string   // of the package
	imports []string // paths
	syntax  *ast.File
}

// dir returns the directory of the file, which is its package's path in the module.
func (f *file) dir() string { return path.Dir(f.path) }

// source returns all Go files of the modules.
func source(t *testing.T) (files []*file) {
	t.Helper()
	for _, m := range modules {
		files = append(files, m.source(t)...)
	}
	return files
}

// source returns all Go files of the module. Nested modules are not part of it.
func (m *module) source(t *testing.T) []*file {
	t.Helper()
	root := m.root
	var files []*file
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && skipped(name, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		syntax, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		f := &file{
			module: m, path: filepath.ToSlash(relative), name: syntax.Name.Name, syntax: syntax,
			test: strings.HasSuffix(name, "_test.go"), lines: fset.File(syntax.Pos()).LineCount(),
		}
		for _, i := range syntax.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, imported)
		}
		files = append(files, f)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(files), m.atLeast, "the walk has missed module %s", m.path)
	return files
}

// skipped reports whether a directory is to be skipped, which are those that the go command skips.
func skipped(name, base string) bool {
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	return err == nil
}
