//go:build invariants

package btree

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReleasedHeap: a released heap is neither held nor released again, also if its block has become the one that is
// handed out next.
func TestReleasedHeap(t *testing.T) {
	const found = "flashdbm: invariant: nobody holds a block that is shared or released"
	m := NewMemory()
	defer m.Close()
	other := newHeap(m, 100) // so that the slab stays
	h := newHeap(m, 100)
	heapHold(h)
	heapRelease(m, h)
	heapRelease(m, h)
	require.PanicsWithValue(t, found, func() { heapHold(h) })
	require.PanicsWithValue(t, found, func() { heapRelease(m, h) })
	heapRelease(m, other)
}
