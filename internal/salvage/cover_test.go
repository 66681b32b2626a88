package salvage

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCover compares covers with a search through all stretches.
func TestCover(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	key := func() string { return fmt.Sprint(rng.IntN(60)) }
	for range 3000 {
		var all []stretch
		for range rng.IntN(12) {
			a, b := key(), key()
			all = append(all, stretch{min(a, b), max(a, b) + "\x00", uint64(1 + rng.IntN(8))})
			if rng.IntN(8) == 0 { // a range without an end
				all[len(all)-1].end = ""
			}
		}
		c := newCover(append([]stretch{}, all...))
		for i := range 60 {
			k := fmt.Sprint(i)
			want := uint64(0)
			for _, x := range all {
				if x.first <= k && (x.end == "" || k < x.end) {
					want = max(want, x.asOf)
				}
			}
			require.Equal(t, want, c.asOf(k), "%q in %v", k, all)
		}
	}
}
