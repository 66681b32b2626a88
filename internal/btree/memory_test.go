package btree

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClasses(t *testing.T) {
	for n := range maxBlock + 1 {
		c := classOf(n)
		require.GreaterOrEqual(t, classBytes[c], n)
		if c > 0 {
			require.Less(t, classBytes[c-1], n)
		}
	}
}

// TestMemory takes and frees blocks at random and checks that no blocks overlap and that all memory is accounted
// for.
func TestMemory(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	m := NewMemory()
	defer m.Close()
	type block struct {
		p    pointer
		n    int
		mark byte
	}
	var blocks []block
	free := func(i int) {
		b := blocks[i]
		for _, c := range slice(b.p, 0, b.n) {
			if c != b.mark {
				require.Equal(t, b.mark, c, "somebody wrote to a block that is held")
			}
		}
		m.release(b.p)
		blocks[i] = blocks[len(blocks)-1]
		blocks = blocks[:len(blocks)-1]
	}
	for round := range 6 {
		grow := round%2 == 0
		for range 4000 {
			if grow || len(blocks) == 0 {
				c := class(r.Intn(len(classBytes)))
				b := block{m.alloc(c), classBytes[c], byte(r.Intn(256))}
				for i := range slice(b.p, 0, b.n) {
					slice(b.p, 0, b.n)[i] = b.mark
				}
				blocks = append(blocks, b)
			}
			if !grow || r.Intn(3) == 0 {
				free(r.Intn(len(blocks)))
			}
		}
		held := int64(0)
		for _, b := range blocks {
			held += int64(b.n)
		}
		require.Equal(t, held, m.Held())
	}
	for len(blocks) > 0 {
		free(0)
	}
	require.Zero(t, m.Held())
	require.Len(t, m.empty, len(m.slabs), "all slabs are free for any class")
	slabs := len(m.slabs)
	for c := range classBytes {
		m.alloc(class(c))
	}
	require.Len(t, m.slabs, slabs, "memory is used again")
}

func TestMemoryCloseAndUseAgain(t *testing.T) {
	m := NewMemory()
	m.alloc(0)
	m.Close()
	require.Zero(t, m.Held())
	m.alloc(0)
	require.EqualValues(t, 64, m.Held())
	m.Close()
}

// TestReleasedTwice: a block that is released again after the last live block of its slab panics. Otherwise the slab would be in the list of the
// empty ones and in the open list of its class at once.
func TestReleasedTwice(t *testing.T) {
	m := NewMemory()
	defer m.Close()
	p := m.alloc(classOf(64))
	m.release(p)
	require.PanicsWithValue(t, "btree: block released twice", func() { m.release(p) })
}
