package mvcc

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// nearlyFull returns places of which all but the given number are taken.
func nearlyFull(free int64) *places {
	p := &places{freed: make(chan struct{}, 1)}
	p.entered.Store(asyncBacklog - free)
	return p
}

// TestPlaces: there are asyncBacklog places. A caller that finds none is refused, or waits until one is given back or
// its context ends.
func TestPlaces(t *testing.T) {
	p := nearlyFull(1)
	require.True(t, p.enter())
	require.False(t, p.enter())
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error)
	go func() { waited <- p.await(ctx) }()
	eventually(t, "it waits", func() bool { return p.waiting.Load() == 1 })
	cancel()
	require.ErrorIs(t, <-waited, context.Canceled)
	p.leave()
	require.True(t, p.enter(), "the place of the one that has left")
	require.False(t, p.enter())
	for range asyncBacklog {
		require.True(t, p.any())
		p.leave()
	}
	require.False(t, p.any())
}

// TestPlacesAreFewAndComeBack: never more commits are running than there are places, and every waiting commit gets a
// place.
func TestPlacesAreFewAndComeBack(t *testing.T) {
	const free, callers, each = 3, 8, 2000
	p := nearlyFull(free)
	var under, most atomic.Int64
	called := make(chan struct{}, callers*each)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				if p.await(nil) != nil {
					t.Error("no place")
				}
				if n := under.Add(1); n > most.Load() {
					most.Store(n)
				}
				called <- struct{}{}
			}
		})
	}
	for range callers * each { // instead of the callback goroutine
		<-called
		under.Add(-1)
		p.leave()
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(free))
	require.Equal(t, int64(asyncBacklog-free), p.entered.Load()-p.left.Load())
}
