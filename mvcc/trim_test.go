package mvcc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// TestRedoIsCutShort: a few leaves that have not been flushed for long keep much dead space after the redo start from
// reuse. They are written although redo is short, and the space is given back.
func TestRedoIsCutShort(t *testing.T) {
	inTurn(t)
	opts := Options{Thresholds: Thresholds{KeepInline: true}, Manual: true, RedoLimit: 64 << 20, Store: logstore.Options{SegmentPages: 16}}
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
	flush := func(dirty int64) { // in parts, until no more than dirty bytes are left
		for e.pages.DirtyBytes() > dirty {
			require.NoError(t, e.flusher.flushPart(parts))
		}
	}
	put(0, records, 1)
	require.NoError(t, e.Checkpoint())
	e.checkpoints.mu.Lock()
	put(0, records, 5) // a record in each leaf
	flush(2 << 20)
	for range 2 { // the leaves that were just written
		put(0, records/2, 5)
		e.flusher.hand = nil
		flush(2 << 20)
	}
	require.NoError(t, e.checkpoints.checkpointTwice())
	due := func() (due bool) {
		require.NoError(t, e.tree.withMerged(func() error { due = e.checkpoints.cutDue(); return nil }))
		return due
	}
	require.False(t, e.pressure.flushDue())
	t.Logf("%d KiB dirty, %d KiB kept back of %d", e.pages.DirtyBytes()>>10, e.store.Outdated()>>10, e.store.SpaceStats().FileBytes>>10)
	require.True(t, due())
	e.checkpoints.mu.Unlock()
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

// TestCloseGivesBackFewSegments: Close gives back all free segments except the reserved ones, even if they are too few
// to be given back by a running database.
func TestCloseGivesBackFewSegments(t *testing.T) {
	inTurn(t)
	for records := 60; records < 400; records += 40 {
		mem := vfs.NewMem(0)
		opts := tiny(Durable)
		opts.Manual = true
		e := openOn(t, mem, opts)
		for i := range records {
			put(t, e, fmt.Sprint(i), strings.Repeat("v", 1000))
		}
		require.NoError(t, e.Close())
		least := e.store.SpaceStats().FileBytes
		e = openOn(t, mem, opts)
		n := e.store.Room() + 1
		require.NoError(t, e.store.Reserve(n, true))
		e.store.Release(n)
		grown := e.store.SpaceStats().FileBytes
		require.Greater(t, grown, least)
		put(t, e, "0", "new")
		require.NoError(t, e.Close())
		left := e.store.SpaceStats().FileBytes
		segment := int64(opts.Store.SegmentPages) * logstore.PageSize
		t.Logf("%d segments, grown to %d, closed with %d", least/segment, grown/segment, left/segment)
		require.LessOrEqual(t, left, least+segment)
		mem.Release()
	}
}
