package btree

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shared returns a tree of the given height in which all children of an inner node are the same page. There are as
// many paths through it as a real tree of that height has leaves.
func shared(tb testing.TB, height int, keys ...string) *tree {
	t := newTree()
	t.pages[PageID(1000)] = []pageVersion{{node: View(leafOf(tb, keys...))}}
	for level := 1; level <= height; level++ {
		id := PageID(1000 + level)
		if level == height {
			id = rootID
		}
		image := innerOf(tb, level, "", "b", "c", "f")
		n := View(image)
		for i := range n.Count() {
			at := MuxSize + headerBytes + n.Count()*(headBytes+innerSlotBytes) + i*childBytes
			binary.LittleEndian.PutUint64(image[at:], uint64(1000+level-1))
		}
		require.NoError(tb, CheckPage(image))
		t.pages[id] = []pageVersion{{node: View(image)}}
	}
	return t
}

// TestSharedChildren: a walk ends at the first leaf that does not follow the leaf before it.
func TestSharedChildren(t *testing.T) {
	tr := shared(t, 13, "d", "e")
	for name, move := range map[string]func(c *Cursor) bool{
		"forward":  (*Cursor).Next,
		"backward": (*Cursor).Prev,
		"seek": func(c *Cursor) bool {
			if !c.Valid() {
				return c.Seek([]byte("a"))
			}
			return c.Next()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var c Cursor
			c.Reset(tr, rootID)
			n := 0
			for move(&c) {
				n++
				require.LessOrEqual(t, n, 2)
			}
			require.ErrorIs(t, c.Err(), ErrMalformed)
			require.False(t, c.Next())
		})
	}
	_, err := CheckTree(tr, rootID, func(PageID, Node) error { return nil })
	require.ErrorIs(t, err, ErrMalformed)
}

// TestSeekBelow: after Seek, a cursor is never at a key below the one sought, even if the next leaf has such keys.
func TestSeekBelow(t *testing.T) {
	tr := newTree()
	image := innerOf(t, 1, "", "m")
	tr.pages[rootID] = []pageVersion{{node: View(image)}}
	tr.pages[PageID(0x100)] = []pageVersion{{node: View(leafOf(t, "a", "b"))}}
	tr.pages[PageID(0x101)] = []pageVersion{{node: View(leafOf(t, "c", "d"))}}
	var c Cursor
	c.Reset(tr, rootID)
	require.False(t, c.Seek([]byte("k")))
	require.ErrorIs(t, c.Err(), ErrMalformed)
	c.Reset(tr, rootID)
	require.True(t, c.Seek([]byte("c")))
	require.Equal(t, "c", string(c.Key()))
}

// TestRepackGoesOn: a walk with Repack ends on any tree.
func TestRepackGoesOn(t *testing.T) {
	var full []string // full, so that no record moves
	for i := range 26 {
		full = append(full, "d"+strings.Repeat(string(rune('a'+i)), 65))
	}
	for most := 1; most <= 2; most++ { // one leaf is compared with none that is looked at with it
		tr := shared(t, 5, full...)
		var key []byte
		for n := 0; ; n++ {
			require.Less(t, n, 10)
			tr.seq++
			r, err := Repack(tr, rootID, key, most)
			if err != nil {
				require.ErrorIs(t, err, ErrMalformed)
				break
			}
			require.NotNil(t, r.Next, "the tree has an end")
			key = r.Next
		}
	}
}

// TestLongKeysOfLeavesAscend: long keys at the ends of neighboring leaves are compared as a whole.
func TestLongKeysOfLeavesAscend(t *testing.T) {
	tr := newTree()
	defer tr.memory.Close()
	long := func(i int) []byte { return fmt.Appendf(make([]byte, 2000), "%05d", i) }
	for i := range 200 {
		key := long(i)
		_, err := tr.apply([]Op{{Key: key, Ref: tr.run(key, 10)}})
		require.NoError(t, err)
	}
	root, err := tr.Node(rootID)
	require.NoError(t, err)
	require.Positive(t, root.Level())
	var c Cursor
	for _, move := range []func(*Cursor) bool{(*Cursor).Next, (*Cursor).Prev} {
		c.Reset(tr, rootID)
		n := 0
		for move(&c) {
			n++
		}
		require.NoError(t, c.Err())
		require.Equal(t, 200, n)
	}
}

