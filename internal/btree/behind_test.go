package btree

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A partedTree is a tree some of whose leaves are left behind on disk, as Editor.Update and Editor.Grow allow. A
// flush writes all pages that were Put, some of those that were only Updated, and, for some parents, all pages that
// grew below them.
type partedTree struct {
	*tree
	disk   map[PageID][]byte
	since  map[PageID]int // the seq of the first change since the page was written
	must   map[PageID]bool
	family map[PageID]PageID // the parent of each page that grew; a parent's own entry is itself
	log    [][]Op            // the ops of each seq
	left   int               // number of families left behind so far
}

func newPartedTree(tb testing.TB) *partedTree {
	t := &partedTree{tree: newTree(), disk: map[PageID][]byte{}, since: map[PageID]int{}, must: map[PageID]bool{}, family: map[PageID]PageID{}, log: [][]Op{nil}}
	root, err := t.Node(rootID)
	require.NoError(tb, err)
	t.Put(rootID, root.Own(t.memory))
	return t
}

func (t *partedTree) mustApply(tb testing.TB, ops ...Op) {
	t.seq++
	_, err := Apply(t, rootID, ops)
	require.NoError(tb, err)
	t.log = append(t.log, ops)
}

func (t *partedTree) mustRepack(tb testing.TB, from []byte, most int) (r Repacked) {
	t.seq++
	r, err := Repack(t, rootID, from, most)
	require.NoError(tb, err)
	t.log = append(t.log, nil)
	return r
}

func (t *partedTree) dirty(id PageID) {
	if _, ok := t.since[id]; !ok {
		t.since[id] = t.seq
	}
}

func (t *partedTree) Put(id PageID, n Node) {
	t.tree.Put(id, n)
	t.dirty(id)
	t.oblige(id)
}

// oblige makes the next flush write a page and all pages of its family.
func (t *partedTree) oblige(id PageID) {
	t.must[id] = true
	parent, ok := t.family[id]
	for m, p := range t.family {
		if ok && p == parent {
			t.must[m] = true
			delete(t.family, m)
		}
	}
}

func (t *partedTree) Grow(parent, id PageID, n Node) {
	t.tree.Grow(parent, id, n)
	t.dirty(id)
	t.dirty(parent)
	if of, ok := t.family[id]; t.must[id] || t.must[parent] || t.disk[parent] == nil || ok && of != parent {
		t.oblige(id)
		t.oblige(parent)
		return
	}
	t.family[id], t.family[parent] = parent, parent
}

func (t *partedTree) Update(id PageID, n Node) {
	t.tree.Update(id, n)
	t.dirty(id)
}

func (t *partedTree) Narrow(id PageID) {
	if _, ok := t.since[id]; ok {
		t.oblige(id)
	}
}

func (t *partedTree) Remove(id PageID) {
	t.tree.Remove(id)
	t.oblige(id)
	delete(t.disk, id)
	delete(t.since, id)
	delete(t.must, id)
}

// flush writes the pages, except those that it may leave behind and for which leave returns true. It returns the
// seq at which redo has to start.
func (t *partedTree) flush(tb testing.TB, leave func() bool) (start int) {
	start = t.seq + 1
	leaves := map[PageID]bool{} // by parent, whether the family is left behind
	for _, id := range slices.Sorted(maps.Keys(t.since)) {
		parent, grown := t.family[id]
		if _, ok := leaves[parent]; grown && !ok {
			leaves[parent] = leave()
			if leaves[parent] {
				t.left++
			}
		}
		if !t.must[id] && (grown && leaves[parent] || !grown && leave()) {
			start = min(start, t.since[id])
			continue
		}
		delete(t.family, id)
		n, err := t.Node(id)
		require.NoError(tb, err)
		t.disk[id] = encode(tb, n)
		delete(t.since, id)
		delete(t.must, id)
	}
	return start
}

// recovered returns the tree on disk after redo from the given seq on.
func (t *partedTree) recovered(tb testing.TB, start int) *tree {
	d := newTree()
	for id, image := range t.disk {
		d.pages[id] = []pageVersion{{node: View(image)}}
	}
	d.born = 1 << 40
	d.seq = 1
	_, err := CheckTree(snapshot{d, d.seq}, rootID, func(PageID, Node) error { return nil })
	require.NoError(tb, err, "what is on disk")
	redo := map[string]Op{}
	for _, ops := range t.log[start:] {
		for _, op := range ops {
			redo[string(op.Key)] = op
		}
	}
	var ops []Op
	for _, k := range slices.Sorted(maps.Keys(redo)) {
		ops = append(ops, redo[k])
	}
	_, err = d.apply(ops)
	require.NoError(tb, err)
	return d
}

