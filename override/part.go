package override

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A Part is the set of leaves that PlanPart has chosen for an incremental flush: the dirty leaves of a range of
// keys. The range wraps around the end of the tree if Next is not above from.
type Part struct {
	Next    []byte            // key at which the next Part begins; nil if this one has all dirty leaves of the tree
	Parents []logstore.PageID // parents of those dirty leaves whose names are addresses: Batch.Rename gives these leaves born names
	from    []byte            // key at which this Part begins
	leaves  []*entry          // dirty leaves
	clean   []cleanLeaf       // clean leaves between the dirty ones
}

// cleanLeaf is a leaf that is not dirty.
type cleanLeaf struct {
	id, parent logstore.PageID
}

// Leaves returns how many leaves were chosen, plus the other pages that Join has added.
func (t *Part) Leaves() int { return len(t.leaves) }

// has reports whether a leaf's first key lies in the range of keys of the Part.
func (t *Part) has(n btree.Node) bool {
	if t.Next == nil || n.Count() == 0 {
		return true
	}
	key := n.FirstKey()
	from, below := bytes.Compare(key, t.from) >= 0, bytes.Compare(key, t.Next) < 0
	if bytes.Compare(t.from, t.Next) < 0 {
		return from && below
	}
	return from || below // the range wraps around the end of the tree
}

// PlanPart chooses the given number of dirty leaves for an incremental flush: in key order from a key on,
// wrapping around the end of the tree until that key is reached again. Leaves that are written together become
// obsolete together in the next round, and their segments become free with them.
//
// PlanPart reads the tree as of a registered snapshot, without the token, while no flush is in flight. The Part
// is a suggestion: StartPart writes those of its leaves that are still dirty, and every page that has to be
// written.
func (s *Snapshot) PlanPart(from []byte, leaves int) (*Part, error) {
	w := partWalk{s: *s, from: from, most: leaves, part: &Part{from: from}}
	root, err := s.Node(Root)
	if err != nil || root.Level() == 0 {
		return w.part, err
	}
	if err := w.list(Root, root, nil); err != nil {
		return nil, err
	}
	start, n := w.at(from), len(w.parents)
	for i := 0; i <= n && !w.full; i++ { // the parent at start comes first, for its leaves from the key on, and again last, for those before the key
		if err := w.leaves(w.parents[(start+i)%n], i == 0, i == n); err != nil {
			return nil, err
		}
	}
	return w.part, nil
}

// partWalk walks the inner nodes of a tree. It ends on any tree, even a damaged one, because levels descend and
// meeting a node twice is an error.
type partWalk struct {
	s       Snapshot
	from    []byte
	most    int
	parents []partParent      // parents of leaves, in key order
	upper   []logstore.PageID // higher inner nodes with a child found through the table, children before parents
	part    *Part
	full    bool
	seen    innerSet
}

type partParent struct {
	id    logstore.PageID
	bound []byte // every key below the node is at or above it
}

// at returns the index of the parent below which a key belongs.
func (w *partWalk) at(key []byte) (i int) {
	for i+1 < len(w.parents) && bytes.Compare(w.parents[i+1].bound, key) <= 0 {
		i++
	}
	return i
}

// list collects the inner nodes from the given one downwards.
func (w *partWalk) list(id logstore.PageID, n btree.Node, bound []byte) error {
	if n.Level() == 1 {
		w.parents = append(w.parents, partParent{id, bound})
		return nil
	}
	named := false
	for i := range n.Count() {
		child := n.Child(i)
		if err := w.seen.add(w.s.pages, child); err != nil {
			return err
		}
		named = named || w.s.pages.named(child)
		if i > 0 {
			bound, _ = n.Separator(i, nil)
		}
		if n.Level() == 2 {
			w.parents = append(w.parents, partParent{child, bound})
			continue
		}
		c, err := w.s.Node(child)
		if err == nil && c.Level() != n.Level()-1 {
			err = w.s.pages.unknown(child)
		}
		if err == nil {
			err = w.list(child, c, bound)
		}
		if err != nil {
			return err
		}
	}
	if named {
		w.upper = append(w.upper, id)
	}
	return nil
}

