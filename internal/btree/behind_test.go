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

// A partedTree is a tree of which leaves are left behind on disk, as Editor.Update allows: what is written are all pages that were Put,
// and of those that only were Updated some.
type partedTree struct {
	*tree
	disk  map[PageID][]byte
	since map[PageID]int // of the pages changed since they were written, the seq that was first
	must  map[PageID]bool
	log   [][]Op // of each seq
}

func newPartedTree(tb testing.TB) *partedTree {
	t := &partedTree{tree: newTree(), disk: map[PageID][]byte{}, since: map[PageID]int{}, must: map[PageID]bool{}, log: [][]Op{nil}}
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
	t.must[id] = true
}

func (t *partedTree) Update(id PageID, n Node) {
	t.tree.Update(id, n)
	t.dirty(id)
}

func (t *partedTree) Narrow(id PageID) {
	if _, ok := t.since[id]; ok {
		t.must[id] = true
	}
}

func (t *partedTree) Remove(id PageID) {
	t.tree.Remove(id)
	delete(t.disk, id)
	delete(t.since, id)
	delete(t.must, id)
}

// flush writes the pages, but leaves behind what it may when leave says so. It returns the seq from which on redo has to start.
func (t *partedTree) flush(tb testing.TB, leave func() bool) (start int) {
	start = t.seq + 1
	for _, id := range slices.Sorted(maps.Keys(t.since)) {
		if !t.must[id] && leave() {
			start = min(start, t.since[id])
			continue
		}
		n, err := t.Node(id)
		require.NoError(tb, err)
		t.disk[id] = encode(tb, n)
		delete(t.since, id)
		delete(t.must, id)
	}
	return start
}

// recovered is the tree on disk, with the redo from the given seq on.
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

// partedBatch draws keys to change: some anywhere, a range, or the last ones, to be deleted or to be followed by others. Those from high on
// are absent.
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

// TestLeftBehind: a leaf that was only Updated may stay on disk as it was written before. With redo from where the first of those changed,
// the tree is the newest one.
func TestLeftBehind(t *testing.T) {
	behind, seeds := 0, int64(30)
	if testing.Short() {
		seeds = 8
	}
	for _, space := range []struct {
		name   string
		prefix string // of every other range of keys
		value  int
	}{{"short", "", 300}, {"cut", strings.Repeat("x", MaxSeparator), 200}, {"wide", "", 1500}} {
		for seed := range seeds {
			t.Run(fmt.Sprint(space.name, seed), func(t *testing.T) {
				r := rand.New(rand.NewSource(seed))
				p := newPartedTree(t)
				defer p.memory.Close()
				keys := []int{60, 200, 600}[r.Intn(3)]
				key := func(i int) []byte { return fmt.Appendf(nil, "%02d%s%06d", i*7/keys, space.prefix, i) }
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
			})
		}
	}
	require.Positive(t, behind)
}

func wide(key string, value int) Op { return Op{Key: []byte(key), Value: make([]byte, value)} }

// The last leaf of the tree has lost its last record, and keeps the others when a sibling is born that begins below that one: it must not
// be left behind with it.
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

// A leaf that keeps its records when others are filled up gets a shorter separator behind it, below a record that it had.
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
