package override

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A Part is what PlanPart has chosen: the dirty leaves of a range of keys.
type Part struct {
	Next    []byte            // key at which the next part begins; nil if this part reaches the last key
	Parents []logstore.PageID // parents of dirty leaves, as far as the parents' names are addresses: Fold gives them other names
	from    []byte            // key at which this part begins
	leaves  []*entry          // dirty leaves
	clean   []cleanLeaf       // leaves between them
}

// cleanLeaf is a leaf that is not dirty.
type cleanLeaf struct {
	id, parent logstore.PageID
}

// Leaves returns how many leaves were chosen, and other pages that Join has added.
func (t *Part) Leaves() int { return len(t.leaves) }

// has reports whether a leaf lies in the part's range of keys: whether its first key does.
func (t *Part) has(n btree.Node) bool {
	if t.Next == nil || n.Count() == 0 {
		return true
	}
	key := n.FirstKey()
	from, below := bytes.Compare(key, t.from) >= 0, bytes.Compare(key, t.Next) < 0
	if bytes.Compare(t.from, t.Next) < 0 {
		return from && below
	}
	return from || below // round the end of the tree
}

// PlanPart chooses leaves for a flush that leaves others behind: the given number of dirty ones in key order, from a key on and round to it again.
// Written together they die together when the next round comes by, and their segments with them.
//
// It looks at the tree as of a registered snapshot, without the token, while no flush is in flight. What it finds is a suggestion: StartPart
// takes what is dirty by then, and what it must.
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
	for i := 0; i <= n && !w.full; i++ { // the first one again at the end: what lies before the key in it
		if err := w.leaves(w.parents[(start+i)%n], i == 0, i == n); err != nil {
			return nil, err
		}
	}
	return w.part, nil
}

// partWalk goes through the inner nodes of a tree. Levels go down and no node is met twice, so it ends on any tree, soon.
type partWalk struct {
	s       Snapshot
	from    []byte
	most    int
	parents []partParent      // of leaves, in key order
	upper   []logstore.PageID // the other inner nodes, children before parents: those with children that are found through the table
	part    *Part
	full    bool
	seen    innerSet
}

type partParent struct {
	id    logstore.PageID
	bound []byte // no key below it is less
}

// at returns which parent a key lies below.
func (w *partWalk) at(key []byte) (i int) {
	for i+1 < len(w.parents) && bytes.Compare(w.parents[i+1].bound, key) <= 0 {
		i++
	}
	return i
}

// list lists the inner nodes from one on downwards.
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

// leaves chooses dirty leaves below a parent: those from the key on if it is the first, those before the key if it is the last.
func (w *partWalk) leaves(parent partParent, first, last bool) error {
	n, err := w.s.Node(parent.id)
	if err == nil && n.Level() != 1 {
		err = w.s.pages.unknown(parent.id)
	}
	if err != nil {
		return err
	}
	pinning := false
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
		if w.full = len(w.part.leaves) >= w.most; w.full {
			w.part.Next = append([]byte{}, bound...) // that of the first leaf is empty, but there
			break
		}
		e := w.s.pages.lookup(n.Child(i))
		if e == nil || e.head.Load().kind != inMemory {
			w.part.clean = append(w.part.clean, cleanLeaf{n.Child(i), parent.id})
			continue
		}
		w.part.leaves = append(w.part.leaves, e)
		pinning = pinning || e.pinning()
	}
	if pinning {
		w.part.Parents = append(w.part.Parents, parent.id)
	}
	return nil
}

// PlanPartFolds lists the inner nodes to be folded behind the flush of a part: the parents of its leaves, for FoldClean, and what is above
// them, for FoldAlone. It is like FoldPlan in all else: it has to be made behind the flush.
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
	first, last := 0, n-1 // all, unless the part has an end
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

const lonersShare = 2 // clean leaves that move with each dirty one, at most

// Loners returns the clean leaves of a part that should move with the others, for Touch, and adds the parents of those that have addresses for
// names. They keep segments from reuse that the part empties otherwise: those that have at most one clean leaf for four dirty ones, and those in
// which no more than live pages will be left; but none written since the given group. Token held, before StartPart.
func (p *names) Loners(part *Part, live int64, since uint64) (ids []logstore.PageID) {
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
		if e := p.lookup(c.id); e != nil {
			if v := e.head.Load(); v.kind != atAddress {
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
		if len(s.clean)*4 > s.dirty && (stay(n) > live || len(ids)+len(s.clean) > lonersShare*len(part.leaves)) {
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

// Join adds the pages at these addresses to the part, wherever in the tree they are, unless they are clean, in it already, or written anyway: leaves, and
// parents that may be left behind with their families.
// Token held, before StartPart.
func (p *names) Join(part *Part, at []logstore.Addr) {
	var found []*entry
	for _, a := range at {
		if !p.store.IsLive(a) {
			continue
		}
		kind, bears, err := p.store.KindAt(a)
		if err != nil || kind != logstore.KindTree { // damage is told of by whoever reads the page
			continue
		}
		if e := p.lookup(p.owner(a, bears)); e != nil && e.dirty != 0 && !e.must {
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

// PartPages bounds the pages that a flush of the part would write now. Token held.
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

// StartPart starts a flush that writes, of what may be left behind, the leaves of a part and their families. Else it is StartFlush.
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
