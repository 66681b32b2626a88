package writeset

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTally: what lives is estimated well however unevenly records are overwritten.
func TestTally(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, which := range map[string]func() int{
		"once":      func() func() int { n := 0; return func() int { n++; return n } }(),
		"uniform":   func() int { return rng.IntN(20_000) },
		"a hot one": func() int { return max(0, rng.IntN(40_000)-20_000) },
		"heavy ones": func() int { // of ten, of which each takes as much as thousands of others
			if rng.IntN(1000) == 0 {
				return -1 - rng.IntN(10)
			}
			return rng.IntN(20_000)
		},
		"many heavy ones": func() int { return rng.IntN(1000) - 900 },
	} {
		var s tally
		last := map[int]int64{}
		for range 100_000 {
			k, n := which(), 50+rng.Int64N(100)
			if k < 0 {
				n += 200_000
			}
			s.note(HashKey(fmt.Append(nil, k)), n)
			last[k] = n
		}
		live := int64(0)
		for _, n := range last {
			live += n
		}
		t.Log(name, live, s.live(), s.bytes)
		require.InEpsilon(t, live, s.live(), 0.15, name)
		require.LessOrEqual(t, len(s.sizes), tallyKeys)
	}
}
