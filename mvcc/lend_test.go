package mvcc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestPartsUseHeldRoom: parts that are flushed to make room use the room that is reserved for dirty pages. While they
// are written only the least part is reserved again, and commits do not get the room. Both end with the round.
func TestPartsUseHeldRoom(t *testing.T) {
	inTurn(t)
	const partBytes = 256 << 10
	e, put := loaded(t, 40_000, Options{Manual: true, RedoLimit: 64 << 20, Thresholds: Thresholds{PartBytes: partBytes}})
	require.NoError(t, e.Checkpoint())
	put(3000)
	p := &e.pressure
	withToken := func(fn func()) {
		require.NoError(t, e.tree.withMerged(func() error { fn(); return nil }))
	}
	bound := func() int64 { // an engine without background work has no bound
		p.opts.Manual, p.crowd.raised = false, 0
		defer func() { p.opts.Manual = true }()
		p.noteBound()
		return p.store.Bound()
	}
	const held = heldParts * partBytes / logstore.PageSize
	var before, after, least int64
	withToken(func() {
		e.room.rebalance(0)
		before, least = e.room.held, withMargin(partBytes/partShare/logstore.PageSize)
		require.Greater(t, e.tree.sizes().dirty, int64(8*partBytes))
		require.GreaterOrEqual(t, before, withMargin(held))
	})
	e.checkpoints.mu.Lock()
	defer e.checkpoints.mu.Unlock()
	require.NoError(t, e.flusher.flushPart(16))
	withToken(func() {
		require.GreaterOrEqual(t, e.room.held, withMargin(held), "a part that is due anyway")
		require.Zero(t, p.crowd.lent)
	})
	p.crowd.lends = true
	for last := before; ; last = after {
		require.NoError(t, e.flusher.flushPart(16))
		withToken(func() { after = e.room.held })
		if after == last {
			break
		}
		require.Less(t, after, last)
	}
	require.InDelta(t, least, after, 2, "room for the least part stays")
	withToken(func() {
		lent := bound()
		p.takeBack()
		require.GreaterOrEqual(t, e.room.held, withMargin(held))
		require.InDelta(t, (before-after)*logstore.PageSize, bound()-lent, 2*logstore.PageSize)
	})
}
