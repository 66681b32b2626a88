package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// source is a file of the engine with its top-level declarations.
type source struct {
	name  string // path from the root of the repository
	pkg   string // name in the package clause
	text  string
	decls []declaration
}

// declaration is a top-level function, method, constant, variable or type. Each constant and variable has a
// declaration of its own if it takes one line or its value is derived from the line above.
type declaration struct {
	names      []string // a method's is "Type.Method"
	begin, end int      // offsets in the file, without the comments above it
	body       int      // offset of the opening brace of a function's body, 0 for none
	words      []word
}

// sources holds the packages that were parsed: all mutants of a package use the same files.
var sources struct {
	sync.Mutex
	packages map[string][]*source
}

// readPackage returns the files of a package without its tests, including those for other systems.
func readPackage(dir string) ([]*source, error) {
	sources.Lock()
	defer sources.Unlock()
	if files, ok := sources.packages[dir]; ok {
		return files, nil
	}
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*source
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parseSource(filepath.ToSlash(filepath.Join(dir, filepath.Base(name))), string(text))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no package %s", dir)
	}
	if sources.packages == nil {
		sources.packages = map[string][]*source{}
	}
	sources.packages[dir] = files
	return files, nil
}

// parseSource finds the declarations of a file.
func parseSource(name, text string) (*source, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s, file := &source{name: name, pkg: tree.Name.Name, text: text}, set.File(tree.Pos())
	add := func(n ast.Node, body int, names ...string) {
		begin, end := file.Offset(n.Pos()), file.Offset(n.End())
		s.decls = append(s.decls, declaration{names, begin, end, body, words(text[begin:end])})
	}
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name, body := d.Name.Name, 0
			if d.Recv != nil && len(d.Recv.List) == 1 {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			if d.Body != nil {
				body = file.Offset(d.Body.Lbrace)
			}
			add(d, body, name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add(spec, 0, spec.Name.Name)
				case *ast.ValueSpec:
					var names []string
					for _, n := range spec.Names {
						names = append(names, n.Name)
					}
					add(spec, 0, names...)
				}
			}
		}
	}
	return s, nil
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// word is a token of Go with its position.
type word struct {
	text       string
	begin, end int
}

// words splits Go source into its tokens. It leaves out comments, white space and the semicolons that the scanner
// inserts at line ends, so that two texts that differ only in their layout have the same words. The source need not
// be a complete file.
func words(text string) (all []word) {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), func(token.Position, string) {}, 0)
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return all
		}
		if kind == token.SEMICOLON && literal != ";" {
			continue
		}
		if literal == "" || kind.IsOperator() {
			literal = kind.String()
		}
		at := file.Offset(pos)
		all = append(all, word{literal, at, at + len(literal)})
	}
}

// place is where a replacement is inserted.
type place struct {
	in         *source
	begin, end int
}

// find returns where a text occurs in a declaration. It compares tokens.
func (d declaration) find(in *source, old []word) (places []place) {
	for i := 0; i+len(old) <= len(d.words); i++ {
		if here := d.words[i:][:len(old)]; slices.EqualFunc(here, old, func(a, b word) bool { return a.text == b.text }) {
			places = append(places, place{in, d.begin + here[0].begin, d.begin + here[len(old)-1].end})
		}
	}
	return places
}

// find returns where a hunk's old text is. The text must occur exactly once in all declarations of the hunk's name,
// including those for other systems.
func (h hunk) find() (place, error) {
	files, err := readPackage(h.pkg)
	if err != nil {
		return place{}, err
	}
	old := words(h.old)
	if len(old) == 0 || h.old == h.new {
		return place{}, fmt.Errorf("%s %s: a replacement that does nothing", h.pkg, h.decl)
	}
	var here []place
	var elsewhere []string
	declared := false
	for _, f := range files {
		for _, d := range f.decls {
			places := d.find(f, old)
			if slices.Contains(d.names, h.decl) {
				declared = true
				here = append(here, places...)
			} else if len(places) > 0 {
				elsewhere = append(elsewhere, fmt.Sprintf("%s (%s)", d.names[0], f.name))
			}
		}
	}
	if len(here) == 1 {
		return here[0], nil
	}
	what := fmt.Sprintf("%s of package %s has this text %d times and not once", h.decl, h.pkg, len(here))
	if !declared {
		what = fmt.Sprintf("package %s declares no %q", h.pkg, h.decl)
	}
	if len(here) == 0 && len(elsewhere) > 0 {
		what += "; the text stands in " + strings.Join(elsewhere, ", ")
	}
	return place{}, fmt.Errorf("%s:\n%s", what, h.old)
}
