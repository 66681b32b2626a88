package archtest

import (
	"go/ast"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A larger type is several things in one: a reader cannot tell which methods use which of its fields, as each of
// them could.
const (
	maxFields  = 20 // of a struct that has methods
	maxMethods = 40
)

// largeTypes lists the types of the engine that are larger, by package and name, with the limits that apply to
// them. The limits may only be lowered, and a type is removed from the list once it is small enough.
var largeTypes = map[string]struct{ fields, methods int }{
	"dbm.DB":                    {20, 46}, // what users call: one place to look for it
	"dbm.Tx":                    {20, 42}, // likewise
	"internal/btree.Node":       {20, 44}, // two words without state: each method reads something else of the same bytes
	"internal/salvage.salvager": {23, 61},
	"logstore/vfs.osFile":       {20, 43}, // those of all systems together
}

func TestTypeSize(t *testing.T) {
	type size struct{ fields, methods int }
	sizes := map[string]*size{}
	of := func(f *file, name string) *size {
		key := f.dir() + "." + name
		if sizes[key] == nil {
			sizes[key] = &size{}
		}
		return sizes[key]
	}
	for _, f := range source(t) {
		if f.test || f.module.path != "flashdbm" {
			continue
		}
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					of(f, receiver(d)).methods++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						if s, ok := spec.Type.(*ast.StructType); ok {
							of(f, spec.Name.Name).fields += s.Fields.NumFields()
						}
					}
				}
			}
		}
	}
	require.Greater(t, len(sizes), 300, "the walk has missed types")
	for key, s := range sizes {
		if s.methods == 0 { // a struct that is only a set of fields
			continue
		}
		most, large := largeTypes[key]
		if !large {
			assert.LessOrEqual(t, s.fields, maxFields, "fields of %s", key)
			assert.LessOrEqual(t, s.methods, maxMethods, "methods of %s", key)
			continue
		}
		assert.True(t, s.fields > maxFields || s.methods > maxMethods, "%s is small enough by now, and need not be listed", key)
		assert.LessOrEqual(t, s.fields, most.fields, "fields of %s", key)
		assert.LessOrEqual(t, s.methods, most.methods, "methods of %s", key)
	}
	for key := range largeTypes {
		assert.Contains(t, sizes, key)
	}
}

// receiver returns the name of the type that has the method.
func receiver(d *ast.FuncDecl) string {
	switch t := d.Recv.List[0].Type.(type) {
	case *ast.StarExpr:
		return typeName(t.X)
	default:
		return typeName(t)
	}
}

func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.IndexListExpr:
		return typeName(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}
