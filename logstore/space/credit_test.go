package space

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/format"
)

// roomy returns the map of a file of the given number of segments of 64 pages, all free except the first.
func roomy(segments uint32, maxBytes int64) *Map {
	sp := New(64, maxBytes, nil)
	sp.extendTo(segments)
	sp.Grown(uint64(segments) * 64)
	sp.tail, sp.tailPage, sp.successor = 0, format.HeaderPage(0)+1, 1
	return sp
}

// TestCredit: the functions that report promised pages include small reservations, whether or not these are taken from
// the credit.
func TestCredit(t *testing.T) {
	sp := roomy(64, 0)
	room := sp.available()
	require.False(t, sp.credit.take(1), "nothing was reserved ahead")
	require.LessOrEqual(t, sp.Reserve(5, 0, ForWrites), int64(0))
	for range 3 {
		require.True(t, sp.credit.take(5))
	}
	require.False(t, sp.credit.take(creditPages/creditShare+1), "large ones are not")
	require.False(t, sp.credit.take(1<<40))
	require.EqualValues(t, 4*5, sp.promised())
	require.False(t, sp.credit.take(1), "it was taken back")
	require.Equal(t, room, sp.available())
}

// TestCreditTogether: several goroutines reserve pages at the same time, while others read the counts. Each gets the
// pages that it has reserved.
func TestCreditTogether(t *testing.T) {
	sp := roomy(64, 0)
	var taken atomic.Int64
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 20_000 {
				switch {
				case g == 0 && i%10 == 0:
					sp.Room()
				case sp.Reserve(1, 0, ForWrites) <= 0:
					taken.Add(1)
					if i%2 == 0 {
						sp.Release(1)
						taken.Add(-1)
					}
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, taken.Load(), sp.promised())
	require.Greater(t, taken.Load(), int64(500))
}

// TestCreditWhereRoomIsShort: a file with a limit, or without that much room beyond its reserves, has no credit. A
// credit is emptied once the device is full.
func TestCreditWhereRoomIsShort(t *testing.T) {
	none := func(sp *Map, msg string) {
		t.Helper()
		require.LessOrEqual(t, sp.Reserve(1, 0, ForWrites), int64(0))
		require.False(t, sp.credit.take(1), msg)
		require.EqualValues(t, 1, sp.promised())
	}
	none(roomy(64, 1<<30), "a limit")

	sp := roomy(64, 0)
	sp.SetShort(true)
	none(sp, "a full device")

	sp = roomy(64, 0)
	require.LessOrEqual(t, sp.Reserve(1, 0, ForWrites), int64(0))
	sp.SetShort(true)
	require.False(t, sp.credit.take(1), "a device that is full now")

	tight := func(spare int64) *Map {
		sp := roomy(64, 0)
		sp.reserved = sp.available() - sp.heldBack(ForWrites) - spare
		return sp
	}
	sp = tight(creditPages)
	before := sp.reserved
	require.LessOrEqual(t, sp.Reserve(1, 0, ForWrites), int64(0))
	require.False(t, sp.credit.take(1), "a page too few")
	require.Equal(t, before+1, sp.promised())
	sp = tight(creditPages + 1)
	require.LessOrEqual(t, sp.Reserve(1, 0, ForWrites), int64(0))
	require.True(t, sp.credit.take(1))
}

// TestReserveNothing: a reservation of no pages fails if what is promised is not available.
func TestReserveNothing(t *testing.T) {
	sp := roomy(8, 8*64*format.PageSize)
	require.LessOrEqual(t, sp.Reserve(0, 0, ForEmergency), int64(0))
	sp.reserved = sp.available() + 1000
	require.EqualValues(t, Beyond, sp.Reserve(0, 0, ForEmergency))
}

// TestReleaseTooMuch: the credit does not hide that more pages are released than were reserved.
func TestReleaseTooMuch(t *testing.T) {
	sp := roomy(64, 0)
	require.LessOrEqual(t, sp.Reserve(1, 0, ForWrites), int64(0))
	require.NotZero(t, sp.credit.pages.Load())
	require.Panics(t, func() { sp.Release(2) })
}

// TestGrowDue: a file with a limit, or on a device without room, never grows ahead of need.
func TestGrowDue(t *testing.T) {
	due := func(maxBytes int64, short bool) bool {
		sp := roomy(16, maxBytes)
		sp.reserved = sp.available() - sp.keep()
		sp.SetShort(short)
		return sp.GrowDue(1)
	}
	require.True(t, due(0, false))
	require.False(t, due(1<<30, false))
	require.False(t, due(0, true))
}
