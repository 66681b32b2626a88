package writeset

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOverlaps(t *testing.T) {
	var w Set
	require.False(t, w.Overlaps(nil, nil))
	w.Put([]byte("b"), nil)
	w.Delete([]byte("d"))
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"", "b", false}, {"", "b\x00", true}, {"b", "c", true}, {"b\x00", "d", false}, {"c", "e", true},
		{"d", "d\x00", true}, {"e", "z", false}, {"c", "", false}, {"c", "b", false},
	} {
		require.Equal(t, c.want, w.Overlaps([]byte(c.from), []byte(c.to)), "[%q, %q)", c.from, c.to)
	}
	require.True(t, w.Overlaps([]byte("c"), nil), "no bound")
	require.False(t, w.Overlaps([]byte("e"), nil))
	require.False(t, w.Overlaps(nil, []byte{}))
}

func TestIntersects(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	sizes := []int{0, 1, 2, 5, 40, 700}
	hits := 0
	for name, shape := range keyShapes {
		for range 100 {
			var a, b Set
			keys := map[string]bool{}
			want := false
			for range sizes[rng.IntN(len(sizes))] {
				key := shape(rng)
				keys[string(key)] = true
				a.Delete(key)
			}
			for range sizes[rng.IntN(len(sizes))] {
				key := shape(rng)
				want = want || keys[string(key)]
				b.Put(key, nil)
			}
			require.Equal(t, want, a.Intersects(&b), name)
			require.Equal(t, want, b.Intersects(&a), name)
			if want {
				hits++
			}
		}
	}
	require.NotZero(t, hits)
}
