package vfs

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBitset(t *testing.T) {
	const limit = 300
	rng := rand.New(rand.NewPCG(1, 1))
	var s bitset
	model := make(map[int64]bool)
	for range 3000 {
		i := rng.Int64N(limit)
		switch rng.IntN(9) {
		case 0, 1, 2, 3:
			s.add(i)
			model[i] = true
		case 4, 5, 6, 7:
			s.remove(i)
			delete(model, i)
		case 8:
			s.cut(i)
			for j := i; j < limit; j++ {
				delete(model, j)
			}
		}
		require.EqualValues(t, len(model), s.count())
		from, want := rng.Int64N(limit), rng.IntN(2) == 0
		expect := from
		for expect < limit && model[expect] != want {
			expect++
		}
		require.Equal(t, expect, s.next(from, limit, want))
		require.Equal(t, model[from], s.has(from))
	}
}
