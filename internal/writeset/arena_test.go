package writeset

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArena(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	var a Arena
	kept := false
	for life := range 200 {
		kept = kept || a.held > 0
		type copied struct {
			at   place
			want []byte
		}
		var copies []copied
		limit := 1 << rng.IntN(19)
		for n := range rng.IntN(60) {
			b := bytes.Repeat([]byte{byte(life + n)}, rng.IntN(limit))
			copies = append(copies, copied{a.add(b), bytes.Clone(b)})
			clear(b)
		}
		var held int64
		for _, chunk := range a.chunks {
			held += int64(cap(chunk))
		}
		require.Equal(t, held, a.held)
		for _, c := range copies {
			got := a.at(c.at, uint32(len(c.want)))
			require.True(t, bytes.Equal(c.want, got))
			require.Equal(t, len(got), cap(got), "appending must not write into the arena")
		}
		a.Reset()
		require.LessOrEqual(t, a.held, int64(keepArenaBytes))
	}
	require.True(t, kept)
}

func TestArenaLeavesLittleUnused(t *testing.T) {
	for _, size := range []int{100, 5_000, MaxShared, MaxShared + 1, 200_000} {
		var a Arena
		var used int64
		for used < 16<<20 {
			a.add(make([]byte, size))
			used += int64(size)
		}
		require.LessOrEqual(t, a.held, used*4/3+maxChunkBytes, "slices of %d bytes", size)
	}
}
