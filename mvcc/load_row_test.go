package mvcc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/btree"
	"flashdbm/logstore/vfs"
)

// TestLoadRowOfOneLeaf: a row that fits one leaf does not make a tree where there are no other records. It is refused,
// and everything goes on.
func TestLoadRowOfOneLeaf(t *testing.T) {
	mem := vfs.NewMem(64 << 20)
	defer mem.Release()
	e := openMem(t, mem, 0)
	defer e.Close()
	row := [][]LoadRecord{{{Key: []byte("k"), Value: []byte("v")}}}
	require.ErrorIs(t, LoadRow(e, row), btree.ErrOneLeaf)
	require.NoError(t, e.Failed())
}
