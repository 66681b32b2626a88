//go:build invariants

package mvcc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/overlay"
)

// TestInvariants breaks an engine in each of the ways that a build with the tag invariants detects.
func TestInvariants(t *testing.T) {
	const prefix = "flashdbm: invariant: "
	e := newEngine(t, Options{})
	put(t, e, "key", "value")
	require.PanicsWithValue(t, prefix+"nobody holds the token", func() { e.tree.sizes() })
	require.PanicsWithValue(t, prefix+"nobody holds the token", func() { _ = e.log.writeRedo() })
	require.NoError(t, e.tree.withTree(func() error {
		e.tree.sizes()
		v := *e.readers.views.newest.Load()
		require.PanicsWithValue(t, prefix+"the version of the tree that readers get moves back", func() { e.tree.publishView(v.Tree-1, v.Base) })
		require.PanicsWithValue(t, prefix+"the version of the tree that readers get moves back", func() { e.tree.publishView(v.Tree, v.Base-1) })
		require.Equal(t, overlay.View{Tree: v.Tree, Base: v.Base}, overlay.View{Tree: e.readers.views.newest.Load().Tree, Base: e.readers.views.newest.Load().Base})
		require.PanicsWithValue(t, prefix+"the watermark of applied commits moves back", func() { e.marks.show(e.marks.applied.Load() - 1) })
		held := e.room.held
		e.room.held = -1
		require.PanicsWithValue(t, prefix+"more room was given up than was held for dirty pages", e.room.spend)
		e.room.held = held
		return nil
	}))
}
