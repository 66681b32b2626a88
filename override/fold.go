package override

import (
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A fold rewrites an inner node to name its children by their present addresses; the table entries of these
// children retire. A fold is a change of the current tree, made by the token holder at a batch's Seq, and
// changes no record. Each old name gets a tombstone with that Seq, and stays in the table on disk until a flush
// whose base covers the fold has listed it. Folding all nodes is the paper's rebase (section 4.4), without its
// pause.
//
// A dirty child has no present address. If its name is an address, that name keeps a segment from reuse for as
// long as the child is always dirty when its parent is folded. So the fold renames such a child: in the current
// tree it removes the page with the old name and bears a page with the same content. What holds for removed and
// born pages holds for these two: both are dirty, so the same flush, the first whose base is not below the
// fold, writes the image under the new name and lists the old name. Readers of earlier Seqs use the old name
// until none of them is left.
//
// Versions of the new name may have cells in the image at the old name's place, so that a fold of many dirty
// leaves copies only their directories. That place is live until the same flush is installed. It dies at a Seq
// above those of all readers except readers at the newest Seq; for these, leaveWith keeps the segment.

// foldable reports whether a parent may name the page by its address: the newest image is installed. A name
// that was folded away has a tombstone and is not foldable.
func (e *entry) foldable() bool {
	v := e.newest()
	return e.disk != 0 && v.kind == atAddress && v.addr == e.disk
}

// pinning reports whether the page is dirty and its name is an address, so that the name keeps a segment.
func (l *link) pinning() bool { return logstore.IsAddr(l.id) && l.head.Load().kind == inMemory }

// Fold folds one inner node as part of the batch, and returns how many children lost their names. If the node
// has left the tree since the fold was planned, Fold does nothing.
func (b *Batch) Fold(parent logstore.PageID) (int, error) {
	return b.fold(parent, true, func(e *entry) bool { return e.link.pinning() })
}

// FoldClean is Fold without renaming: a dirty child keeps its name and may be left behind. It does nothing to a
// node with a family, because the flush would then have to write the whole family.
func (b *Batch) FoldClean(parent logstore.PageID) (int, error) {
	if e := b.p.table.find(parent); e != nil && e.family != nil {
		return 0, nil
	}
	return b.fold(parent, true, func(*entry) bool { return false })
}

// FoldFamily is FoldClean, except that it folds a node with a family too, and renames dirty children with addresses for
// names for which want is true. The next flush has to write these children and the family. A child in the family of
// another node keeps its name: otherwise folding a node above parents of split leaves would make the next flush write
// all families below it.
func (b *Batch) FoldFamily(parent logstore.PageID, want func(name logstore.Addr) bool) (int, error) {
	own := b.p.table.find(parent)
	return b.fold(parent, true, func(e *entry) bool {
		return e.link.pinning() && (e.family == nil || e.family.parent == own) && want(e.id)
	})
}

// FamilyPages returns how many pages the families of the given nodes have. Token held.
func (p *Pages) FamilyPages(parents []logstore.PageID) (pages int64) {
	for _, id := range parents {
		if e := p.table.find(id); e != nil && e.family != nil && e.family.parent == e {
			pages += int64(len(e.family.pages))
		}
	}
	return pages
}

// FoldAlone is Fold, except that it renames no child that has a family: the child and its family may be left
// behind.
func (b *Batch) FoldAlone(parent logstore.PageID) (int, error) {
	return b.fold(parent, true, func(e *entry) bool { return e.link.pinning() && e.family == nil })
}

// Rename renames those children that are dirty, have addresses for names, and lie in the part; it folds no
// other child. The next flush has to write what is renamed. A part may begin or end in the middle of a parent's
// children, so the children outside of the part keep their names until their own part comes.
func (b *Batch) Rename(parent logstore.PageID, part *Part) (int, error) {
	return b.fold(parent, false, func(e *entry) bool { return e.link.pinning() && part.has(e.newest().node) })
}

// RenameMust is Fold for a node and those of its children that the next flush has to write; it does nothing to a node
// that need not be written. After a split of the node, all of its dirty children have to be written. If they kept
// addresses for names, these names would keep the segments of the old images from reuse.
func (b *Batch) RenameMust(parent logstore.PageID) (int, error) {
	if e := b.p.table.find(parent); e == nil || !e.must {
		return 0, nil
	}
	return b.fold(parent, true, func(e *entry) bool { return e.must && e.link.pinning() })
}

// MustParents lists the parents of leaves that the next flush has to write. Token held.
func (p *Pages) MustParents() (ids []logstore.PageID) {
	for _, e := range p.dirty.must {
		if v := e.newest(); e.must && v.kind == inMemory && v.node.Level() == 1 {
			ids = append(ids, e.id)
		}
	}
	return ids
}

func (b *Batch) fold(parent logstore.PageID, clean bool, rename func(*entry) bool) (int, error) {
	p := b.p
	if e := p.table.find(parent); e != nil {
		if k := e.newest().kind; k == removed || k == tombstone {
			return 0, nil
		}
	}
	n, err := b.Node(parent)
	if err != nil || n.Level() == 0 {
		return 0, err
	}
	var names, dirty []*entry
	twin := error(nil)
	for i := range n.Count() {
		e := p.entry(n.Child(i))
		switch {
		case e == nil:
			continue
		case e.folding:
			twin = fmt.Errorf("%w: %s: page %#x is a child of page %#x twice", logstore.ErrCorrupt, p.store.Path(), e.id, parent)
		case clean && e.foldable():
			names, e.folding = append(names, e), true
		case rename(e):
			dirty, e.folding = append(dirty, e), true
		}
	}
	for _, e := range names {
		e.folding = false
	}
	for _, e := range dirty {
		e.folding = false
	}
	if twin != nil {
		return 0, twin
	}
	if len(names)+len(dirty) == 0 {
		return 0, nil
	}
	next, others := names, dirty
	b.Put(parent, n.WithChildren(p.memory, func(_ int, id btree.PageID) btree.PageID {
		if len(next) > 0 && next[0].id == id {
			id, next = next[0].disk, next[1:]
		} else if len(others) > 0 && others[0].id == id {
			id, others = b.rename(others[0]), others[1:]
		}
		return id
	}))
	for _, e := range names {
		t := &version{seq: p.seq, kind: tombstone}
		t.next.Store(e.newest())
		e.show(t)
		p.retired = append(p.retired, retirement{e, e.disk})
	}
	p.folds.Add(1)
	return len(names) + len(dirty), nil
}

// rename gives a dirty page a new born name. The caller puts the new name into the parent in place of the old
// one.
func (b *Batch) rename(e *entry) btree.PageID {
	id, n := b.New(), e.newest().node
	if b.p.flush == nil {
		b.Put(id, n.Share(b.p.memory))
		b.p.table.find(id).lent = e.place()
	} else { // the flush in flight may let the place die before the new name has a place
		b.Put(id, n.Own(b.p.memory))
	}
	if !e.born { // it takes the other's place
		b.p.dirty.place(b.p.table.find(id))
	}
	b.push(e.id, removed, btree.Node{})
	b.p.dirty.place(e)
	b.p.listed++
	return id
}

// FoldPlan lists the inner nodes, as of a registered snapshot, that have at least least children found through
// the table; children come before parents. It does not need the token, because Fold decides again. Once a flush
// is installed the plan is invalid, because a name in it may mean nothing then.
func (s *Snapshot) FoldPlan(least int) ([]logstore.PageID, error) {
	return s.foldPlan(least, s.pages.named)
}

// DrainPlan is FoldPlan for the inner nodes that have at least one child in the table whose name is an address
// for which want is true.
func (s *Snapshot) DrainPlan(want func(name logstore.Addr) bool) ([]logstore.PageID, error) {
	return s.foldPlan(1, func(id logstore.PageID) bool { return logstore.IsAddr(id) && s.pages.named(id) && want(id) })
}

func (s *Snapshot) foldPlan(least int, named func(logstore.PageID) bool) ([]logstore.PageID, error) {
	root, err := s.Node(Root)
	if err != nil {
		return nil, err
	}
	w := foldWalk{s: *s, least: least, named: named}
	err = w.walk(Root, root)
	s.pages.store.SetInner(int64(len(w.seen)))
	return w.plan, err
}

// foldWalk walks the inner nodes of a tree. It ends on any tree, even a damaged one, because levels descend and
// meeting a node twice is an error.
type foldWalk struct {
	s     Snapshot
	least int
	named func(child logstore.PageID) bool
	seen  innerSet
	plan  []logstore.PageID
}

// innerSet holds the names of the inner nodes that a walk has met.
type innerSet map[logstore.PageID]struct{}

// add adds a node. It is an error if the node was met before: in a damaged tree with shared nodes, a walk would
// take as long as there are paths, not as many steps as there are pages.
func (s *innerSet) add(p *images, id logstore.PageID) error {
	if *s == nil {
		*s = innerSet{}
	}
	n := len(*s)
	if (*s)[id] = struct{}{}; len(*s) == n {
		return fmt.Errorf("%w: %s: page %#x has two parents", logstore.ErrCorrupt, p.store.Path(), id)
	}
	return nil
}

func (w *foldWalk) walk(id logstore.PageID, n btree.Node) error {
	if n.Level() == 0 {
		return nil
	}
	if err := w.seen.add(w.s.pages, id); err != nil {
		return err
	}
	named := 0
	for i := range n.Count() {
		child := n.Child(i)
		if w.named(child) {
			named++
		}
		if n.Level() == 1 {
			continue
		}
		c, err := w.s.Node(child)
		if err != nil {
			return err
		}
		if c.Level() != n.Level()-1 {
			return fmt.Errorf("%w: %s: page %#x is on level %d below level %d", logstore.ErrCorrupt, w.s.pages.store.Path(), child, c.Level(), n.Level())
		}
		if err := w.walk(child, c); err != nil {
			return err
		}
	}
	if named >= w.least {
		w.plan = append(w.plan, id)
	}
	return nil
}
