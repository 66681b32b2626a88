package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A schema is the engine with many mutants in it at once. When a process starts, an environment variable chooses
// one of them. For a mutant that changes only bodies of functions, the new body is inserted before the original
// one:
//
//	func f() int {
//		if seededBug == 17 {
//			the body of mutant 17
//		}
//		the body
//	}
//
// The test binary is then built once for all of them. A mutant that changes anything else, or that does not compile
// this way, is built alone. The bodies in one function share what the compiler decides for the function as a whole,
// such as which variables are on the heap, and small functions are no longer inlined. Therefore the tests must also
// pass in the schema while no mutant is chosen.
type schema struct {
	numbers map[string]int             // of the mutants in the schema, from 1 on
	bodies  map[*source]map[int][]body // by index of the declaration
}

// body is the body that a mutant gives to a function.
type body struct {
	mutant string
	text   string // without its braces
	result bool   // the function returns values
}

// chosen is the environment variable with the number of the chosen mutant.
const chosen = "FLASHDBM_SEEDED_BUG"

// newSchema makes a schema of those of the mutants that fit in it.
func newSchema(all []mutant) (*schema, error) {
	s := &schema{map[string]int{}, map[*source]map[int][]body{}}
	for i := range all {
		changed, err := all[i].change()
		if err != nil {
			return nil, err
		}
		bodies, ok := map[*source]map[int]body{}, true
		for of, text := range changed {
			if bodies[of], ok = of.bodies(all[i].name, i+1, text); !ok {
				break
			}
		}
		if !ok {
			continue
		}
		s.numbers[all[i].name] = i + 1
		for of, some := range bodies {
			if s.bodies[of] == nil {
				s.bodies[of] = map[int][]body{}
			}
			for d, b := range some {
				s.bodies[of][d] = append(s.bodies[of][d], b)
			}
		}
	}
	return s, nil
}

// bodies returns the changed bodies of functions in a changed text of the file. It returns false if anything else
// is changed.
func (s *source) bodies(mutant string, number int, text string) (map[int]body, bool) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, s.name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, false
	}
	now, err := parseSource(s.name, text)
	if err != nil || len(now.decls) != len(s.decls) {
		return nil, false
	}
	functions := map[int]*ast.FuncDecl{} // by offset
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			functions[set.Position(f.Pos()).Offset] = f
		}
	}
	all := map[int]body{}
	for i, was := range s.decls {
		is := now.decls[i]
		if s.text[was.begin:was.end] == text[is.begin:is.end] {
			continue
		}
		if was.body == 0 || is.body == 0 || s.text[was.begin:was.body] != text[is.begin:is.body] {
			return nil, false
		}
		f := functions[is.begin]
		all[i] = body{mutant, relabelled(f, text[is.body+1:is.end-1], set.Position(f.Body.Lbrace).Offset+1, number, set), f.Type.Results != nil}
	}
	return all, true
}

// relabelled renames the labels in the body of a function, as each label may occur only once in a function. begin
// is the offset of the text of the body.
func relabelled(f *ast.FuncDecl, text string, begin, number int, set *token.FileSet) string {
	var at []int
	ast.Inspect(f, func(n ast.Node) bool {
		var label *ast.Ident
		switch n := n.(type) {
		case *ast.LabeledStmt:
			label = n.Label
		case *ast.BranchStmt:
			label = n.Label
		}
		if label != nil {
			at = append(at, set.Position(label.End()).Offset-begin)
		}
		return true
	})
	slices.Sort(at)
	for _, i := range slices.Backward(at) {
		text = fmt.Sprintf("%sOfMutant%d%s", text[:i], number, text[i:])
	}
	return text
}

// drop removes a mutant from the schema.
func (s *schema) drop(mutant string) {
	delete(s.numbers, mutant)
	for _, decls := range s.bodies {
		for d, some := range decls {
			decls[d] = slices.DeleteFunc(some, func(b body) bool { return b.mutant == mutant })
		}
	}
}

// files returns the files of the engine with the mutants in them, by name.
func (s *schema) files() map[string]string {
	files := map[string]string{}
	for of, decls := range s.bodies {
		var text strings.Builder
		at, any := 0, false
		for _, d := range slices.Sorted(maps.Keys(decls)) {
			if len(decls[d]) == 0 {
				continue
			}
			any = true
			begin := of.decls[d].body + 1
			text.WriteString(of.text[at:begin])
			for _, b := range decls[d] {
				end := ""
				if !b.result {
					end = "\nreturn"
				}
				fmt.Fprintf(&text, "\n//line mutant-%s:1\nif seededBug == %d {%s%s\n}", b.mutant, s.numbers[b.mutant], b.text, end)
			}
			fmt.Fprintf(&text, "\n//line %s:%d\n", filepath.Base(of.name), 1+strings.Count(of.text[:begin], "\n"))
			at = begin
		}
		text.WriteString(of.text[at:])
		files[of.name] = text.String()
		if any {
			files[filepath.Join(filepath.Dir(of.name), "seeded_bug.go")] = fmt.Sprintf(
				"package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar seededBug, _ = strconv.Atoi(os.Getenv(%q))\n", of.pkg, chosen)
		}
	}
	return files
}

// build builds the test binaries of packages. It drops the mutants that do not compile in the schema.
func (s *schema) build(t *testing.T, packages []string) (*builder, error) {
	slices.Sort(packages)
	packages = slices.Compact(packages)
	b := &builder{}
	for {
		b.dir, b.binaries = t.TempDir(), nil
		var err error
		if b.overlay, err = writeOverlay(s.files(), b.dir); err != nil {
			return nil, err
		}
		failed := make([]error, len(packages))
		each(len(packages), func(i int) { _, failed[i] = b.build(packages[i]) })
		if err = errors.Join(failed...); err == nil {
			return b, nil
		}
		names := culprits(err.Error())
		if len(names) == 0 {
			return nil, err
		}
		for _, name := range names {
			t.Logf("%-40s does not compile in the schema", name)
			s.drop(name)
		}
	}
}

var inMutant = regexp.MustCompile(`(?m)\bmutant-([a-z0-9-]+):\d+`)

// culprits returns the mutants to which the compiler's errors refer.
func culprits(complaints string) (mutants []string) {
	for _, m := range inMutant.FindAllStringSubmatch(complaints, -1) {
		if !slices.Contains(mutants, m[1]) {
			mutants = append(mutants, m[1])
		}
	}
	return mutants
}

// writeOverlay writes changed files and the JSON file that the go command needs to use them.
func writeOverlay(files map[string]string, dir string) (string, error) {
	replace := map[string]string{}
	for name, text := range files {
		at, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		replace[at] = filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(replace[at], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, b, 0o600)
}
