package btree

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// subtree is the notation for a tree: a leaf with keys, or an inner node with the separators between its children.
type subtree struct {
	keys       []string
	separators []string
	children   []subtree
}

func leafWith(keys ...string) subtree { return subtree{keys: keys} }

func innerWith(children []subtree, separators ...string) subtree {
	return subtree{separators: separators, children: children}
}

// build makes the pages of a subtree, whose root gets the given name, and returns its level.
func (t *tree) build(tb testing.TB, s subtree, id PageID) (level int) {
	if len(s.children) == 0 {
		t.pages[id] = []pageVersion{{node: View(leafOf(tb, s.keys...))}}
		return 0
	}
	var ids []PageID
	for _, c := range s.children {
		ids = append(ids, t.New())
		level = t.build(tb, c, ids[len(ids)-1]) + 1
	}
	image := innerOf(tb, level, append([]string{""}, s.separators...)...)
	n := View(image)
	for i, c := range ids {
		at := MuxSize + headerBytes + n.Count()*(headBytes+innerSlotBytes) + i*childBytes
		binary.LittleEndian.PutUint64(image[at:], c)
	}
	require.NoError(tb, CheckPage(image))
	t.pages[id] = []pageVersion{{node: View(image)}}
	return level
}

// TestHiddenRecordsStayHidden: a key whose record is on the wrong side of a separator is not found, and must not be
// found after the separator is removed either. A batch that would remove the separator is refused, whichever
// subtree takes over the range.
func TestHiddenRecordsStayHidden(t *testing.T) {
	s := strings.Repeat("s", MaxSeparator) // the length of a cut separator
	for name, c := range map[string]struct {
		tree   subtree
		hidden string
		gone   []string
	}{
		"the leaf before takes over": {
			innerWith([]subtree{leafWith("a", "n"), leafWith("z")}, "m"), "n", []string{"z"}},
		"the leaf before several takes over": {
			innerWith([]subtree{leafWith("a", "n"), leafWith("q"), leafWith("z")}, "m", "r"), "n", []string{"q", "z"}},
		"the leaf behind takes over": {
			innerWith([]subtree{leafWith("a"), leafWith("c", "z")}, "m"), "c", []string{"a"}},
		"the leaf behind several takes over": {
			innerWith([]subtree{leafWith("a"), leafWith("f"), leafWith("c", "z")}, "e", "m"), "c", []string{"a", "f"}},
		"the last leaf of the node before takes over": {
			innerWith([]subtree{innerWith([]subtree{leafWith("a"), leafWith("c", "n")}, "b"), innerWith([]subtree{leafWith("z")})}, "m"),
			"n", []string{"z"}},
		"the first leaf of the node behind takes over": {
			innerWith([]subtree{innerWith([]subtree{leafWith("a")}), innerWith([]subtree{leafWith("c", "o"), leafWith("z")}, "p")}, "m"),
			"c", []string{"a"}},
		"a leaf before the last, by a separator that is too high": {
			innerWith([]subtree{innerWith([]subtree{leafWith("a"), leafWith("n"), leafWith("c")}, "b", "p"), innerWith([]subtree{leafWith("z")})}, "m"),
			"n", []string{"z"}},
		"a leaf behind the first, by a separator that is too low": {
			innerWith([]subtree{innerWith([]subtree{leafWith("a")}), innerWith([]subtree{leafWith("n"), leafWith("d")}, "c")}, "m"),
			"d", []string{"a"}},
		"a leaf that is merged with an empty one": {
			innerWith([]subtree{leafWith("a", "b", "n"), leafWith()}, "m"), "n", []string{"a"}},
		"the leaf before a cut separator, whose first key goes": {
			innerWith([]subtree{leafWith("a", s+"m"), leafWith(s+"c", s+"x")}, s+"~"), s + "m", []string{s + "c"}},
		"the same, and all keys behind it go": {
			innerWith([]subtree{leafWith("a", s+"m"), leafWith(s+"c", s+"x")}, s+"~"), s + "m", []string{s + "c", s + "x"}},
		"the leaf before a cut separator further up": {
			innerWith([]subtree{innerWith([]subtree{leafWith("a", s+"m")}), innerWith([]subtree{leafWith(s+"c", s+"x"), leafWith("z")}, "t")}, s+"~"),
			s + "m", []string{s + "c"}},
		"the same, and the leaf behind it goes": {
			innerWith([]subtree{innerWith([]subtree{leafWith("a", s+"m")}), innerWith([]subtree{leafWith(s + "c"), leafWith("z")}, "t")}, s+"~"),
			s + "m", []string{s + "c"}},
		"a leaf before that of a cut separator, by a separator that is too high": {
			innerWith([]subtree{innerWith([]subtree{leafWith("a", s+"d"), leafWith("b")}, "t"), innerWith([]subtree{leafWith(s+"c", s+"x")})}, s+"~"),
			s + "d", []string{s + "c"}},
		"a leaf behind the first, by cut separators out of order": {
			innerWith([]subtree{innerWith([]subtree{leafWith("a")}), innerWith([]subtree{leafWith(s + "m"), leafWith(s+"c", s+"d")}, s+"~")}, s+"~"),
			s + "d", []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			staysHidden(t, c.tree, c.hidden, c.gone)
		})
	}
}

