package mvcc

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// loadRandom puts records of 408 bytes in random order, 500 a transaction.
func loadRandom(t *testing.T, e *Engine, records int) {
	perm := rand.New(rand.NewPCG(1, 1)).Perm(records)
	for i := 0; i < records; i += 500 {
		tx := begin(t, e, TxOptions{})
		for _, k := range perm[i : i+500] {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%08d", k), make([]byte, 400)))
		}
		require.NoError(t, tx.Commit())
	}
}

// TestRedoEarlyHasRoom: a redo that writes pages early, because it lacks memory, ends with a flush of the other pages.
// That flush takes more room than is reserved for dirty pages.
func TestRedoEarlyHasRoom(t *testing.T) {
	inTurn(t)
	mem := vfs.NewMem(0)
	opts := Options{Durability: Durable, Manual: true, MemoryLimit: 512 << 20, RedoLimit: 64 << 20, Thresholds: Thresholds{KeepInline: true}}
	e := openOn(t, mem, opts)
	loadRandom(t, e, 130_000)
	image := mem.Crash(vfs.KeepAll, 1) // nothing has been flushed yet
	defer image.Release()
	require.NoError(t, e.Close())
	mem.Release()
	opts.MemoryLimit, opts.Store.ChunkPages = 64<<20, 1<<14
	e, err := Open(image, "a.fdbm", opts)
	require.NoError(t, err)
	require.NoError(t, e.Check(t.Context()))
	require.NoError(t, e.Close())
}

// TestRedoOfRangeHasRoom: a redo with ranges also ends with a flush of all dirty pages.
func TestRedoOfRangeHasRoom(t *testing.T) {
	inTurn(t)
	mem := vfs.NewMem(0)
	defer mem.Release()
	opts := Options{Durability: Durable, Manual: true, MemoryLimit: 512 << 20, RedoLimit: 1 << 30, Thresholds: Thresholds{KeepInline: true, CutFrom: 10}}
	e := openOn(t, mem, opts)
	for i := range 50 {
		put(t, e, fmt.Sprintf("z%08d", i), "value")
	}
	remove := func(from, to []byte) {
		tx := begin(t, e, TxOptions{})
		require.NoError(t, tx.DeleteRange(from, to))
		require.NoError(t, tx.Commit())
	}
	remove([]byte("z"), nil) // from here on the log may have ranges
	loadRandom(t, e, 60_000)
	var image *vfs.Mem
	writes := 0
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec {
			if writes++; writes == 82 { // a write of the flush after the range
				image = mem.Crash(vfs.KeepAll, 1)
			}
		}
		return nil
	})
	remove(fmt.Appendf(nil, "%08d", 100), fmt.Appendf(nil, "%08d", 9000))
	mem.OnOp(nil)
	require.NoError(t, e.Close())
	require.NotNil(t, image)
	defer image.Release()
	opts.Store.ChunkPages = 1 << 14
	e, err := Open(image, "a.fdbm", opts)
	require.NoError(t, err)
	put(t, e, "x", "value")
	require.NoError(t, e.Check(t.Context()))
	require.NoError(t, e.Close())
}
