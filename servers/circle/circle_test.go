package circle

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOwnerAndRangesAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		seed := r.Uint64()
		shards := []uint32{7, 3, 100, 4}[:1+r.IntN(4)]
		c := New(seed, shards)
		covered := 0.0
		for _, s := range shards {
			for _, g := range c.Ranges(s) {
				require.LessOrEqual(t, g.First, g.Last)
				covered += float64(g.Last-g.First) + 1
				for _, h := range []uint64{g.First, g.Last, g.First + r.Uint64N(max(1, g.Last-g.First))} {
					owner, ok := c.Owner(h)
					require.True(t, ok)
					assert.Equal(t, s, owner)
				}
			}
		}
		assert.InEpsilon(t, math.Pow(2, 64), covered, 1e-9, "each hash belongs to one shard")
	}
	_, ok := New(1, nil).Owner(5)
	assert.False(t, ok)
}

// TestMoves adds a shard. About its share of the keys moves to it, and no key moves between other shards.
func TestMoves(t *testing.T) {
	before, after := New(9, []uint32{1, 2, 3, 4, 5, 6, 7}), New(9, []uint32{8, 7, 6, 5, 4, 3, 2, 1})
	const keys = 100_000
	moved, share := 0, map[uint32]int{}
	for i := range uint64(keys) {
		h := Hash(9, binary.BigEndian.AppendUint64(nil, i))
		a, _ := before.Owner(h)
		b, _ := after.Owner(h)
		share[b]++
		if a != b {
			moved++
			require.EqualValues(t, 8, b)
		}
	}
	assert.InDelta(t, keys/8, moved, keys/8*0.35)
	for s, n := range share {
		assert.InDelta(t, keys/8, n, keys/8*0.35, "shard %d", s)
	}
	assert.NotEqual(t, Hash(1, []byte("k")), Hash(2, []byte("k")))
}

// TestChunks: the chunks of a value lie in the same place of the circle as its key, and their keys show that.
func TestChunks(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 1000 {
		seed := r.Uint64()
		c := New(seed, []uint32{0, 1, 2, 3, 4})
		x := Chunk{Index: r.Uint32N(128), Key: make([]byte, r.IntN(100))}
		for i := range x.Key {
			x.Key[i] = byte(r.Uint32())
		}
		binary.BigEndian.PutUint64(x.ID[:], r.Uint64())
		key := x.Append(nil)
		got, ok := ParseChunk(key)
		require.True(t, ok)
		require.Equal(t, x, got)
		require.Equal(t, Hash(seed, x.Key)+1+uint64(x.Index), Hash(seed, key))
		of, _ := c.Owner(Hash(seed, x.Key))
		owner, _ := c.Owner(Hash(seed, key))
		require.Equal(t, of, owner)
		_, ok = ParseChunk(key[:ChunkHead-1])
		require.False(t, ok)
	}
	_, ok := ParseChunk(nil)
	require.False(t, ok)
}
