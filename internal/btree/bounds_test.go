package btree

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckTreeBounds: a leaf has a key that a search would look for in the next leaf, or in the one before.
// Nothing else is wrong.
func TestCheckTreeBounds(t *testing.T) {
	key := func(i int) []byte { return fmt.Appendf(nil, "%04d and a long end", i) }
	none := func(PageID, Node) error { return nil }
	// build returns a tree, its root, and the index of a separator that is shorter than the first key above it.
	build := func() (*tree, Node, int) {
		tr := newTree()
		var ops []Op
		for i := range 1000 {
			ops = append(ops, Op{Key: key(i), Value: make([]byte, 100)})
		}
		_, err := tr.apply(ops)
		require.NoError(t, err)
		_, err = CheckTree(tr, rootID, none)
		require.NoError(t, err)
		root, err := tr.Node(rootID)
		require.NoError(t, err)
		require.Equal(t, 1, root.Level())
		return tr, root, root.Count() / 2
	}
	// leafOf returns a leaf with the given keys.
	leafOf := func(keys ...[]byte) Node {
		tr := newTree()
		for _, k := range keys {
			_, err := tr.apply([]Op{{Key: k}})
			require.NoError(t, err)
		}
		n, err := tr.Node(rootID)
		require.NoError(t, err)
		return n
	}
	for _, below := range []bool{false, true} {
		tr, root, i := build()
		separator, cut := root.Separator(i, nil)
		require.False(t, cut)
		right, err := tr.Node(root.Child(i))
		require.NoError(t, err)
		require.Negative(t, bytes.Compare(separator, right.FirstKey()))
		left, err := tr.Node(root.Child(i - 1))
		require.NoError(t, err)
		first := bytes.Clone(left.FirstKey())
		last := bytes.Clone(left.Cell(left.Count() - 1).Key())
		if below { // above all keys of the left leaf and below the separator
			tr.pages[root.Child(i)] = []pageVersion{{node: leafOf(append(last, 'x'), right.FirstKey())}}
		} else {
			tr.pages[root.Child(i-1)] = []pageVersion{{node: leafOf(first, separator)}}
		}
		_, err = CheckTree(tr, rootID, none)
		require.ErrorIs(t, err, ErrMalformed)
	}
}