func recordsOf(tb testing.TB, t *tree) map[string]string {
	all := map[string]string{}
	n, err := CheckTree(snapshot{t, t.seq}, rootID, func(_ PageID, n Node) error {
		for i := 0; n.IsLeaf() && i < n.Count(); i++ {
			c := n.Cell(i)
			all[string(c.Key())] = string(c.Value())
		}
		return nil
	})
	require.NoError(tb, err)
	require.Len(tb, all, int(n))
	return all
}

// partedBatch draws keys to change: some at random, a range, or the last ones, which are deleted or followed by
// others. Keys from high on do not exist.
func partedBatch(r *rand.Rand, keys int, high *int) (batch []int) {
	some := map[int]bool{}
	from, n := r.Intn(*high+1), 1+r.Intn([]int{3, 20, keys / 4}[r.Intn(3)])
	switch r.Intn(4) {
	case 0:
		for range n / 4 {
			some[r.Intn(*high+1)] = true
		}
	case 1:
		for i := range min(n, *high-from) {
			some[from+i] = true
		}
	case 2:
		from, *high = *high, max(0, *high-1-r.Intn(min(n, 10)))
		for i := *high; i < from; i++ {
			some[i] = true
		}
	case 3:
		from = *high + r.Intn(5)
		*high = min(keys, from+n)
		for i := from; i < *high; i++ {
			some[i] = true
		}
	}
	return slices.Sorted(maps.Keys(some))
}

// ranged makes keys in seven ranges, each with a prefix of its own.
func ranged(prefix string) func(i, keys int) []byte {
	return func(i, keys int) []byte { return fmt.Appendf(nil, "%02d%s%06d", i*7/keys, prefix, i) }
}

// twins makes keys of which each two neighbors share four bytes, repeated the given number of times, and others
// share nothing.
func twins(times int) func(i, keys int) []byte {
	return func(i, _ int) []byte {
		return fmt.Appendf(nil, "%s%d", strings.Repeat(fmt.Sprintf("%04d", i/2), times), i%2)
	}
}

// TestLeftBehind: a leaf that was only Updated may stay on disk as it was written before. Redo from the first
// change of such leaves on restores the newest tree.
func TestLeftBehind(t *testing.T) {
	inTurn(t)
	behind, families, seeds := 0, 0, int64(30)
	if testing.Short() {
		seeds = 8
	}
	for _, space := range []struct {
		name  string
		key   func(i, keys int) []byte
		value int
	}{
		{"short", ranged(""), 300}, {"cut", ranged(strings.Repeat("x", MaxSeparator)), 200}, {"wide", ranged(""), 1500},
		{"deep", twins(60), 1500}, {"deep and cut", twins(MaxSeparator/4 + 1), 200},
	} {
		for seed := range seeds {
			t.Run(fmt.Sprint(space.name, seed), func(t *testing.T) {
				r := rand.New(rand.NewSource(seed))
				p := newPartedTree(t)
				defer p.memory.Close()
				keys := []int{60, 200, 600}[r.Intn(3)]
				key := func(i int) []byte { return space.key(i, keys) }
				high, deletes := 0, []int{0, 10, 50}[r.Intn(3)]
				for range 60 {
					if r.Intn(6) == 0 {
						var from []byte
						if r.Intn(2) == 0 {
							from = key(r.Intn(keys))
						}
						p.mustRepack(t, from, 2+r.Intn(20))
					} else {
						var ops []Op
						for _, i := range partedBatch(r, keys, &high) {
							op := Op{Key: key(i), Delete: i >= high || r.Intn(100) < deletes}
							if !op.Delete {
								op.Value = bytes.Repeat([]byte{byte(p.seq)}, 1+r.Intn(space.value))
							}
							ops = append(ops, op)
						}
						p.mustApply(t, ops...)
					}
					if r.Intn(3) > 0 {
						continue
					}
					start := p.flush(t, func() bool { return r.Intn(5) > 0 })
					if start <= p.seq {
						behind++
					}
					d := p.recovered(t, start)
					require.Equal(t, recordsOf(t, p.tree), recordsOf(t, d))
					d.memory.Close()
				}
				families += p.left
			})
		}
	}
	require.Positive(t, behind)
	require.Positive(t, families)
	t.Log(behind, families)
}

func wide(key string, value int) Op { return Op{Key: []byte(key), Value: make([]byte, value)} }

