package btree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A leaf that was written changes further. After Rebase to the written image, it has the same records as before, and
// uses neither the older image that had some of its cells nor its former pieces.
func TestRebase(t *testing.T) {
	m := NewMemory()
	m.poison, m.Even = true, true
	even := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		length := func() int { return r.IntN(30) }
		if seed%2 == 0 { // most leaves are even
			length = func() int { return 7 + r.IntN(60)/59 }
		}
		a := &m.apply
		a.start(&tree{memory: m, live: map[PageID]bool{}})
		key := func() []byte { // some keys are empty, and then the cell may be empty too
			if seed%2 > 0 && r.IntN(12) == 0 {
				return nil
			}
			return fmt.Appendf(nil, "key %02d", r.IntN(30))
		}
		change := func(n Node) Node {
			v, became, err := a.leaf(n, []Op{{Key: key(), Value: bytes.Repeat([]byte{byte(r.Uint32())}, length()), Delete: n.Count() > 5 && r.IntN(4) == 0}}, true)
			require.NoError(t, err)
			if became != changed {
				return n
			}
			return v
		}
		n := EmptyLeaf(m)
		for range 20 {
			n = change(n)
		}
		first := encode(t, n)
		older := View(first)
		for range r.IntN(4) {
			older = change(older)
		}
		newer := older
		for range 1 + r.IntN(5) {
			newer = change(newer)
		}
		want, second := encode(t, newer), encode(t, older)
		v, ok := newer.Rebase(m, older, second)
		require.Equal(t, newer.Borrows() && !newer.IsImage() && older.base == newer.base, ok)
		if !ok {
			continue
		}
		if newer.even() && older.even() {
			even++
		}
		newer.Release(m)
		for i := range first {
			first[i] = 0xDB
		}
		require.True(t, v.Borrows())
		require.Equal(t, want, encode(t, v))
		for range 10 { // it can be changed further
			v = change(v)
		}
		again := encode(t, v)
		require.Equal(t, again, encode(t, v.Own(m)))
		require.Zero(t, slices.Max(m.moved))
	}
	require.Greater(t, even, 30)
}

// A leaf that is shared with another name stays as it is when the other one is released.
func TestShare(t *testing.T) {
	tr := newTree()
	var ops []Op
	for i := range 40 {
		ops = append(ops, Op{Key: fmt.Appendf(nil, "%03d", i), Value: []byte("value")})
	}
	for range 2 { // all in the heap; then some in an image
		_, err := tr.apply(ops)
		require.NoError(t, err)
		n, err := tr.Node(rootID)
		require.NoError(t, err)
		want, held := encode(t, n), tr.memory.Held()
		s := n.Share(tr.memory)
		require.Less(t, tr.memory.Held()-held, int64(1024), "the cells are shared")
		n.Release(tr.memory)
		require.Equal(t, want, encode(t, s))
		tr.pages[rootID] = []pageVersion{{seq: tr.seq, node: s}}
		tr.write(t)
		ops = ops[:1]
	}
}
