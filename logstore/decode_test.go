package logstore

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImpliedSeed: every page of a segment yields the seed that the segment's salt gives, and a changed page yields
// another seed. So does a growing page, up to its end.
func TestImpliedSeed(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 50 {
		p := make([]byte, PageSize)
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		p[5] &^= flagGrows
		from, end := 6, PageSize
		if n%2 == 1 {
			from, end = 14, MuxSize+8*rng.IntN((PageSize-MuxSize)/8+1)
			p[4], p[5] = byte(KindRecord), growingFlags
			binary.LittleEndian.PutUint16(p[growingAt+4:], uint16(end))
		}
		salt, a := rng.Uint64(), rng.Uint64N(1<<40)
		putCRC(p, pageCRC(salt, a, p))
		require.True(t, VerifyPage(SeedOf(salt), a, p))
		seed, ok := ImpliedSeed(a, p)
		require.True(t, ok)
		require.Equal(t, SeedOf(salt), seed)
		seed, _ = ImpliedSeed(a+1, p)
		require.NotEqual(t, SeedOf(salt), seed)
		at := from + rng.IntN(end-from)
		p[at] ^= 1 << rng.IntN(8)
		require.False(t, VerifyPage(SeedOf(salt), a, p))
		seed, _ = ImpliedSeed(a, p)
		require.NotEqual(t, SeedOf(salt), seed)
	}
}