// TestLongKeysOfALeafAscend: long keys with the same part in the page are compared as a whole when they are read.
func TestLongKeysOfALeafAscend(t *testing.T) {
	tr := newTree()
	defer tr.memory.Close()
	var ids []PageID
	for i := range 3 {
		key := fmt.Appendf(make([]byte, 2000), "%05d", i)
		ref := tr.run(key, 10)
		_, err := tr.apply([]Op{{Key: key, Ref: ref}})
		require.NoError(t, err)
		ids = append(ids, ref.ID)
	}
	walk := func(move func(*Cursor) bool) (keys []string, err error) {
		var c Cursor
		c.Reset(tr, rootID)
		for move(&c) {
			if key := c.Key(); c.Err() == nil {
				keys = append(keys, string(key))
			}
		}
		return keys, c.Err()
	}
	forward, back := (*Cursor).Next, (*Cursor).Prev
	keys, err := walk(forward)
	require.NoError(t, err)
	require.Len(t, keys, 3)
	for name, change := range map[string]func(){
		"exchanged": func() { tr.runs[ids[1]], tr.runs[ids[2]] = tr.runs[ids[2]], tr.runs[ids[1]] },
		"the same":  func() { tr.runs[ids[2]] = tr.runs[ids[1]] },
	} {
		t.Run(name, func(t *testing.T) {
			change()
			keys, err := walk(forward)
			require.ErrorIs(t, err, ErrMalformed)
			require.Len(t, keys, 2)
			keys, err = walk(back)
			require.ErrorIs(t, err, ErrMalformed)
			require.Empty(t, keys)
		})
	}
}

// twoLeaves returns a tree of two leaves with the separator m between them.
func twoLeaves(t *testing.T, left, right []string) *tree {
	tr := newTree()
	t.Cleanup(func() { tr.memory.Close() })
	tr.pages[rootID] = []pageVersion{{node: View(innerOf(t, 1, "", "m"))}}
	tr.pages[PageID(0x100)] = []pageVersion{{node: View(leafOf(t, left...))}}
	tr.pages[PageID(0x101)] = []pageVersion{{node: View(leafOf(t, right...))}}
	return tr
}

// TestMergeEqualKeys: two leaves are not merged if the first ends with the key that the second begins with.
func TestMergeEqualKeys(t *testing.T) {
	tr := twoLeaves(t, []string{"a", "m"}, []string{"m", "z"})
	_, err := tr.apply([]Op{{Key: []byte("z"), Delete: true}})
	require.ErrorIs(t, err, ErrMalformed)
}

// TestHiddenRecords: a record on the wrong side of a separator is not found by its key. It must not reappear after
// a merge or Repack of the leaves beside the separator, nor after a merge with a leaf that has become empty.
func TestHiddenRecords(t *testing.T) {
	for name, keys := range map[string][2][]string{
		"too high": {{"a", "n"}, {"p", "z"}},
		"too low":  {{"a", "b"}, {"c", "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := twoLeaves(t, keys[0], keys[1])
			_, err := Repack(tr, rootID, nil, 2)
			require.ErrorIs(t, err, ErrMalformed)
			_, err = tr.apply([]Op{{Key: []byte("z"), Delete: true}})
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
	for name, keys := range map[string][2][]string{
		"too high, z is deleted": {{"a", "n"}, {"z"}},
		"too low, a is deleted":  {{"a"}, {"c", "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := twoLeaves(t, keys[0], keys[1])
			gone := keys[0][0]
			if len(keys[1]) == 1 {
				gone = keys[1][0]
			}
			_, err := tr.apply([]Op{{Key: []byte(gone), Delete: true}})
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}

// TestLongKeysOfALeafStayOut: if long keys of a leaf are equal or out of order, a search finds only some of the
// records. A delete or put that finds one of them is refused. Otherwise the remaining ones would be in order
// afterwards, and a deleted key would be there again.
func TestLongKeysOfALeafStayOut(t *testing.T) {
	for name, change := range map[string]func(tr *tree, ids []PageID){
		"exchanged": func(tr *tree, ids []PageID) { tr.runs[ids[1]], tr.runs[ids[2]] = tr.runs[ids[2]], tr.runs[ids[1]] },
		"the same":  func(tr *tree, ids []PageID) { tr.runs[ids[2]] = tr.runs[ids[1]] },
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree()
			defer tr.memory.Close()
			var keys [][]byte
			var ids []PageID
			for i := range 3 {
				keys = append(keys, fmt.Appendf(make([]byte, 2000), "%05d", i))
				ref := tr.run(keys[i], 10)
				_, err := tr.apply([]Op{{Key: keys[i], Ref: ref}})
				require.NoError(t, err)
				ids = append(ids, ref.ID)
			}
			change(tr, ids)
			refused := 0
			for _, key := range keys {
				for _, op := range []Op{{Key: key, Delete: true}, {Key: key, Ref: tr.run(key, 1)}} {
					if _, err := tr.apply([]Op{op}); err != nil {
						require.ErrorIs(t, err, ErrMalformed)
						refused++
					}
				}
				_, err := CheckTree(tr, rootID, func(PageID, Node) error { return nil })
				require.ErrorIs(t, err, ErrMalformed)
			}
			require.NotZero(t, refused)
		})
	}
}
