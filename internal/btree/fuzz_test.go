package btree

import (
	"bytes"
	"errors"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// touch calls every accessor of a page that passed CheckPage.
func touch(tb testing.TB, n Node) {
	require.LessOrEqual(tb, n.Level(), MaxHeight)
	p := newTree()
	defer p.memory.Close()
	n.FirstKey()
	body := make([]byte, BodySize)
	n.Encode(body, n.even())
	require.True(tb, bytes.Equal(body, slice(n.base, MuxSize, BodySize)), "a page is not what its records say")
	if !n.IsLeaf() {
		var before []byte
		for i := range n.Count() {
			s, cut := n.Separator(i, nil)
			require.True(tb, i < 2 || bytes.Compare(before, s) < 0 || cut)
			before = s
			n.Child(i)
			if !cut {
				at, err := n.route(p, s, 0)
				require.True(tb, err != nil || at == i, "separator %d leads to child %d", i, at)
			}
		}
		same := n.WithChildren(p.memory, func(i int, id PageID) PageID { return id })
		same.Encode(body, false)
		require.True(tb, bytes.Equal(body, slice(n.base, MuxSize, BodySize)))
		return
	}
	for i := range n.Count() {
		c := n.Cell(i)
		c.Value()
		c.Ref()
		require.LessOrEqual(tb, c.ValueLen(), uint64(MaxValue))
		if !c.IsLong() {
			at, found, err := n.find(p, c.Key())
			require.NoError(tb, err)
			require.True(tb, found)
			require.Equal(tb, i, at)
		}
	}
	own := n.Own(p.memory)
	own.Encode(body, n.even())
	require.True(tb, bytes.Equal(body, slice(n.base, MuxSize, BodySize)))
	own.Release(p.memory)
	require.Zero(tb, p.memory.Held())
}

// samplePages returns pages of all kinds.
func samplePages(tb testing.TB) [][]byte {
	pages := [][]byte{make([]byte, PageSize)}
	for i, space := range keyspaces {
		r := rand.New(rand.NewSource(int64(i)))
		tr := newTree()
		_, err := tr.apply(tr.batch(r, model{}, space.key, 200, 0))
		require.NoError(tb, err)
		levels := map[int]int{}
		_, err = CheckTree(tr, rootID, func(_ PageID, n Node) error {
			if levels[n.Level()]++; levels[n.Level()] <= 2 {
				pages = append(pages, encode(tb, n))
			}
			return nil
		})
		require.NoError(tb, err)
		tr.memory.Close()
	}
	return pages
}

// TestPageMutations changes single bytes of pages. Every accessor must be able to read a page that CheckPage
// accepts.
func TestPageMutations(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	passed := 0
	for _, page := range samplePages(t) {
		touch(t, View(page))
		used := MuxSize + View(page).bytes()
		for range 300 {
			mutant := bytes.Clone(page)
			at := MuxSize + r.Intn(used-MuxSize)
			if r.Intn(2) == 0 { // errors in the directory matter most
				at = min(at, MuxSize+r.Intn(64))
			}
			mutant[at] ^= byte(1 << r.Intn(8))
			if err := CheckPage(mutant); err != nil {
				require.ErrorIs(t, err, ErrMalformed)
				continue
			}
			passed++
			touch(t, View(mutant))
		}
	}
	t.Logf("%d mutants are pages", passed)
}

func FuzzCheckPage(f *testing.F) {
	for _, page := range samplePages(f) {
		f.Add(page[MuxSize:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		page := make([]byte, PageSize)
		copy(page[MuxSize:], body)
		if CheckPage(page) == nil {
			touch(t, View(page))
		}
	})
}

// FuzzApply interprets bytes as a script of batches and compares the tree with the model.
func FuzzApply(f *testing.F) {
	f.Add([]byte{0, 200, 20, 1, 50, 90})
	f.Add([]byte{5, 255, 0, 5, 255, 0, 5, 100, 100, 5, 255, 100})
	f.Add([]byte{4, 255, 0, 6, 255, 0, 4, 255, 100})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 24 {
			return
		}
		r := rand.New(rand.NewSource(int64(len(script))))
		tr, m := newTree(), model{}
		defer tr.memory.Close()
		tr.memory.Even = len(script)%2 == 0
		for ; len(script) >= 3; script = script[3:] {
			space := keyspaces[int(script[0])%(len(keyspaces)-1)]
			ops := tr.batch(r, m, space.key, int(script[1])+1, int(script[2])%101)
			_, err := tr.apply(ops)
			require.NoError(t, err)
			tr.forget(tr.seq)
			check(t, snapshot{tr, tr.seq}, m, r, space.key)
			if script[0] >= 128 {
				tr.write(t)
			}
		}
		tr.write(t)
		require.Zero(t, tr.memory.Held())
	})
}

// hostile is an Editor over unrelated pages that each passed CheckPage. It never panics.
type hostile struct {
	*tree
	newest map[PageID]Node
	fresh  map[PageID]bool // put in this batch
}

var errNoPage = errors.New("no page")

