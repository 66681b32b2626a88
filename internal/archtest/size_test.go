package archtest

import (
	"go/ast"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These limits keep one concept per file, and discourage options for what the program can decide itself.
const (
	maxLines        = 600 // of a file that is not a test
	maxOptionFields = 12
)

func TestFileLength(t *testing.T) {
	for _, f := range source(t) {
		if !f.test {
			assert.LessOrEqual(t, f.lines, maxLines, "%s of %s", f.path, f.module.path)
		}
	}
}

// TestOptions counts the fields of every struct whose name ends in Options.
func TestOptions(t *testing.T) {
	found := map[string]int{}
	for _, f := range source(t) {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !strings.HasSuffix(spec.Name.Name, "Options") {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			assert.LessOrEqual(t, fields.Fields.NumFields(), maxOptionFields, "%s: %s", f.path, spec.Name.Name)
			found[f.module.path+"/"+f.dir()] += fields.Fields.NumFields()
			return true
		})
	}
	require.Positive(t, found["flashdbm/dbm"], "dbm.Options was not found")
}
