package mvcc

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// TestBackgroundWritesAreShort: fdatasync waits for all dirty pages of the file. Therefore flushes and checkpoints
// write few pages at a time, and pass the token to commits in between.
func TestBackgroundWritesAreShort(t *testing.T) {
	inTurn(t)
	const part = 64 // pages
	mem := vfs.NewMem(0)
	defer mem.Release()
	turns := 0
	e := openOn(t, mem, Options{Durability: Durable, Manual: true, Step: func(p StepPoint) { turns++ }})
	for i := range 40 {
		tx := begin(t, e, TxOptions{})
		for j := range 500 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%06d", (i*500+j)*7919%100003), make([]byte, 200)))
		}
		require.NoError(t, tx.Commit())
	}
	var since, most, all int64
	at := 0
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec {
			if turns != at {
				at, since = turns, 0
			}
			since += op.Len / logstore.PageSize
			all += op.Len / logstore.PageSize
			most = max(most, since)
		}
		return nil
	})
	require.NoError(t, e.Checkpoint())
	mem.OnOp(nil)
	require.Greater(t, all, int64(10*part), "too little is dirty")
	require.LessOrEqual(t, most, int64(part+4), "a part, its list and headers")
	require.NoError(t, e.Close())
}

// TestHousekeepingGoesOn: while a part of a flush is due, background work continues with the next part, even if nobody
// commits.
func TestHousekeepingGoesOn(t *testing.T) {
	e := newEngine(t, Options{
		Store:      logstore.Options{SegmentPages: 32},
		Durability: Buffered, RedoLimit: 1 << 20, FlushInterval: time.Hour, Thresholds: Thresholds{KeepInline: true, PartBytes: 64 << 10},
	})
	overwrite := func() {
		for i := range 2000 {
			require.NoError(t, e.WriteOne(fmt.Appendf(nil, "%05d", i*7919%2000), make([]byte, 500), false))
		}
	}
	due := func() (parts int, due bool) {
		require.NoError(t, e.tree.withMerged(func() error {
			parts, due = e.pressure.parts(), e.pressure.flushDue()
			return nil
		}))
		return parts, due
	}
	overwrite()
	require.NoError(t, e.Checkpoint())
	e.checkpoints.mu.Lock() // no flush
	overwrite()
	parts, is := due()
	require.Greater(t, parts, 4)
	require.True(t, is)
	flushes := e.flusher.flushes.Load()
	e.checkpoints.mu.Unlock()
	require.Eventually(t, func() bool { _, is := due(); return !is }, patience, time.Millisecond)
	require.Greater(t, e.flusher.flushes.Load(), flushes+1)
}
