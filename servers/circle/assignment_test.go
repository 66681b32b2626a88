package circle

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAssignment changes an assignment of three shards to one of five, and then to one of two others, one pair of
// shards after the other. Each hash changes its owner once, together with its pair, and the ranges agree with the
// owners.
func TestAssignment(t *testing.T) {
	const seed = 77
	a := First(3)
	var hashes []uint64
	for range 2000 {
		hashes = append(hashes, rand.Uint64())
	}
	hashes = append(hashes, 0, ^uint64(0))
	for _, next := range [][]uint32{{0, 1, 2, 3, 4}, {1, 4}} {
		a.Next = next
		from, to := New(seed, a.Shards), New(seed, next)
		moves := a.Moves(seed)
		require.NotEmpty(t, moves)
		for len(a.Next) > 0 {
			at := a.At(seed)
			for _, h := range hashes {
				was, _ := from.Owner(h)
				is, _ := to.Owner(h)
				p := Pair{was, is}
				want := was
				if slices.Contains(a.Moved, p) {
					want = is
				}
				owner, ok := at.Owner(h)
				require.True(t, ok)
				require.Equal(t, want, owner)
				require.Contains(t, a.Owners(), owner)
				for _, m := range moves {
					require.Equal(t, m.Pair == p, In(m.Ranges, h), "%x goes by %v", h, p)
				}
				require.True(t, In(at.Ranges(owner), h))
				require.False(t, In(Rest(at.Ranges(owner)), h))
				last := at.Run(h)
				require.GreaterOrEqual(t, last, h)
				end, _ := at.Owner(last)
				require.Equal(t, owner, end)
				if last != ^uint64(0) {
					other, _ := at.Owner(last + 1)
					require.NotEqual(t, owner, other)
				}
			}
			i := slices.IndexFunc(a.Moves(seed), func(m Move) bool { return !m.Moved })
			a = a.Done(seed, a.Moves(seed)[i].Pair)
		}
		require.Equal(t, next, a.Shards)
		require.Empty(t, a.Moves(seed))
	}
	require.Equal(t, uint32(3), a.Unused)
}

func TestRanges(t *testing.T) {
	list := []Range{{5, 9}, {20, ^uint64(0)}}
	require.Equal(t, []Range{{0, 4}, {10, 19}}, Rest(list))
	require.Equal(t, list, Rest(Rest(list)))
	require.Equal(t, []Range{{0, ^uint64(0)}}, Rest(nil))
	require.True(t, Meet(list, 9, 10))
	require.False(t, Meet(list, 10, 19))
	for h := range uint64(30) {
		require.Equal(t, h >= 5 && h <= 9 || h >= 20, In(list, h))
	}
}
