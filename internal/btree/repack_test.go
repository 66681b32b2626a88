package btree

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// repack goes through the whole tree, at most so many leaves at a time.
func (t *tree) repack(tb testing.TB, most int) (removed int) {
	var from []byte
	for {
		t.seq++
		r, err := Repack(t, rootID, from, most)
		require.NoError(tb, err)
		removed += r.Removed
		if r.Next == nil {
			return removed
		}
		require.Positive(tb, bytes.Compare(r.Next, from), "it goes on")
		from = r.Next
	}
}

func (t *tree) leaves(tb testing.TB) (n int) {
	_, err := CheckTree(snapshot{t, t.seq}, rootID, func(_ PageID, p Node) error {
		if p.IsLeaf() {
			n++
		}
		return nil
	})
	require.NoError(tb, err)
	return n
}

// TestRepack: what is in the tree stays as it is, and the leaves are about as many as a load in order makes.
func TestRepack(t *testing.T) {
	inTurn(t)
	removed, seeds := 0, int64(3)
	if testing.Short() {
		seeds = 1
	}
	for _, space := range append(slices.Clone(keyspaces), all) {
		t.Run(space.name, func(t *testing.T) {
			for seed := range seeds {
				r := rand.New(rand.NewSource(seed))
				tr, m := newTree(), model{}
				for i := range 8 {
					size := []int{5, 300, 2000}[r.Intn(3)]
					if space.name == "huge" {
						size = min(size, 20)
					}
					_, err := tr.apply(tr.batch(r, m, space.key, size, []int{0, 20, 60, 90}[r.Intn(4)]))
					require.NoError(t, err)
					if i%3 == 1 {
						tr.write(t)
					}
					if i%2 == 0 {
						before, old := clone(m), snapshot{tr, tr.seq}
						removed += tr.repack(t, 2+r.Intn(200))
						check(t, snapshot{tr, tr.seq}, m, r, space.key)
						check(t, old, before, r, space.key)
						require.Len(t, tr.live, countRefs(m))
						if r.Intn(2) == 0 {
							tr.forget(tr.seq)
						}
					}
				}
				tr.forget(tr.seq)
				tr.write(t)
				require.Zero(t, tr.memory.Held())
				tr.memory.Close()
			}
		})
	}
	require.Greater(t, removed, 100)
}

// TestRepackIsDense: after random deletes the tree comes within a twentieth of one that was loaded in order.
func TestRepackIsDense(t *testing.T) {
	inTurn(t)
	tr, fresh := newTree(), newTree()
	r := rand.New(rand.NewSource(1))
	m := model{}
	for range 40 {
		_, err := tr.apply(tr.batch(r, m, func(r *rand.Rand) []byte { return fmt.Appendf(nil, "%08d", r.Intn(100_000)) }, 1000, 40))
		require.NoError(t, err)
	}
	var ops []Op
	for _, k := range m.sorted() {
		rec := m[k]
		ops = append(ops, Op{Key: []byte(k), Value: rec.value, Ref: rec.ref})
	}
	for len(ops) > 0 {
		n := min(100, len(ops))
		_, err := fresh.apply(ops[:n])
		require.NoError(t, err)
		ops = ops[n:]
	}
	before, best := tr.leaves(t), fresh.leaves(t)
	tr.repack(t, 64)
	after := tr.leaves(t)
	t.Logf("%d leaves, %d after Repack, %d of a load in order", before, after, best)
	require.Greater(t, before, best*5/4)
	require.LessOrEqual(t, after, best*21/20)
	require.LessOrEqual(t, tr.repack(t, 64), best/100, "nothing is left to do")
	check(t, snapshot{tr, tr.seq}, m, r, func(r *rand.Rand) []byte { return fmt.Appendf(nil, "%08d", r.Intn(100_000)) })
}