// leaves chooses dirty leaves below a parent: those from the key on if first is set, those before the key if
// last is set, else all.
func (w *partWalk) leaves(parent partParent, first, last bool) error {
	n, err := w.s.Node(parent.id)
	if err == nil && n.Level() != 1 {
		err = w.s.pages.unknown(parent.id)
	}
	if err != nil {
		return err
	}
	pinning, begun := false, false
	whole := w.heads(parent.id)
	var bound []byte
	for i := range n.Count() {
		bound = append(bound[:0], parent.bound...)
		if i > 0 {
			bound, _ = n.Separator(i, bound[:0])
		}
		if before := bytes.Compare(bound, w.from) < 0; first && before {
			continue
		} else if last && !before {
			break
		}
		if w.full = len(w.part.leaves) >= w.most && !(whole && begun); w.full {
			w.part.Next = append([]byte{}, bound...) // not nil, even if the bound is empty, which that of the first leaf is
			break
		}
		begun = true
		l := w.s.pages.lookup(n.Child(i))
		if l == nil || l.head.Load().kind != inMemory {
			w.part.clean = append(w.part.clean, cleanLeaf{n.Child(i), parent.id})
			continue
		}
		w.part.leaves = append(w.part.leaves, l.entry)
		pinning = pinning || l.pinning()
	}
	if pinning {
		w.part.Parents = append(w.part.Parents, parent.id)
	}
	return nil
}

// PlanPartFolds lists the inner nodes to be folded after the flush of a Part: the parents of its leaves, for
// FoldClean, and the higher nodes, for FoldAlone. Like FoldPlan it must be made after the flush is installed.
func (s *Snapshot) PlanPartFolds(part *Part) (parents, upper []logstore.PageID, err error) {
	w := partWalk{s: *s}
	root, err := s.Node(Root)
	if err != nil || root.Level() == 0 {
		return nil, nil, err
	}
	if err := w.list(Root, root, nil); err != nil {
		return nil, nil, err
	}
	n := len(w.parents)
	first, last := 0, n-1 // all parents, if the Part has no end
	if part.Next != nil {
		first, last = w.at(part.from), w.at(part.Next)
		if bytes.Compare(part.Next, part.from) <= 0 {
			last += n
		}
	}
	for i := first; i <= last; i++ {
		parents = append(parents, w.parents[i%n].id)
	}
	return parents, w.upper, nil
}

// sparseShare bounds the clean leaves that SparseLeaves chooses because few live pages will be left in their segment:
// this many for each dirty leaf of the Part. The bound does not hold for segments with at most one clean leaf for four
// dirty ones. Larger: a flush writes more pages that have not changed. Smaller: more segments stay nearly empty.
const sparseShare = 2