// staysHidden checks that a batch is refused that puts some keys, deletes some, and would let a hidden one be found.
func staysHidden(t *testing.T, s subtree, hidden string, gone []string, puts ...string) {
	tr := newTree()
	defer tr.memory.Close()
	tr.build(t, s, rootID)
	_, found, err := Get(tr, rootID, []byte(hidden))
	require.NoError(t, err)
	require.False(t, found)
	var ops []Op
	for _, k := range puts {
		ops = append(ops, Op{Key: []byte(k)})
	}
	for _, k := range gone {
		_, found, err := Get(tr, rootID, []byte(k))
		require.NoError(t, err)
		require.True(t, found, "%.20q", k)
		ops = append(ops, Op{Key: []byte(k), Delete: true})
	}
	_, err = tr.apply(ops)
	if err == nil {
		_, found, err = Get(tr, rootID, []byte(hidden))
		require.NoError(t, err)
		require.True(t, found, "no record came to light: the case shows nothing")
	}
	require.ErrorIs(t, err, ErrMalformed)
}

// TestHiddenRecordsBesideSplits: a batch splits a leaf and deletes the first record after a cut separator. The leaf
// that must end below that record is the one before it, with what the batch has made of it.
func TestHiddenRecordsBesideSplits(t *testing.T) {
	s := strings.Repeat("s", MaxSeparator)
	wide := func(k string) string { return k + strings.Repeat("w", 450) } // four take a leaf, with their values
	full := leafWith(wide("a"), wide("b"), wide("c"), wide("d"))
	for name, c := range map[string]struct {
		tree   subtree
		hidden string
		gone   []string
	}{
		"the leaf before the one that widens": {
			innerWith([]subtree{full, leafWith("f", s+"m"), leafWith(s + "c")}, "e", s+"~"), s + "m", []string{s + "c"}},
		"the leaf that widens": {
			innerWith([]subtree{leafWith(wide("a"), wide("b"), wide("c"), s+"m"), leafWith(s + "c")}, s+"~"), s + "m", []string{s + "c"}},
	} {
		t.Run(name, func(t *testing.T) { staysHidden(t, c.tree, c.hidden, c.gone, wide("bb")) })
	}
}

// TestLongKeysInDisorderStayHidden: a leaf has a long key after a greater one with the same inline part, whose
// record a search misses because it takes the leaf before. What would make the leaf's range wider, or begin another
// leaf with that record, is refused.
func TestLongKeysInDisorderStayHidden(t *testing.T) {
	long := func(i int) []byte { return fmt.Appendf(make([]byte, 2000), "%05d", i) }
	remove := func(i int) func(*tree) error {
		return func(tr *tree) error {
			_, err := tr.apply([]Op{{Key: long(i), Delete: true}})
			return err
		}
	}
	const hidden = 3
	for name, c := range map[string]struct {
		leaves [][]int
		do     func(*tree) error
	}{
		"merged with the leaf before": {[][]int{{1, 2}, {4, hidden}}, remove(2)},
		"the leaf before goes":        {[][]int{{1}, {4, hidden}}, remove(1)},
		"repacked": {[][]int{{1}, {4, hidden}}, func(tr *tree) error {
			_, err := Repack(tr, rootID, nil, 2)
			return err
		}},
		"spread": {[][]int{{1}, {4, 5, hidden}, {11}, {12}, {13}, {14}, {15}, {16}, {17}, {18}}, func(tr *tree) error {
			_, err := Spread(tr, rootID, long(4), 9)
			return err
		}},
		"split before it": {[][]int{{1}, {4, 5, hidden}, {9}}, func(tr *tree) error {
			_, err := tr.apply([]Op{{Key: long(6), Ref: tr.run(long(6), 10)}})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree()
			defer tr.memory.Close()
			separators := []string{""}
			for i, keys := range c.leaves {
				leaf := newTree()
				defer leaf.memory.Close()
				for j, key := range keys {
					ref := tr.run(long(j), 10)
					_, err := leaf.apply([]Op{{Key: long(j), Ref: ref}})
					require.NoError(t, err)
					leaf.runs[ref.ID], tr.runs[ref.ID] = long(j), long(key)
				}
				n, err := leaf.Node(rootID)
				require.NoError(t, err)
				tr.pages[PageID(0x100+i)] = []pageVersion{{node: View(encode(t, n))}}
				separators = append(separators, string(long(0)[:MaxSeparator])+"~")
			}
			tr.pages[rootID] = []pageVersion{{node: View(innerOf(t, 1, separators[:len(c.leaves)]...))}}
			_, found, err := Get(tr, rootID, long(hidden))
			require.NoError(t, err)
			require.False(t, found)
			err = c.do(tr)
			if err == nil {
				_, found, err = Get(tr, rootID, long(hidden))
				require.NoError(t, err)
				require.True(t, found, "no record came to light: the case shows nothing")
			}
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}
