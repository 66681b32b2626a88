package mvcc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/btree"
	"flashdbm/logstore/vfs"
)

// TestLoadRowOfOneLeaf: a row of leaves that fits one leaf cannot be loaded into a tree without other records. It is
// refused, and the database stays usable.
func TestLoadRowOfOneLeaf(t *testing.T) {
	mem := vfs.NewMem(64 << 20)
	defer mem.Release()
	e := openMem(t, mem, 0)
	defer e.Close()
	row := [][]LoadRecord{{{Key: []byte("k"), Value: []byte("v")}}}
	require.ErrorIs(t, LoadRow(e, row), btree.ErrOneLeaf)
	require.NoError(t, e.Failed())
}
