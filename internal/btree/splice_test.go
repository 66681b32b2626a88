package btree

import (
	"bytes"
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// rowSink puts the leaves of a row among the pages of a tree.
type rowSink struct {
	t      *tree
	images map[PageID][]byte
}

func (s rowSink) Page(root bool) (PageID, []byte, error) {
	if root {
		return 0, nil, fmt.Errorf("a row has no root")
	}
	id := s.t.New()
	image := make([]byte, PageSize)
	s.images[id] = image
	return id, image[MuxSize:], nil
}

// splice puts records, in ascending order of their keys and with nothing between them, into the tree and the model.
func (t *tree) splice(tb testing.TB, m model, ops []Op) {
	t.seq++
	key := ops[0].Key
	before, behind, height, err := Neighbours(t, rootID, key)
	require.NoError(tb, err)
	sink := rowSink{t, map[PageID][]byte{}}
	b := NewRowBuilder(sink, true)
	for _, list := range [][]Op{before, ops, behind} {
		for i := range list {
			require.NoError(tb, b.Add(&list[i]))
		}
	}
	row, err := b.FinishRow()
	require.NoError(tb, err)
	for id, image := range sink.images {
		require.NoError(tb, CheckPage(image))
		t.pages[id] = []pageVersion{{seq: t.seq, node: View(image)}}
	}
	born := t.born
	r, err := Splice(t, rootID, key, row)
	require.NoError(tb, err)
	require.EqualValues(tb, len(ops), r.Added)
	if len(key) < MaxSeparator { // see InnerPages
		require.LessOrEqual(tb, int64(t.born-born), row.InnerPages(height))
	}
	for _, op := range ops {
		m[string(op.Key)] = record{value: op.Value, ref: op.Ref}
	}
}

// TestSplice splices rows of records into random trees, at their ends and between neighbours, several in succession at
// the same place, with batches of Apply in between. It compares the tree, and older snapshots, with a map.
func TestSplice(t *testing.T) {
	inTurn(t)
	key := func(r *rand.Rand) []byte { return fmt.Appendf(nil, "%06d", 10*r.Intn(3000)) }
	for seed := range int64(12) {
		r := rand.New(rand.NewSource(seed))
		tr, m := newTree(), model{}
		if seed > 0 { // seed 0 starts with an empty leaf
			_, err := tr.apply(tr.batch(r, m, key, []int{5, 600, 6000}[seed%3], 0))
			require.NoError(t, err)
		}
		for round := range 4 {
			old, seq := clone(m), tr.seq
			at := fmt.Appendf(nil, "%06d", []int{10*r.Intn(3000) + 1 + round, -1 - round, 99_990 + round}[r.Intn(3)])
			for piece := range 1 + r.Intn(3) {
				var ops []Op
				for i := range []int{400, 3000}[r.Intn(2)] {
					k := fmt.Appendf(nil, "%s/%d%06d", at, piece, i)
					if seed%4 == 3 && i%50 == 0 { // a long key, and separators that are cut
						k = append(k, bytes.Repeat([]byte{'x'}, 2000)...)
					}
					op := Op{Key: k, Value: bytes.Repeat([]byte{byte(i)}, r.Intn(200))}
					if len(k) > MaxInlineKey || i%100 == 7 {
						op.Value, op.Ref = nil, tr.run(k, 5000)
					}
					ops = append(ops, op)
				}
				tr.splice(t, m, ops)
			}
			check(t, snapshot{tr, tr.seq}, m, r, key)
			require.Len(t, tr.live, countRefs(m))
			check(t, snapshot{tr, seq}, old, r, key)
			_, err := tr.apply(tr.batch(r, m, key, 300, 3))
			require.NoError(t, err)
			check(t, snapshot{tr, tr.seq}, m, r, key)
		}
		tr.cut(t, m, nil, nil)
		tr.memory.Close()
	}
}

// TestSpliceAfterCutSeparators splices after and among keys that agree in more bytes than a separator has.
func TestSpliceAfterCutSeparators(t *testing.T) {
	inTurn(t)
	same := bytes.Repeat([]byte{'s'}, MaxSeparator+10)
	key := func(i int) []byte { return fmt.Appendf(bytes.Clone(same), "%06d", i) }
	r := rand.New(rand.NewSource(1))
	tr, m := newTree(), model{}
	var ops []Op
	for i := range 400 {
		op := Op{Key: key(10 * i), Value: []byte{'v'}}
		ops = append(ops, op)
		m[string(op.Key)] = record{value: op.Value}
	}
	_, err := tr.apply(ops)
	require.NoError(t, err)
	for i := range 100 {
		at := []int{10*r.Intn(400) + 1, 4000 + i, 0}[i%3]
		var ops []Op
		for j := range 30 {
			k := fmt.Appendf(key(at), "/%03d%03d", i, j)
			if i%3 == 2 { // before all of them
				k = append(fmt.Appendf(nil, "a%03d%03d", i, j), same...)
			}
			ops = append(ops, Op{Key: k, Value: []byte{'w'}})
		}
		tr.splice(t, m, ops)
		check(t, snapshot{tr, tr.seq}, m, r, func(r *rand.Rand) []byte { return key(r.Intn(4000)) })
	}
	tr.memory.Close()
}

func TestSpliceRefusesALoneLeaf(t *testing.T) {
	tr := newTree()
	b := NewRowBuilder(rowSink{tr, map[PageID][]byte{}}, true)
	require.NoError(t, b.Add(&Op{Key: []byte("k")}))
	row, err := b.FinishRow()
	require.NoError(t, err)
	_, err = Splice(tr, rootID, []byte("k"), row)
	require.Error(t, err)
	tr.memory.Close()
}
