package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var targets = flag.String("targets", "", "systems for which the modules must compile, each as GOOS/GOARCH, with spaces between them")

// TestCompiles type-checks both modules and their tests for other systems, and fails if something does not compile
// there. go vet would detect the same, but first compiles the standard library and every dependency for each
// system: that takes two minutes of processor time, and this takes seconds. It does not run vet's analyzers.
func TestCompiles(t *testing.T) {
	if *targets == "" {
		t.Skip("-targets tells for which systems")
	}
	for _, target := range strings.Fields(*targets) {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			system, processor, ok := strings.Cut(target, "/")
			require.True(t, ok, "%q is no GOOS/GOARCH", target)
			c := newChecker(processor)
			for _, m := range modules {
				own := 0
				for _, p := range m.packages(t, system, processor) {
					if p.Standard && c.known[p.ImportPath] != nil {
						continue // checked already, as the module before needs it too
					}
					for _, err := range c.check(p) {
						assert.Fail(t, "does not compile for "+target, "%s: %v", p.ImportPath, err)
					}
					if p.Module != nil && p.Module.Main {
						own++
					}
				}
				require.Greater(t, own, 20, "packages of module %s", m.path)
			}
		})
	}
}

// TestCompilesFindsErrors checks packages that the checker of TestCompiles must not accept.
func TestCompilesFindsErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"compiles", "package p\nvar V = 1\n", ""},
		{"undefined", "package p\nfunc f() { undefined() }\n", "undefined: undefined"},
		{"unused", "package p\nfunc f() { v := 1 }\n", "declared and not used"},
		{"syntax", "package p\nfunc f() {\n", "expected '}'"},
		{"processor", "package p\nconst c = int(1 << 40)\n", "overflow"},
		{"absent", "package p\nimport _ \"flashdbm/absent\"\n", "flashdbm/absent"},
		{"body", "package p\nfunc f()\n", "missing function body"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "p.go"), []byte(c.text), 0o644))
			found := newChecker("386").check(&listed{ImportPath: "p", Dir: dir, GoFiles: []string{"p.go"}, Module: &ofModule{Main: true}})
			if c.want == "" {
				assert.Empty(t, found)
				return
			}
			assert.ErrorContains(t, errors.Join(found...), c.want)
		})
	}
}

// A listed package is what go list prints about it. A test variant, whose path ends in " [package.test]", includes
// the files of the tests.
type listed struct {
	ImportPath, Dir           string
	GoFiles, CgoFiles, SFiles []string
	ImportMap                 map[string]string // from the path in the source to the package's path
	Standard                  bool
	Module                    *ofModule
	Error                     *struct{ Err string }
}

// An ofModule is the module of a package; nil for the standard library.
type ofModule struct {
	Path, GoVersion string
	Main            bool // the module whose packages are listed
}

// packages lists the packages of the module for another system, the packages of its tests, and all packages that
// these need. Each package comes after those that it imports.
func (m *module) packages(t *testing.T, system, processor string) (all []*listed) {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-deps", "-test",
		"-json=ImportPath,Dir,GoFiles,CgoFiles,SFiles,ImportMap,Standard,Module,Error", "./...")
	cmd.Dir = m.root
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go list: %s", &stderr)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(listed)
		if err := d.Decode(p); err == io.EOF {
			return all
		} else if require.NoError(t, err); strings.HasSuffix(p.ImportPath, ".test") {
			continue // the main package that the go command generates
		}
		all = append(all, p)
	}
}

// A checker type-checks packages for one system. Imported packages are checked before the packages that import
// them. If two modules need two versions of a package, the one that was checked last is used.
type checker struct {
	fset      *token.FileSet
	processor string
	known     map[string]*types.Package // by import path
}

func newChecker(processor string) *checker {
	return &checker{token.NewFileSet(), processor, map[string]*types.Package{"unsafe": types.Unsafe}}
}

// check returns the errors of a package. For the standard library, it does not read the bodies of functions.
func (c *checker) check(p *listed) (found []error) {
	if p.ImportPath == "unsafe" {
		return nil
	}
	if p.Error != nil {
		found = append(found, errors.New(p.Error.Err))
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			found = append(found, err)
			continue
		}
		files = append(files, f)
		if p.Module != nil && p.Module.Main && len(p.SFiles) == 0 {
			found = append(found, c.bodiless(f)...)
		}
	}
	config := types.Config{
		Importer:         imports{c, p},
		Sizes:            types.SizesFor("gc", c.processor),
		IgnoreFuncBodies: p.Standard,
		Error:            func(err error) { found = append(found, err) },
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	path, _, _ := strings.Cut(p.ImportPath, " ")
	c.known[p.ImportPath], _ = config.Check(path, c.fset, files, nil)
	return found
}

// bodiless finds functions without a body. The compiler accepts them only if the package has assembly or the linker
// gives the function a name.
func (c *checker) bodiless(f *ast.File) (found []error) {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body == nil {
			found = append(found, fmt.Errorf("%s: missing function body of %s", c.fset.Position(fn.Pos()), fn.Name.Name))
		}
	}
	return found
}

// imports finds imported packages among those that were checked before.
type imports struct {
	*checker
	by *listed
}

func (i imports) Import(path string) (*types.Package, error) {
	if mapped, ok := i.by.ImportMap[path]; ok {
		path = mapped
	}
	if p := i.known[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s is not there for this system", path)
}
