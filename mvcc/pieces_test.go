package mvcc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/btree"
	"flashdbm/logstore/vfs"
)

// commitRandom commits n records in one transaction. Their keys have the numbers that next returns. It notes the
// records in want.
func commitRandom(t *testing.T, e *Engine, rng *rand.Rand, want map[string]string, n int, next func() int) {
	tx := begin(t, e, TxOptions{})
	for range n {
		key, value := fmt.Sprintf("key%05d", next()), fmt.Sprint(rng.IntN(1e9), string(make([]byte, rng.IntN(200))))
		require.NoError(t, tx.Put([]byte(key), []byte(value)))
		want[key] = value
	}
	require.NoError(t, tx.Commit())
}

// hasAll requires that the database has these records and no others.
func hasAll(t *testing.T, e *Engine, want map[string]string) {
	tx := begin(t, e, TxOptions{ReadOnly: true})
	defer tx.Rollback()
	for key, value := range want {
		require.Equal(t, value, get(t, tx, key))
	}
	n, err := tx.Len()
	require.NoError(t, err)
	require.EqualValues(t, len(want), n)
}

// The redo of an Open takes more memory than the limit: pages are flushed on the way. A second crash in the middle of
// that changes nothing.
func TestRedoWritesEarly(t *testing.T) {
	inTurn(t)
	mem := vfs.NewMem(0)
	defer mem.Release()
	opts := tiny(Durable)
	opts.Store.SegmentPages, opts.Manual, opts.RedoLimit = 64, true, 64<<20
	e := openOn(t, mem, opts)
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[string]string{}
	for range 300 {
		commitRandom(t, e, rng, want, 20, func() int { return rng.IntN(5000) })
	}
	image := mem.Clone()
	defer image.Release()
	require.NoError(t, e.Close())

	opts.Shares.Batch = 64 << 10
	for stop := int64(1); ; stop += 7 {
		again := image.Clone()
		var written int64
		again.OnOp(func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec {
				if written++; written > stop {
					return fmt.Errorf("killed")
				}
			}
			return nil
		})
		o := opts
		o.Store.ChunkPages, o.MemoryLimit, o.FlushInterval = 1<<14, 64<<20, time.Second
		killed, err := Open(again, "a.fdbm", o)
		if err == nil {
			s, serr := killed.Stats()
			require.NoError(t, serr)
			require.EqualValues(t, 1, s.Pages.Flushes)
			require.Greater(t, s.Log.FlushGroups, uint64(5), "parts were written early")
			require.Less(t, s.MemoryBytes, int64(256<<10))
			hasAll(t, killed, want)
			require.NoError(t, killed.Check(context.Background()))
			again.OnOp(nil) // Close may write more
			require.NoError(t, killed.Close())
			again.Release()
			require.Greater(t, stop, int64(20))
			break
		}
		again.OnOp(nil)
		for _, p := range []vfs.Policy{vfs.KeepAll, vfs.KeepNone, vfs.KeepRandomPages} {
			crashed := again.Crash(p, uint64(stop))
			e := openOn(t, crashed, opts)
			hasAll(t, e, want)
			require.NoError(t, e.Check(context.Background()))
			require.NoError(t, e.Close())
			crashed.Release()
		}
		again.Release()
	}
}

// TestFlushWithoutRoomIsRecalled: a flush that began in the middle of a batch is given up if there is no room for its
// remaining pages. Its pages are in memory then, and are written once there is room.
func TestFlushWithoutRoomIsRecalled(t *testing.T) {
	opts := tiny(Durable)
	opts.Manual, opts.Shares.Batch, opts.Store.MaxFileSize = true, 64<<10, 4<<20
	e := newEngine(t, opts)
	want := map[string]string{}
	var ops []btree.Op
	for i := range 1000 {
		key, value := fmt.Sprintf("key%05d", i), strings.Repeat("v", 1000)
		ops = append(ops, btree.Op{Key: []byte(key), Value: []byte(value)})
		want[key] = value
	}
	e.checkpoints.mu.Lock()
	taken := int64(0)
	require.NoError(t, e.tree.withMerged(func() error {
		p := e.flusher.beginPieces(e.store.CloseGroup(), 0)
		require.NoError(t, p.apply(ops[:500]))
		require.Positive(t, e.pages.Stats().Early)
		for e.store.Reserve(1, true) == nil {
			taken++
		}
		require.NoError(t, p.apply(ops[500:]))
		e.tree.publish(e.pages.Seq(), p.records)
		e.marks.durable.Store(e.marks.applied.Load())
		require.Nil(t, p.seal(true))
		e.store.Release(taken)
		return e.Failed()
	}))
	e.checkpoints.mu.Unlock()
	require.Positive(t, taken)
	hasAll(t, e, want)
	require.NoError(t, e.Checkpoint())
	hasAll(t, e, want)
}
