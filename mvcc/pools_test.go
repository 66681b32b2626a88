package mvcc

import (
	"runtime"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestClosedIsCollected: an engine that was used and closed is freed by the next garbage collection, not by the
// second one.
func TestClosedIsCollected(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	var closed []weak.Pointer[Engine]
	for range 8 {
		e := openOn(t, mem, Options{Durability: Durable})
		require.NoError(t, e.WriteOne([]byte("k"), []byte("v"), false))
		_, ok, err := e.GetCopy([]byte("k"))
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, e.Close())
		closed = append(closed, weak.Make(e))
	}
	runtime.GC()
	left := 0
	for _, w := range closed {
		if w.Value() != nil {
			left++
		}
	}
	require.LessOrEqual(t, left, 1, "the stack may have the last one")
}
