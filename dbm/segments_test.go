package dbm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSegments: the description of the segments agrees with the statistics, both before and after reopening.
func TestSegments(t *testing.T) {
	db := newDB(t, &Options{Durability: Buffered, RedoLimit: 1 << 20})
	require.Len(t, db.Segments(), 1)
	require.Equal(t, SegmentTail, db.Segments()[0].Kind)
	require.NoError(t, db.Put([]byte("large"), sized(3<<20, 1)))
	for round := range 4 {
		for i := range 100 {
			require.NoError(t, db.Put(fmt.Append(nil, i), sized(20_000, byte(round))))
		}
		require.NoError(t, db.Checkpoint())
	}
	check := func(db *DB) {
		t.Helper()
		s := db.Stats()
		var live, free int64
		kinds := map[string]int{}
		for _, g := range db.Segments() {
			kinds[g.Kind]++
			live += g.Live
			if g.Kind == SegmentFree {
				free += g.Bytes
				require.Zero(t, g.Live)
			}
			require.LessOrEqual(t, g.Live, g.Bytes)
			require.EqualValues(t, 1<<20, g.Bytes)
		}
		require.Equal(t, s.LiveBytes, live)
		require.LessOrEqual(t, free, s.FreeBytes+1<<20)
		require.Equal(t, 1, kinds[SegmentTail])
		require.Positive(t, kinds[SegmentLog])
		require.GreaterOrEqual(t, kinds[SegmentValues], 3)
		require.Positive(t, kinds[SegmentFree]+kinds[SegmentAbsent])
	}
	check(db)
	require.NoError(t, db.Close())
	require.Nil(t, db.Segments())
	again, err := Open(db.Path(), &Options{ReadOnly: true})
	require.NoError(t, err)
	check(again)
	require.NoError(t, again.Close())
}
