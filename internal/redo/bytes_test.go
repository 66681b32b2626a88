package redo

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBytes has flushes begin and end while redo is added, some after the next one has begun, and one never.
func TestBytes(t *testing.T) {
	var r Bytes
	r.Recovered(7)
	requireBytes := func(total, since, sinceBase int64) {
		t.Helper()
		require.Equal(t, []int64{total, since, sinceBase}, []int64{r.Total(), r.Since(), r.SinceBase()})
	}
	requireBytes(0, 0, 0)
	r.Add(100)
	requireBytes(100, 100, 100)
	r.Base(10, r.Total())
	requireBytes(100, 100, 0)
	r.Add(20)
	r.Start(9) // a base that was forgotten: redo starts where it did
	requireBytes(120, 120, 20)
	r.Start(10)
	requireBytes(120, 20, 20)
	r.Base(12, r.Total()) // begun, and given up
	r.Add(3)
	r.Base(15, r.Total())
	r.Add(4)
	requireBytes(127, 27, 4)
	r.Start(15)
	requireBytes(127, 4, 4)
	r.Add(50)
	r.Base(17, 130) // what the tree lacks when it begins stays after its base
	requireBytes(177, 54, 47)
	require.Zero(t, r.SinceFlush())
	r.Add(6)
	require.EqualValues(t, 6, r.SinceFlush())
	r.Start(17)
	requireBytes(183, 53, 53)
	r.Base(17, 100) // the same base again
	requireBytes(183, 53, 53)
	r.Recovered(15)
	requireBytes(0, 0, 0)
}
