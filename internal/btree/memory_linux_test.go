package btree

import (
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/invariants"
)

// TestWarmSlabs: the empty slabs that were used last keep their memory, so that a single version that comes and
// goes costs neither a system call nor new pages. The other empty slabs have returned theirs.
func TestWarmSlabs(t *testing.T) {
	if invariants.Enabled {
		t.Skip("freed blocks are overwritten")
	}
	m := NewMemory()
	defer m.Close()
	const slabs = 3 * keepEmpty
	c := classOf(4000)
	var blocks []pointer
	for len(m.slabs)-len(m.empty) < slabs {
		p := m.alloc(c)
		store32(p, 64, 1)
		blocks = append(blocks, p)
	}
	for _, p := range blocks {
		m.release(p)
	}
	warm := func() (n int) {
		for _, s := range m.slabs {
			if load32(s.base, 64) != 0 { // memory that comes from the system is zero
				n++
			}
		}
		return n
	}
	require.Equal(t, keepEmpty, warm())
	for i := range uint32(5) {
		p, q := m.alloc(c), m.alloc(classOf(100))
		require.NotZero(t, load32(p, 64), "a slab whose memory was given back")
		require.NotZero(t, load32(q, 64), "a slab whose memory was given back")
		store32(p, 64, 2+i)
		m.release(p)
		require.Equal(t, 2+i, load32(p, 64), "given back though it was used last")
		m.release(q)
		require.Equal(t, keepEmpty, warm())
	}
}
