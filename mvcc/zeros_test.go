package mvcc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestZerosForSyncs: segments are zeroed ahead of commits that return before they are durable, if callers wait for
// many syncs, but not if they wait for few.
func TestZerosForSyncs(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	called := make(chan error)
	fill := func(sync func() error) { // until the log has entered a new segment
		for range 10_000 {
			put(t, e, "k", "v")
			require.NoError(t, e.log.syncCommitted()) // as writeBuffered does
			if sync != nil {
				require.NoError(t, sync())
			}
			if e.store.ZeroDue() {
				return
			}
		}
		t.Fatal("the log has entered no segment")
	}
	fill(nil)
	require.False(t, e.pressure.zeroDue(), "nobody has waited")
	for range manySyncs - 1 {
		require.NoError(t, e.Sync())
	}
	require.False(t, e.pressure.zeroDue())
	require.NoError(t, e.Sync())
	require.True(t, e.pressure.zeroDue())
	for _, sync := range []func() error{e.Sync, func() error {
		require.NoError(t, e.WriteOneAsync([]byte("k"), []byte("v"), false, true, func(err error) { called <- err }))
		return <-called
	}} {
		e.log.asked.Store(0)
		require.NoError(t, e.store.ZeroAhead())
		require.False(t, e.pressure.zeroDue())
		fill(sync)
		require.True(t, e.pressure.zeroDue())
	}
}

// TestZerosMergeNothing: zeroing ahead of the log does not start other background work, which would merge committed
// records while commits wait for the token.
func TestZerosMergeNothing(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	m := &e.maintenance
	m.started = true // without its goroutine
	for i := 0; !m.zero.Load(); i++ {
		require.Less(t, i, 10_000, "the log has entered no segment")
		put(t, e, "k", "v")
		require.NoError(t, e.Sync())
	}
	require.False(t, m.woken(), "housekeeping")
	require.False(t, m.zero.Load() || e.store.ZeroDue())
	require.Positive(t, e.tree.tables.rest())
	require.Zero(t, e.readers.views.newest.Load().Records)
	m.due.Store(true)
	require.True(t, m.woken())
}
