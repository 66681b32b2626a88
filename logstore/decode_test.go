package logstore

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImpliedSeed: each page of a segment implies the seed of the segment's salt, and any change of the page
// implies another one.
func TestImpliedSeed(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		p := make([]byte, PageSize)
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		p[5] &^= flagGrows
		salt, a := rng.Uint64(), rng.Uint64N(1<<40)
		putCRC(p, pageCRC(salt, a, p))
		require.True(t, VerifyPage(SeedOf(salt), a, p))
		seed, ok := ImpliedSeed(a, p)
		require.True(t, ok)
		require.Equal(t, SeedOf(salt), seed)
		seed, _ = ImpliedSeed(a+1, p)
		require.NotEqual(t, SeedOf(salt), seed)
		at := 6 + rng.IntN(PageSize-6)
		p[at] ^= 1 << rng.IntN(8)
		require.False(t, VerifyPage(SeedOf(salt), a, p))
		seed, _ = ImpliedSeed(a, p)
		require.NotEqual(t, SeedOf(salt), seed)
	}
}