// SparseLeaves returns the clean leaves of a Part that should move together with its dirty leaves: they are nearly all
// that would be left in their segments after the flush. The caller passes them to Touch. A segment is chosen if it has
// at most one clean leaf of the Part for each four dirty ones, or if at most the given number of live pages would be
// left in it. Segments written at the given group or later are not chosen. The parents of chosen leaves whose names
// are addresses are added to part.Parents. Token held, before StartPart.
func (p *names) SparseLeaves(part *Part, live int64, since uint64) (ids []logstore.PageID) {
	type segment struct {
		dirty int
		clean []cleanLeaf
	}
	segments := map[uint64]*segment{}
	at := func(a logstore.Addr) *segment {
		n := a / uint64(p.store.SegmentPages())
		s := segments[n]
		if s == nil {
			s = &segment{}
			segments[n] = s
		}
		return s
	}
	for _, e := range part.leaves {
		if old := e.place(); old != 0 && e.dirty != 0 {
			at(old).dirty++
		}
	}
	for _, c := range part.clean {
		a := c.id
		if e := p.entry(c.id); e != nil {
			if v := e.newest(); v.kind != atAddress {
				continue
			}
			a = e.place()
		}
		if logstore.IsAddr(a) && p.store.LastWritten(uint32(a/uint64(p.store.SegmentPages()))) < since {
			s := at(a)
			s.clean = append(s.clean, c)
		}
	}
	parents := map[logstore.PageID]bool{}
	for _, id := range part.Parents {
		parents[id] = true
	}
	stay := func(n uint64) int64 { return p.store.LiveIn(uint32(n)) - int64(segments[n].dirty) }
	order := slices.SortedFunc(maps.Keys(segments), func(a, b uint64) int { return cmp.Or(cmp.Compare(stay(a), stay(b)), cmp.Compare(a, b)) })
	for _, n := range order {
		s := segments[n]
		if len(s.clean)*4 > s.dirty && (stay(n) > live || len(ids)+len(s.clean) > sparseShare*len(part.leaves)) {
			continue
		}
		for _, c := range s.clean {
			ids = append(ids, c.id)
			if logstore.IsAddr(c.id) && !parents[c.parent] {
				parents[c.parent] = true
				part.Parents = append(part.Parents, c.parent)
			}
		}
	}
	return ids
}

// Join adds the dirty pages at the given addresses to the Part, wherever they are in the tree. It skips pages
// that are clean, in the Part already, or to be written anyway. The pages are leaves, and parents that may be
// left behind with their families. Token held, before StartPart.
func (p *names) Join(part *Part, at []logstore.Addr) {
	var found []*entry
	for _, a := range at {
		if !p.store.IsLive(a) {
			continue
		}
		kind, bears, err := p.store.KindAt(a)
		if err != nil || kind != logstore.KindTree { // the next reader of a damaged page gets the error
			continue
		}
		if e := p.entry(p.owner(a, bears)); e != nil && e.dirty != 0 && !e.must {
			found = append(found, e)
		}
	}
	others := map[*entry]bool{}
	for _, e := range found {
		others[e] = true
	}
	for _, e := range part.leaves {
		delete(others, e)
	}
	for _, e := range found {
		if others[e] {
			part.leaves = append(part.leaves, e)
		}
	}
}

// PartPages returns an upper bound of the pages that a flush of the Part would write now. Token held.
func (p *Pages) PartPages(part *Part) int64 {
	n := p.MustPages() + p.StreamPages()
	var counted []*family
	for _, e := range part.leaves {
		switch f := e.family; {
		case e.dirty == 0 || e.must || f != nil && f.counted:
		case f != nil:
			f.counted = true
			counted = append(counted, f)
			n += int64(len(f.pages))
		default:
			n++
		}
	}
	for _, f := range counted {
		f.counted = false
	}
	return n
}

// StartPart starts an incremental flush. Of the dirty pages that may be left behind, it writes the leaves of
// the Part and their families; it also writes every page that has to be written. It returns nil if nothing is
// dirty or pending; unlike StartFlush it does not move the base then. Otherwise see StartFlush.
func (p *Pages) StartPart(group uint64, records int64, part *Part) *Flush {
	if p.dirty.len() == 0 && p.nothingPending() {
		return nil
	}
	f := p.StartEarly()
	take := func(e *entry) {
		f.take(e)
		p.dirty.remove(e)
	}
	for _, e := range p.dirty.must {
		if e.must {
			take(e)
		}
	}
	p.dirty.forgetMusts()
	for _, e := range part.leaves {
		switch {
		case e.dirty == 0:
		case e.family != nil:
			for _, m := range p.dirty.disband(e.family) {
				take(m)
			}
		default:
			take(e)
		}
	}
	f.seal(group, records)
	return f
}

// heads reports whether a parent has a family. A flush writes all of a family with any leaf of it, so two parts that
// share a family would both write it.
func (w *partWalk) heads(parent logstore.PageID) bool {
	l := w.s.pages.lookup(parent)
	return l != nil && l.entry.heads.Load()
}
