package logstore

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUsedPages compares the set with a map.
func TestUsedPages(t *testing.T) {
	for _, segmentPages := range []uint32{8, 64, 256} {
		rng := rand.New(rand.NewPCG(1, uint64(segmentPages)))
		set, want := NewPageSet(segmentPages), map[Addr]bool{}
		size := uint64(segmentPages)
		for range 300 {
			a := rng.Uint64N(40 * size)
			n := 1 + rng.Uint64N(min(size-a%size, 20))
			fresh := true
			for i := range n {
				fresh = fresh && !want[a+i]
			}
			require.Equal(t, fresh, set.Add(a, int64(n)))
			for i := range n {
				want[a+i] = true
			}
		}
		for a := range 41 * size {
			require.Equal(t, want[a], set.Has(a), "page %d", a)
		}
	}
}

// TestUsedPagesMemory: a check of a file of 20 GB takes a thousandth of MemoryLimit for the pages that it has
// found in use.
func TestUsedPagesMemory(t *testing.T) {
	inTurn(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	set := NewPageSet(DefaultSegmentPages)
	for a := range Addr(20_000_000_000 / PageSize) {
		set.Add(a, 1)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(6<<20))
}