func (h *hostile) Node(id PageID) (Node, error) {
	if n, ok := h.newest[id]; ok {
		return n, nil
	}
	return Node{}, errNoPage
}

func (h *hostile) RunKey(ref Ref) ([]byte, error) {
	return bytes.Repeat([]byte{'k'}, int(ref.KeyLen)), nil
}
func (h *hostile) Put(id PageID, n Node) {
	if h.fresh[id] {
		h.newest[id].Release(h.memory)
	}
	h.newest[id], h.fresh[id] = n, true
}
func (h *hostile) Update(id PageID, n Node)  { h.Put(id, n) }
func (h *hostile) Grow(_, id PageID, n Node) { h.Put(id, n) }
func (h *hostile) Narrow(PageID)             {}
func (h *hostile) Ahead([]PageID)            {}
func (h *hostile) Remove(id PageID)          { delete(h.newest, id) }
func (h *hostile) Drop(ref Ref)              {}

// TestOnePageManyTimes changes a tree that has the same leaf after many separators.
func TestOnePageManyTimes(t *testing.T) {
	inner := View(innerOf(t, 1, "", "b", "c", "d", "e", "f"))
	for _, period := range []PageID{1, 2, 3} {
		h := &hostile{newTree(), map[PageID]Node{}, map[PageID]bool{}}
		for id := range period {
			h.newest[10+id] = View(leafOf(t, "k", "l"))
		}
		h.newest[rootID] = inner.WithChildren(h.memory, func(i int, _ PageID) PageID { return 10 + PageID(i)%period })
		var ops []Op
		for _, k := range strings.Fields("a ab b bb c cc d dd e ee f ff g") {
			ops = append(ops, put(k, strings.Repeat("v", 500)))
		}
		_, err := Apply(h, rootID, ops)
		require.True(t, err == nil || errors.Is(err, ErrMalformed), "%v", err)
		h.memory.Close()
	}
}

// TestHostileTrees links pages at random, even to themselves, and reads and changes the result. Errors are
// expected; panics and endless loops are failures.
func TestHostileTrees(t *testing.T) {
	inTurn(t)
	var pages [][]byte
	for i, space := range keyspaces {
		r := rand.New(rand.NewSource(int64(i)))
		tr := newTree()
		_, err := tr.apply(tr.batch(r, model{}, space.key, 1500>>(i/6*4), 0))
		require.NoError(t, err)
		_, err = CheckTree(tr, rootID, func(_ PageID, n Node) error { pages = append(pages, encode(t, n)); return nil })
		require.NoError(t, err)
		tr.memory.Close()
	}
	outcomes := map[string]int{}
	for seed := range int64(150) {
		r := rand.New(rand.NewSource(seed))
		h := &hostile{newTree(), map[PageID]Node{}, nil}
		ids := 3 + r.Intn(30)
		for id := range ids {
			h.newest[PageID(id)] = h.link(View(pages[r.Intn(len(pages))]), r, ids)
		}
		for range 20 { // look for a root that is not a leaf
			if n := h.newest[rootID]; !n.IsLeaf() {
				break
			}
			h.newest[rootID] = h.link(View(pages[r.Intn(len(pages))]), r, ids)
		}
		for range 5 {
			space := keyspaces[r.Intn(len(keyspaces)-1)]
			h.read(space.key(r))
			h.fresh = map[PageID]bool{}
			_, err := Apply(h, rootID, h.batch(r, model{}, space.key, 1+r.Intn(200), r.Intn(101)))
			outcomes[outcomeOf(err)]++
		}
		h.memory.Close()
	}
	t.Log(outcomes)
	require.NotZero(t, outcomes["fine"])
	require.NotZero(t, outcomes["malformed"])
}

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "fine"
	case errors.Is(err, ErrMalformed):
		return "malformed"
	}
	return "other"
}

// link gives an inner node random children, most of which exist.
func (h *hostile) link(n Node, r *rand.Rand, ids int) Node {
	if n.IsLeaf() {
		return n
	}
	return n.WithChildren(h.memory, func(int, PageID) PageID {
		for range 20 { // one of the right level, if possible
			id := PageID(r.Intn(ids))
			if c, ok := h.newest[id]; ok && c.Level() == n.Level()-1 {
				return id
			}
		}
		return PageID(r.Intn(ids + 1))
	})
}

// read looks keys up, walks in both directions and checks the tree.
func (h *hostile) read(key []byte) {
	_, _, _ = Get(h, rootID, key)
	_, _ = Leaf(h, rootID, key)
	var c Cursor
	c.Reset(h, rootID)
	limit := 20_000 // a walk is endless for practical purposes if pages have many parents
	for ok := c.Seek(key); ok && limit > 0; ok = c.Next() {
		c.Key()
		limit--
	}
	c.Reset(h, rootID)
	for ok := c.Last(); ok && limit > 0; ok = c.Prev() {
		c.Value()
		limit--
	}
	_, _ = CheckTree(h, rootID, func(PageID, Node) error { return nil })
}
