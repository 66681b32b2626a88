package btree

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// announced is a Pager that notes which leaves a cursor announces and which it enters.
type announced struct {
	*tree
	said    map[PageID]int
	calls   int
	entered []PageID
}

func (a *announced) PrefetchChildren(n Node, from, to int) {
	a.calls++
	for i := from; i < to; i++ {
		a.said[n.Child(i)]++
	}
}

func (a *announced) Node(id PageID) (Node, error) {
	n, err := a.tree.Node(id)
	if err == nil && n.IsLeaf() {
		a.entered = append(a.entered, id)
	}
	return n, err
}

// TestCursorAnnounces: with Apart, a walk in either direction announces each leaf once before it enters it, many in one
// call, but for the first leaf below each parent. Seek announces its leaf. Other moves announce nothing.
func TestCursorAnnounces(t *testing.T) {
	tr := newTree()
	defer tr.memory.Close()
	var ops []Op
	for i := range 4000 {
		ops = append(ops, Op{Key: fmt.Appendf(nil, "%04d", i), Value: make([]byte, 500)})
	}
	tr.mustApply(t, ops...)
	root, err := tr.Node(rootID)
	require.NoError(t, err)
	require.Equal(t, 2, root.Level(), "several parents")
	for _, back := range []bool{false, true} {
		a := &announced{tree: tr, said: map[PageID]int{}}
		var cur Cursor
		cur.Reset(a, rootID)
		cur.Apart = true
		first, move := cur.First, cur.Next
		if back {
			first, move = cur.Last, cur.Prev
		}
		records, unsaid := 0, 0
		for ok := first(); ok; ok = move() {
			records++
			for _, id := range a.entered {
				require.LessOrEqual(t, a.said[id], 1)
				unsaid += 1 - a.said[id]
			}
			a.entered = a.entered[:0]
		}
		require.NoError(t, cur.Err())
		require.Equal(t, 4000, records)
		require.Equal(t, root.Count(), unsaid, "one leaf a parent was not announced")
		require.Greater(t, len(a.said), 8*a.calls)
	}
	a := &announced{tree: tr, said: map[PageID]int{}}
	var cur Cursor
	cur.Reset(a, rootID)
	for i := range 100 {
		require.True(t, cur.Seek(fmt.Appendf(nil, "%04d", 37*i)))
		require.Equal(t, i+1, a.calls)
	}
	said := 0
	for _, n := range a.said {
		said += n
	}
	require.Equal(t, 100, said)
	for ok := cur.First(); ok; ok = cur.Next() {
	}
	require.Equal(t, 100, a.calls)
}
