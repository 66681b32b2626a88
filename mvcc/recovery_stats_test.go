package mvcc

import (
	"bytes"
	"testing"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

func openMem(t *testing.T, mem *vfs.Mem, segmentPages uint32) *Engine {
	e, err := Open(mem, "a.fdbm", Options{
		Store:  logstore.Options{SegmentPages: segmentPages, ChunkPages: 1 << 12},
		Manual: true, MemoryLimit: 1 << 20, RedoLimit: 1 << 20,
	})
	require.NoError(t, err)
	return e
}

// TestKeyTooLongForSmallSegments puts records whose run, or whose list of extents, fits no segment of the file.
func TestKeyTooLongForSmallSegments(t *testing.T) {
	mem := vfs.NewMem(64 << 20)
	defer mem.Release()
	e := openMem(t, mem, logstore.MinSegmentPages)
	tx, err := e.Begin(TxOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, tx.Put(bytes.Repeat([]byte("k"), 64<<10), []byte("v")), logstore.ErrSmallSegments)
	require.NoError(t, tx.Put(bytes.Repeat([]byte("k"), 8<<10), []byte("v")))
	require.NoError(t, tx.Put([]byte("long value"), make([]byte, 100<<10)))
	require.NoError(t, tx.Commit())
	require.NoError(t, e.Close())
}

// TestDroppedTailIsTold cuts off the end of a commit of two pages and opens the file again.
func TestDroppedTailIsTold(t *testing.T) {
	mem := vfs.NewMem(64 << 20)
	defer mem.Release()
	e := openMem(t, mem, 64)
	put := func(key string, size int) {
		tx, err := e.Begin(TxOptions{})
		require.NoError(t, err)
		require.NoError(t, tx.Put([]byte(key), make([]byte, size)))
		require.NoError(t, tx.Commit())
	}
	put("whole", 10)
	var cut *vfs.Mem
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Len > 2*logstore.PageSize && cut == nil {
			return &vfs.ShortWrite{N: logstore.PageSize}
		}
		return nil
	})
	tx, err := e.Begin(TxOptions{})
	require.NoError(t, err)
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		require.NoError(t, tx.Put([]byte(key), make([]byte, 2000)))
	}
	require.ErrorIs(t, tx.Commit(), logstore.ErrFailed)
	cut = mem.Clone()
	defer cut.Release()
	mem.OnOp(nil)
	require.ErrorIs(t, e.Close(), logstore.ErrFailed)

	e = openMem(t, cut, 64)
	require.True(t, e.recovery.stats.DroppedTail)
	_, ok, err := e.GetCopy([]byte("whole"))
	require.NoError(t, err)
	require.True(t, ok)
	_, ok, err = e.GetCopy([]byte("a"))
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, e.Close())

	e = openMem(t, cut, 64)
	require.False(t, e.recovery.stats.DroppedTail)
	require.NoError(t, e.Close())
}