// The last leaf of the tree has lost its last record. A new sibling then begins below that record, while the leaf
// keeps its other records. The leaf must be written together with the sibling.
func TestNarrowedBySplit(t *testing.T) {
	p := newPartedTree(t)
	defer p.memory.Close()
	for c := 'a'; c < 'v'; c++ {
		p.mustApply(t, wide(string(c), 350))
	}
	p.mustApply(t, wide("z", 1))
	p.flush(t, func() bool { return false })
	p.mustApply(t, Op{Key: []byte("z"), Delete: true})
	for c := 'v'; c < 'z'; c++ {
		p.mustApply(t, wide(string(c), 350))
	}
	start := p.flush(t, func() bool { return true })
	require.Equal(t, recordsOf(t, p.tree), recordsOf(t, p.recovered(t, start)))
}

// Repack fills up other leaves, and one leaf keeps its records. The separator after that leaf becomes shorter, and
// is now below a record that the leaf had before.
func TestNarrowedByRepack(t *testing.T) {
	p := newPartedTree(t)
	defer p.memory.Close()
	for _, op := range []Op{
		wide("a", 1300), wide("b", 1300), wide("cx", 100), wide("cy", 1900), wide("d", 1900), wide("e", 1900), wide("f", 1900), wide("g", 1900), wide("h", 1900),
	} {
		p.mustApply(t, op)
	}
	p.flush(t, func() bool { return false })
	for _, key := range []string{"cx", "f", "h"} {
		p.mustApply(t, Op{Key: []byte(key), Delete: true})
	}
	require.Equal(t, 1, p.mustRepack(t, nil, 100).Removed)
	start := p.flush(t, func() bool { return true })
	require.Equal(t, recordsOf(t, p.tree), recordsOf(t, p.recovered(t, start)))
}

// A leaf after a cut separator loses its first key, which is its bound, and is split by the same batch. The key is
// then stored again, in the leaf before it, which is written. The split must not be left behind: on disk, the key
// would be below the bound that was in force before.
func TestGrownBehindCut(t *testing.T) {
	p := newPartedTree(t)
	defer p.memory.Close()
	key := twins(MaxSeparator/4 + 1)
	for _, i := range rand.New(rand.NewSource(1)).Perm(400) {
		p.mustApply(t, Op{Key: key(i, 0), Value: make([]byte, 200)})
	}
	p.flush(t, func() bool { return false })
	root, err := p.Node(rootID)
	require.NoError(t, err)
	require.Equal(t, 2, root.Level())
	found := false
	for i := range root.Count() {
		_, parent, err := childNode(p, root, i)
		require.NoError(t, err)
		for j := 1; j < parent.Count() && !found; j++ {
			_, leaf, err := childNode(p, parent, j)
			require.NoError(t, err)
			if found = innerCut(parent.innerSlot(j)) && leaf.Count() > 1; !found {
				continue
			}
			first := bytes.Clone(leaf.key(0))
			ops := []Op{{Key: first, Delete: true}}
			for c := range byte(9) {
				ops = append(ops, Op{Key: append(bytes.Clone(leaf.key(1)), 'a'+c), Value: make([]byte, 200)})
			}
			p.mustApply(t, ops...)
			p.mustApply(t, Op{Key: first, Value: []byte("again")})
		}
	}
	require.True(t, found)
	start := p.flush(t, func() bool { return len(p.family) > 0 && p.left == 0 })
	require.Equal(t, recordsOf(t, p.tree), recordsOf(t, p.recovered(t, start)))
}

// A leaf after a cut separator loses its first key, which is its bound, and nothing else happens to it. The key is
// then stored again, in the leaf before, which is written. So the leaf must be written too: on disk, both would have
// the key.
func TestUpdatedBehindCut(t *testing.T) {
	p := newPartedTree(t)
	defer p.memory.Close()
	key := twins(MaxSeparator/4 + 1)
	for i := range 60 {
		p.mustApply(t, Op{Key: key(i, 0), Value: make([]byte, 200)})
	}
	p.flush(t, func() bool { return false })
	root, err := p.Node(rootID)
	require.NoError(t, err)
	require.Equal(t, 1, root.Level())
	i := 1
	for i < root.Count() && !innerCut(root.innerSlot(i)) {
		i++
	}
	require.Less(t, i, root.Count(), "no separator is cut")
	id, leaf, err := childNode(p, root, i)
	require.NoError(t, err)
	first := bytes.Clone(leaf.key(0))
	p.mustApply(t, Op{Key: first, Delete: true})
	p.mustApply(t, Op{Key: first, Value: []byte("again")})
	require.Contains(t, p.since, id)
	require.Contains(t, p.since, root.Child(i-1), "the key is in the leaf before")
	free := slices.DeleteFunc(slices.Sorted(maps.Keys(p.since)), func(id PageID) bool { return p.must[id] })
	start := p.flush(t, func() bool { // asks for the pages that it may leave behind, in their order
		left := free[0] == id
		free = free[1:]
		return left
	})
	require.Equal(t, recordsOf(t, p.tree), recordsOf(t, p.recovered(t, start)))
}
