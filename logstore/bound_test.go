package logstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A reservation that asks for the bound of the file is made within it, or refused. Growth ahead of need stops at the
// bound. Other reservations may exceed it.
func TestBound(t *testing.T) {
	x := newScript(t)
	x.spread()
	sp := x.s.space
	missing := func() int64 { return sp.Missing(1) }
	room := 1 - missing()
	size := x.s.SpaceStats().FileBytes
	x.s.SetBound(size)
	require.True(t, x.s.FitsBound(room))
	require.False(t, x.s.FitsBound(room+1))
	reserved := sp.Counts().Promised
	require.Equal(t, ErrBound, x.s.ReserveWithin(ForWrites, room+1, 0))
	require.Equal(t, reserved, sp.Counts().Promised, "nothing is promised")
	require.NoError(t, x.s.GrowAhead(100))
	require.False(t, x.s.GrowDue(100))
	require.Equal(t, size, x.s.SpaceStats().FileBytes)

	require.NoError(t, x.s.ReserveWithin(ForWrites, room, 0))
	x.s.Release(room)
	x.s.Condemn(0, 1)
	require.NotZero(t, x.s.Leaving())
	require.NoError(t, x.s.ReserveWithin(ForWrites, room, 0), "condemned segments are room")
	x.s.Release(room)
	require.Equal(t, size, x.s.SpaceStats().FileBytes)

	x.s.SetBound(size + 3*8*PageSize)
	require.NoError(t, x.s.ReserveWithin(ForWrites, room+1, 0))
	x.s.Release(room + 1)
	require.LessOrEqual(t, x.s.SpaceStats().FileBytes, x.s.Bound())

	x.s.SetBound(size)
	require.NoError(t, x.s.Reserve(room+100, false), "who does not ask for the bound")
	require.Greater(t, x.s.SpaceStats().FileBytes, x.s.Bound())
	require.NoError(t, x.s.Reserve(1-missing(), false), "all that the file has")
	x.s.Release(9)
	require.LessOrEqual(t, sp.Missing(9), int64(0))
	require.Equal(t, ErrBound, x.s.ReserveWithin(ForWrites, 9, 0), "what the file has beyond its bound is not for commits")
	require.NoError(t, x.s.ReserveWithin(ForWrites, 9, 1000))
	x.s.Release(sp.Counts().Promised - reserved)
	x.s.SetBound(0)
	require.NoError(t, x.s.ReserveWithin(ForWrites, room+500, 0))
	x.s.Release(room + 500)
}
