package lockfree

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScanWhileTheWatermarkMoves: a reader that registered before a scan begins and stays until after it is
// among the pins, or not below the watermark that the scan returns, even if the watermark moves while the scan
// looks at the slots. There are many slots, so that the scan takes a while.
func TestScanWhileTheWatermarkMoves(t *testing.T) {
	var r Registry
	var watermark atomic.Uint64
	watermark.Store(1)
	for range 20_000 {
		r.Acquire(&watermark)
	}
	watermark.Store(2)
	var held atomic.Uint64 // what the reader is registered at, each value once; 0 = nothing
	var begun, ended atomic.Int64
	done := make(chan struct{})
	stopped := make(chan struct{})
	await := func(n *atomic.Int64) bool {
		for from := n.Load(); n.Load() == from; {
			select {
			case <-done:
				return false
			default:
				runtime.Gosched()
			}
		}
		return true
	}
	go func() {
		defer close(stopped)
		for more := true; more; {
			s := r.Acquire(&watermark)
			held.Store(s.Seq())
			more = await(&begun)
			for range rand.IntN(2000) {
				_ = held.Load()
			}
			watermark.Add(1)
			more = more && await(&ended)
			held.Store(0)
			s.Release()
		}
	}()
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	stayed := 0
	var pins []uint64
	for round := 0; round < rounds || stayed == 0; round++ { // on a busy machine the reader may come late
		before := held.Load()
		if before == 0 {
			runtime.Gosched()
		}
		begun.Add(1)
		pins, _ = r.Scan(pins, &watermark)
		if before != 0 && held.Load() == before {
			stayed++
			require.True(t, Pinned(pins, before, before+1), "reader at %d, the scan returned %d", before, pins)
		}
		ended.Add(1)
	}
	close(done)
	<-stopped
}

// TestReadersBelow: readers below a value are counted up to a limit. If there ever were many readers, so that
// looking at all slots would take long, there are said to be some.
func TestReadersBelow(t *testing.T) {
	var r Registry
	var applied atomic.Uint64
	require.False(t, r.ReadersBelow(1, 0))
	applied.Store(5)
	a, b := r.Acquire(&applied), r.Acquire(&applied)
	require.False(t, r.ReadersBelow(5, 0))
	require.True(t, r.ReadersBelow(6, 1))
	require.False(t, r.ReadersBelow(6, 2))
	held := r.AcquireAt(5)
	require.False(t, r.ReadersBelow(6, 2))
	a.Release()
	require.False(t, r.ReadersBelow(6, 1))
	b.Release()
	held.Release()
	var many []Slot
	for range fewSlots + 1 {
		many = append(many, r.Acquire(&applied))
	}
	for _, s := range many {
		s.Release()
	}
	require.True(t, r.ReadersBelow(6, 0))
	require.Zero(t, r.Count())
}
