package mvcc

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// loaded returns an engine with the given number of newly loaded records in its tree, none of them flushed, and a
// function that puts records at random, each in its own transaction.
func loaded(t *testing.T, records int, opts Options) (e *Engine, put func(n int)) {
	e = newEngine(t, opts)
	put1 := func(tx *Tx, rng *rand.Rand) {
		require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, rng.Uint64()), make([]byte, 92)))
	}
	rng := rand.New(rand.NewPCG(1, 1))
	put = func(n int) {
		for range n {
			tx := begin(t, e, TxOptions{})
			put1(tx, rng)
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, e.tree.mergeAll())
	}
	put(1)
	e.store.RedoBefore() // the checkpoint says that flushes may be incremental
	require.NoError(t, e.Checkpoint())
	for range records / 1000 {
		tx := begin(t, e, TxOptions{})
		for range 1000 {
			put1(tx, rng)
		}
		require.NoError(t, tx.Commit())
	}
	require.NoError(t, e.tree.mergeAll())
	return e, put
}

// TestLoadIsLeftBehind: the first flush after a load writes everything. As soon as that is durable, redo starts after
// the load.
func TestLoadIsLeftBehind(t *testing.T) {
	inTurn(t)
	const beside = 300 // records; they change too many leaves for a second flush after the folds
	var put func(n int)
	var e *Engine
	committed := false
	e, put = loaded(t, 80_000, Options{Manual: true, RedoLimit: 64 << 20, Thresholds: Thresholds{KeepInline: true}, Step: func(p StepPoint) {
		if p == StepBetween && put != nil && !committed && e.pages.InFlight() > 0 {
			committed = true
			put(beside)
		}
	}})
	require.NoError(t, e.tree.withMerged(func() error {
		e.store.SetBound(logstore.PageSize) // no room for a flush of everything
		require.Equal(t, 1, e.pressure.parts(), "a part would be of all")
		return nil
	}))
	dirty := int64(e.pages.DirtyPages())
	require.Greater(t, dirty, int64(100))
	require.NoError(t, e.Checkpoint())
	require.True(t, committed, "beside it")
	require.Positive(t, e.flusher.whole)
	require.Less(t, e.flusher.whole*leftBehind, dirty, "redo starts at the flush of the load")
	require.Equal(t, e.flusher.allBase, e.pages.RedoStart())
}

// TestGrowthIsReserved: the pages that the next flush has to write are reserved, and pages that splits have made count
// as live pages to come. Therefore the redo limit of a tree that grows everywhere is lower.
func TestGrowthIsReserved(t *testing.T) {
	inTurn(t)
	e, put := loaded(t, 20_000, Options{Manual: true, RedoLimit: 64 << 20, Thresholds: Thresholds{PartBytes: 4 << 10}})
	require.NoError(t, e.Checkpoint())
	put(1)
	look := func(fn func()) {
		require.NoError(t, e.tree.withMerged(func() error { fn(); return nil }))
	}
	limit := func() int64 {
		e.pressure.crowd.bound.Store(60 << 20)
		return e.pressure.redoLimit()
	}
	before, must, born := int64(0), int64(0), int64(0)
	look(func() { before = limit() })
	for n := 0; n < 30_000 && must < 4*heldParts; n += 500 { // until an inner node is split
		put(500)
		look(func() { must, born = e.pages.MustPages(), e.pages.BornPages() })
	}
	require.GreaterOrEqual(t, must, int64(4*heldParts))
	look(func() {
		require.GreaterOrEqual(t, e.pressure.unwritten(), must)
		require.InDelta(t, before-born*logstore.PageSize/redoShare, limit(), 64<<10)
	})
	require.Greater(t, born, int64(100), "nothing to see")
}
