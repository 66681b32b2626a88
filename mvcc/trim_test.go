package mvcc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestRedoIsCutShort: where a few leaves that wait for their turn keep back much that died behind where redo starts, they are written
// although redo is short, and the space goes back.
func TestRedoIsCutShort(t *testing.T) {
	opts := Options{Manual: true, RedoLimit: 64 << 20, Store: logstore.Options{SegmentPages: 16}}
	opts.PartBytes = 64 << 10
	e := newEngine(t, opts)
	const records, parts = 20_000, 32
	put := func(from, to, step int) {
		for i := from; i < to; i += 1000 {
			tx := begin(t, e, TxOptions{})
			for j := i; j < min(i+1000, to); j += step {
				require.NoError(t, tx.Put(fmt.Appendf(nil, "%08d", j), make([]byte, 400)))
			}
			require.NoError(t, tx.Commit())
		}
	}
	flush := func(dirty int64) { // parts, until no more is left
		for e.pages.DirtyBytes() > dirty {
			require.NoError(t, e.flushPart(parts))
		}
	}
	put(0, records, 1)
	require.NoError(t, e.Checkpoint())
	e.keeper.mu.Lock()
	put(0, records, 5) // something in each leaf
	flush(2 << 20)
	for range 2 { // what was just written
		put(0, records/2, 5)
		e.keeper.hand = nil
		flush(2 << 20)
	}
	require.NoError(t, e.checkpointTwice())
	due := func() (due bool) {
		require.NoError(t, e.withBaton(func() error { due = e.cutDue(); return nil }))
		return due
	}
	require.False(t, e.flushDue())
	t.Logf("%d KiB dirty, %d KiB kept back of %d", e.pages.DirtyBytes()>>10, e.store.Outdated()>>10, e.store.SpaceStats().FileBytes>>10)
	require.True(t, due())
	e.keeper.mu.Unlock()
	before, old := e.store.SpaceStats(), e.store.Outdated()
	for range 4 {
		require.NoError(t, e.Housekeep())
	}
	require.False(t, due())
	after := e.store.SpaceStats()
	t.Logf("%d KiB, then %d", before.FileBytes>>10, after.FileBytes>>10)
	require.Less(t, e.store.Outdated(), old/4)
	require.Less(t, after.FileBytes, before.FileBytes-old/4)
	require.NoError(t, e.Check(t.Context()))
}
