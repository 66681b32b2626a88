package btree

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A tree is an Editor that keeps every version of every page until forget is called.
type tree struct {
	memory        *Memory
	pages         map[PageID][]pageVersion // oldest first
	runs          map[PageID][]byte        // whole keys of long-key records
	live          map[PageID]bool          // runs in the tree
	born          PageID
	seq           int
	puts, updates int
	grown         int
	even          int // pages written
	length        int // length of most values; 0 for any length
}

type pageVersion struct {
	seq  int
	node Node
	gone bool
}

const rootID PageID = 1

func newTree() *tree {
	t := &tree{
		memory: NewMemory(), pages: map[PageID][]pageVersion{}, runs: map[PageID][]byte{}, live: map[PageID]bool{}, born: 100,
	}
	t.memory.poison, t.memory.Even = true, true
	image := make([]byte, PageSize)
	EncodeEmptyLeaf(image[MuxSize:])
	t.pages[rootID] = []pageVersion{{node: View(image)}}
	return t
}

func (t *tree) Memory() *Memory { return t.memory }
func (t *tree) New() PageID     { t.born++; return t.born }

func (t *tree) Node(id PageID) (Node, error) { return t.at(id, t.seq) }

func (t *tree) at(id PageID, seq int) (Node, error) {
	vs := t.pages[id]
	for i := len(vs) - 1; i >= 0; i-- {
		if vs[i].seq <= seq {
			if vs[i].gone {
				break
			}
			return vs[i].node, nil
		}
	}
	return Node{}, fmt.Errorf("no page %#x at %d", id, seq)
}

func (t *tree) RunKey(ref Ref) ([]byte, error) {
	k, ok := t.runs[ref.ID]
	if !ok {
		return nil, fmt.Errorf("no run %#x", ref.ID)
	}
	return k, nil
}

func (t *tree) Put(id PageID, n Node) { t.push(id, pageVersion{seq: t.seq, node: n}); t.puts++ }
func (t *tree) Update(id PageID, n Node) {
	old, err := t.Node(id)
	if err != nil || !slices.Equal(refsOf(old), refsOf(n)) {
		panic(fmt.Sprintf("update of page %#x changes references: %v", id, err))
	}
	t.Put(id, n)
	t.updates++
}

// Grow checks what Editor.Grow promises, as far as it can.
func (t *tree) Grow(parent, id PageID, n Node) {
	p, err := t.Node(parent)
	if err != nil || p.Level() != 1 {
		panic(fmt.Sprintf("page %#x grows below page %#x of level %d: %v", id, parent, p.Level(), err))
	}
	if id == parent {
		old := map[PageID]bool{}
		for i := range n.Count() {
			old[n.Child(i)] = true
		}
		for i := range p.Count() {
			if !old[p.Child(i)] {
				panic(fmt.Sprintf("page %#x grows and loses child %#x", id, p.Child(i)))
			}
		}
	}
	t.Put(id, n)
	t.grown++
}

func (t *tree) Narrow(PageID) {}

func (t *tree) Ahead([]PageID) {}

func refsOf(n Node) (refs []Ref) {
	for i := 0; n.IsLeaf() && i < n.Count(); i++ {
		if c := n.Cell(i); c.Kind() != Inline {
			refs = append(refs, c.Ref())
		}
	}
	return refs
}

func (t *tree) Remove(id PageID) {
	if vs := t.pages[id]; len(vs) == 0 || vs[len(vs)-1].gone {
		panic(fmt.Sprintf("page %#x removed, but not there", id))
	}
	t.push(id, pageVersion{seq: t.seq, gone: true})
}

func (t *tree) push(id PageID, v pageVersion) {
	vs := t.pages[id]
	if l := len(vs); l > 0 && vs[l-1].seq == t.seq { // nobody has seen this version
		vs[l-1].node.Release(t.memory)
		vs = vs[:l-1]
	}
	t.pages[id] = append(vs, v)
}

func (t *tree) Drop(ref Ref) {
	if !t.live[ref.ID] {
		panic(fmt.Sprintf("run %#x dropped, but not in the tree", ref.ID))
	}
	delete(t.live, ref.ID)
}

// run makes a reference for a record with the given key.
func (t *tree) run(key []byte, valueLen uint64) *Ref {
	t.born++
	r := &Ref{ID: t.born, ValueLen: valueLen, Kind: Run}
	if valueLen%2 == 1 {
		r.Kind = Extents
	}
	if len(key) > MaxInlineKey {
		r.KeyLen = uint32(len(key))
		t.runs[r.ID] = bytes.Clone(key)
	}
	t.live[r.ID] = true
	return r
}

// apply applies a batch at the next seq.
func (t *tree) apply(ops []Op) (Result, error) {
	t.seq++
	return Apply(t, rootID, ops)
}

// forget releases versions that only snapshots before seq see.
func (t *tree) forget(seq int) {
	for id, vs := range t.pages {
		for len(vs) > 1 && vs[1].seq <= seq {
			vs[0].node.Release(t.memory)
			vs = vs[1:]
		}
		if len(vs) == 1 && vs[0].gone && vs[0].seq <= seq {
			delete(t.pages, id)
			continue
		}
		t.pages[id] = vs
	}
}

// write replaces the newest version of each page by a page image if it is in memory, as a flush does.
func (t *tree) write(tb testing.TB) {
	for _, vs := range t.pages {
		v := &vs[len(vs)-1]
		if v.gone || v.node.IsImage() {
			continue
		}
		old := v.node
		v.node = View(encodeAs(tb, old, t.memory.Even))
		if v.node.even() {
			t.even++
		}
		old.Release(t.memory)
	}
}

// encode writes a node to an image and checks that the image has the same contents.
func encode(tb testing.TB, n Node) []byte { return encodeAs(tb, n, true) }

func encodeAs(tb testing.TB, n Node, even bool) []byte {
	image := make([]byte, PageSize)
	for i := range image {
		image[i] = 0xAA
	}
	n.Encode(image[MuxSize:], even)
	require.NoError(tb, CheckPage(image))
	v := View(image)
	require.False(tb, n.even() && even && !v.even())
	require.Equal(tb, n.Level(), v.Level())
	require.Equal(tb, n.Count(), v.Count())
	require.Equal(tb, n.cellBytes(), v.cellBytes())
	if n.IsLeaf() && n.Count() > 0 {
		require.Equal(tb, n.key(0)[:n.prefix()], n.common())
		require.LessOrEqual(tb, n.prefix(), v.prefix())
	}
	for i := range n.Count() {
		if n.IsLeaf() {
			a, b := n.Cell(i), v.Cell(i)
			if !bytes.Equal(a.Key(), b.Key()) || !bytes.Equal(a.Value(), b.Value()) || a.Ref() != b.Ref() || a.IsLong() != b.IsLong() {
				require.Fail(tb, "record changed by Encode")
			}
			continue
		}
		a, cutA := n.Separator(i, nil)
		b, cutB := v.Separator(i, nil)
		if n.Child(i) != v.Child(i) || !bytes.Equal(a, b) || cutA != cutB {
			require.Fail(tb, "child changed by Encode")
		}
	}
	return image
}

// snapshot is a tree as of a seq.
type snapshot struct {
	*tree
	seq int
}

func (s snapshot) Node(id PageID) (Node, error) { return s.at(id, s.seq) }
