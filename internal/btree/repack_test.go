package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// repack repacks the whole tree, with at most the given number of leaves at a time.
func (t *tree) repack(tb testing.TB, most int) (removed int) { return t.refill(tb, Repack, most) }

// refill is repack with Repack or Spread.
func (t *tree) refill(tb testing.TB, refill func(Editor, PageID, []byte, int) (Repacked, error), most int) (removed int) {
	var from []byte
	for {
		t.seq++
		r, err := refill(t, rootID, from, most)
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

// TestRepack: the contents of the tree do not change, and there are about as many leaves as after a load in key
// order.
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
						refill := Repack
						if r.Intn(2) == 0 {
							refill = Spread
						}
						removed += tr.refill(t, refill, 2+r.Intn(200))
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

// TestRepackIsDense: after random deletes and a repack, the tree is within a twentieth of the size of one that was
// loaded in key order.
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

// TestSpread: Spread saves half of the leaves that Repack would save. Records added afterwards, in any order, find
// room in every leaf: they split few leaves, while after Repack nearly every leaf is split.
func TestSpread(t *testing.T) {
	inTurn(t)
	var behind [2]int // how many leaves the same records add after each
	for i, refill := range []func(Editor, PageID, []byte, int) (Repacked, error){Repack, Spread} {
		tr, r, m := newTree(), rand.New(rand.NewSource(1)), model{}
		key := func(r *rand.Rand) []byte { return binary.BigEndian.AppendUint64(nil, r.Uint64()) }
		put := func(n int) {
			for range n {
				k, value := key(r), make([]byte, 40)
				m[string(k)] = record{value, nil}
				_, err := tr.apply([]Op{{Key: k, Value: value}})
				require.NoError(t, err)
			}
		}
		put(20_000)
		before := tr.leaves(t)
		removed := tr.refill(t, refill, 64)
		after := tr.leaves(t)
		require.Equal(t, before-removed, after)
		put(after * 4)
		behind[i] = tr.leaves(t) - after
		t.Logf("%d leaves, %d fewer, %d more behind that", before, removed, behind[i])
		require.Greater(t, removed, before/8)
		check(t, snapshot{tr, tr.seq}, m, r, key)
	}
	require.Less(t, behind[1]*4, behind[0])
}
