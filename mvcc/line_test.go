package mvcc

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestLine compares the line of waiting commits with a list: who is called, in which order, and for how many pages.
func TestLine(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var l line
	var waiting, called []*place
	for range 20_000 {
		switch rng.IntN(6) {
		case 0, 1:
			p := newPlace(1 + rng.Int64N(9))
			l.join(p, false)
			waiting = append(waiting, p)
		case 2, 3:
			room, taken := rng.Int64N(30), int64(0)
			for _, p := range called {
				taken += p.pages
			}
			l.serve(func(pages int64) bool { return pages <= room })
			for len(waiting) > 0 && taken+waiting[0].pages <= room {
				taken += waiting[0].pages
				called, waiting = append(called, waiting[0]), waiting[1:]
			}
			for _, p := range called {
				require.Len(t, p.call, 1)
			}
		case 4: // a called waiter has looked, with success or without
			if len(called) > 0 {
				i := rng.IntN(len(called))
				p := called[i]
				called = slices.Delete(called, i, i+1)
				require.True(t, l.leave(p))
				require.Empty(t, p.call)
				if rng.IntN(2) == 0 {
					l.join(p, true)
					waiting = slices.Insert(waiting, 0, p)
				}
			}
		case 5: // time is up
			if len(waiting) > 0 {
				i := rng.IntN(len(waiting))
				require.False(t, l.leave(waiting[i]))
				waiting = slices.Delete(waiting, i, i+1)
			}
		}
		require.EqualValues(t, len(waiting), l.waiting.Load())
		want := int64(0)
		if len(waiting) > 0 {
			want = waiting[0].pages
		}
		require.Equal(t, want, l.wants())
	}
}

// TestLineLosesNoCall: goroutines take room and give it back as fast as they can, and some are cancelled. None waits
// while there is room, and together they never take more than there is.
func TestLineLosesNoCall(t *testing.T) {
	const room, goroutines, rounds = 20, 40, 200
	var l line
	var used, most atomic.Int64
	take := func(pages int64) bool {
		for {
			have := used.Load()
			if have+pages > room {
				return false
			}
			if used.CompareAndSwap(have, have+pages) {
				most.Store(max(most.Load(), have+pages))
				return true
			}
		}
	}
	serve := func() { l.serve(func(pages int64) bool { return used.Load()+pages <= room }) }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for range rounds {
				p := newPlace(1 + rng.Int64N(8))
				for again, done := false, false; !done; again = true {
					l.join(p, again)
					if take(p.pages) {
						l.leave(p)
						used.Add(-p.pages)
						serve()
						break
					}
					impatient := make(<-chan time.Time)
					if rng.IntN(20) == 0 {
						impatient = time.After(time.Duration(rng.IntN(50)) * time.Microsecond)
					}
					select {
					case <-p.call:
						l.leave(p)
					case <-impatient:
						if done = true; l.leave(p) {
							serve()
						}
					case <-ctx.Done():
						t.Error("a call was lost")
						return
					}
				}
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, most.Load(), int64(room))
	require.Zero(t, used.Load())
	require.Zero(t, l.waiting.Load())
	require.Zero(t, l.called)
}

// TestWaitersAreCalled: commits that wait for room within the bound continue with the room that earlier commits give
// back, even if background work makes no room.
func TestWaitersAreCalled(t *testing.T) {
	inTurn(t)
	least := time.Hour
	for range 3 { // if others use the processors, it takes longer
		least = min(least, waitForEachOther(t))
		if least < boundWait/2 {
			break
		}
	}
	require.Less(t, least, boundWait/2)
}

// waitForEachOther makes commits that together reserve four times what is left within the bound, all at once, and
// returns how long they take.
func waitForEachOther(t *testing.T) time.Duration {
	e := newEngine(t, Options{Durability: Durable})
	put(t, e, "a", "1")
	require.NoError(t, e.Checkpoint())
	e.checkpoints.mu.Lock() // no background work
	defer e.checkpoints.mu.Unlock()
	const writers, left = 400, 800 // pages
	taken := int64(0)
	for e.store.ReserveWithin(logstore.ForWrites, 64, 0) == nil {
		taken += 64
	}
	e.store.Release(left)
	defer e.store.Release(taken - left)
	l := &e.pressure.crowd.line
	e.token.take() // so that all commits come at once
	var gone sync.WaitGroup
	for i := range writers {
		gone.Go(func() {
			tx := begin(t, e, TxOptions{})
			require.NoError(t, tx.Put([]byte{byte(i), byte(i >> 8)}, []byte("value")))
			require.NoError(t, tx.Commit())
		})
	}
	require.Eventually(t, func() bool { return l.waiting.Load() > writers/2 }, 10*time.Second, 100*time.Microsecond)
	begun := time.Now()
	e.token.pass(true)
	gone.Wait()
	require.Zero(t, l.waiting.Load())
	require.Zero(t, l.called)
	return time.Since(begun)
}
