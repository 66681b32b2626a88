package lease

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashdbm/lockfree"

	"github.com/stretchr/testify/require"
)

// TestLease goes through everything that can happen to a lease, and checks that its place in the registry is
// released exactly once.
func TestLease(t *testing.T) {
	for name, c := range map[string]struct {
		does func(l *Lease)
		held bool // the transaction has its place
	}{
		"nothing":                   {func(*Lease) {}, true},
		"a call":                    {func(l *Lease) { l.Enter(time.Hour); l.Leave() }, true},
		"taken back":                {func(l *Lease) { l.TakeBack() }, false},
		"taken back twice":          {func(l *Lease) { l.TakeBack(); l.TakeBack() }, false},
		"in a call":                 {func(l *Lease) { l.Enter(time.Hour) }, true},
		"taken back in a call":      {func(l *Lease) { l.Enter(time.Hour); l.TakeBack() }, true},
		"taken back after the call": {func(l *Lease) { l.Enter(time.Hour); l.TakeBack(); l.Leave() }, false},
		"too old":                   {func(l *Lease) { l.Enter(0) }, false},
		"ended":                     {func(l *Lease) { l.End(); l.TakeBack() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var r lockfree.Registry
			var at atomic.Uint64
			var table Table
			slot := r.Acquire(&at)
			l := table.Add(slot, time.Now().Add(-time.Millisecond), false)
			c.does(l)
			require.Equal(t, c.held, r.Count() == 1)
			require.Equal(t, !c.held, l.Gone())
			if !c.held {
				require.False(t, l.Enter(time.Hour))
				require.Nil(t, table.Oldest())
			}
			if name != "ended" {
				require.Equal(t, !c.held, l.End())
			}
			if c.held {
				slot.Release()
			}
		})
	}
}

// TestTable: the oldest lease is the one with the least Seq, and of those with the same Seq the first. A lease that
// has ended holds nothing.
func TestTable(t *testing.T) {
	var r lockfree.Registry
	var at atomic.Uint64
	var table Table
	now := time.Now()
	add := func(seq uint64, began time.Duration, trace bool) *Lease {
		at.Store(seq)
		return table.Add(r.Acquire(&at), now.Add(began), trace)
	}
	require.Nil(t, table.Oldest())
	second, first, later := add(5, 2, true), add(5, 1, false), add(6, 0, false)
	require.Same(t, first, table.Oldest())
	require.ElementsMatch(t, []*Lease{first, later}, table.Before(now.Add(2)))
	require.True(t, first.TakeBack())
	require.Same(t, second, table.Oldest())
	require.Contains(t, second.Where(), "TestTable")
	require.NotContains(t, second.Where(), "Add")
	require.Empty(t, later.Where())
	table.Remove(second)
	require.Same(t, later, table.Oldest())
	require.Equal(t, now, later.Began())
}

// TestTakeBackBesideCalls: if a lease is taken back while its transaction makes calls, it ends between two calls
// and never within one. Its place is released once; otherwise the registry panics.
func TestTakeBackBesideCalls(t *testing.T) {
	for range 200 {
		var r lockfree.Registry
		var at atomic.Uint64
		var table Table
		l := table.Add(r.Acquire(&at), time.Now(), false)
		var taker sync.WaitGroup
		var missed atomic.Bool
		taker.Go(func() { missed.Store(!l.TakeBack()) })
		for calls := 1; l.Enter(time.Hour); calls++ {
			if missed.Load() {
				t.Fatal("the lease of an open transaction was not taken back")
			}
			if r.Count() != 1 {
				t.Fatal("lost within a call")
			}
			l.Leave()
			if calls%64 == 0 { // more often, the other goroutine would mostly find it between two calls
				runtime.Gosched()
			}
		}
		taker.Wait()
		require.True(t, l.End())
		require.Zero(t, r.Count())
	}
}
