package override

import (
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A fold rewrites an inner node to name its children by their present addresses; their entries in the table retire. It is a change of
// the current tree, made by the token holder at a batch's Seq, and changes no record. Each old name gets a tombstone with that Seq and
// stays in the table on disk until a flush whose base covers the fold has listed it. All nodes folded is the paper's rebase (section
// 4.4), without its pause.
//
// A child that is dirty has no present address. If it has an address for a name all the same, that name keeps a segment from reuse for
// as long as the child is always dirty when its parent is folded. Such a child is renamed: in the current tree the page with the old
// name is removed, and one with the same content is born. What holds for pages removed and born holds for it: both are dirty, so the
// same flush, the first whose base is not below the fold, writes the new name's image and lists the old name, and readers of earlier
// Seqs come by the old name until none is left.
//
// The new name's versions may go on having cells in the image at the old name's place, so that a fold of many dirty leaves copies
// directories only: that place lives until the same flush is installed, and dies at a Seq above those of all readers but the newest, for
// whom leaveWith keeps it.

// foldable reports whether a page may be named by its address: its newest image is installed. A name folded away has a tombstone.
func (e *entry) foldable() bool {
	v := e.head.Load()
	return e.disk != 0 && v.kind == atAddress && v.addr == e.disk
}

// pinning reports whether a page is dirty and its name an address.
func (e *entry) pinning() bool { return logstore.IsAddr(e.id) && e.head.Load().kind == inMemory }

// Fold folds one inner node, as part of the batch, and returns how many names it took away from children. The node may have left the tree since it was
// planned: then it does nothing.
func (b *Batch) Fold(parent logstore.PageID) (int, error) {
	return b.fold(parent, true, (*entry).pinning)
}

// FoldClean is Fold without renaming: what is dirty keeps its name and may be left behind. It leaves families alone, which would have to be written.
func (b *Batch) FoldClean(parent logstore.PageID) (int, error) {
	if e := b.p.table.find(parent); e != nil && e.family != nil {
		return 0, nil
	}
	return b.fold(parent, true, func(*entry) bool { return false })
}

// FoldAlone is Fold, but renames no child that has a family: it and the family may be left behind.
func (b *Batch) FoldAlone(parent logstore.PageID) (int, error) {
	return b.fold(parent, true, func(e *entry) bool { return e.pinning() && e.family == nil })
}

// Rename is Fold for those children only that are dirty, have addresses for names, and lie in a part. The next flush has to write what is
// renamed; so the others below the parent, which a part may end amid, keep their names for the part that they lie in.
func (b *Batch) Rename(parent logstore.PageID, part *Part) (int, error) {
	return b.fold(parent, false, func(e *entry) bool { return e.pinning() && part.has(e.head.Load().node) })
}

func (b *Batch) fold(parent logstore.PageID, clean bool, rename func(*entry) bool) (int, error) {
	p := b.p
	if e := p.table.find(parent); e != nil {
		if k := e.head.Load().kind; k == removed || k == tombstone {
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
		e := p.lookup(n.Child(i))
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
		t.next.Store(e.head.Load())
		e.head.Store(t)
		p.retired = append(p.retired, retirement{e, e.disk})
	}
	p.folds.Add(1)
	return len(names) + len(dirty), nil
}

// rename gives a dirty page a name that is born. The caller puts it in place of the old one.
func (b *Batch) rename(e *entry) btree.PageID {
	id, n := b.New(), e.head.Load().node
	if b.p.flush == nil {
		b.Put(id, n.Share(b.p.memory))
		b.p.table.find(id).lent = e.place()
	} else { // which may let the place die before the new name has one
		b.Put(id, n.Own(b.p.memory))
	}
	b.push(e.id, &version{seq: b.p.seq, kind: removed})
	b.p.listed++
	return id
}

// FoldPlan lists the inner nodes, as of a registered snapshot, that name at least least children through the table: children before
// parents. Without the token: Fold decides anew. The plan is void once a flush was installed, for by then a name may mean nothing.
func (s *Snapshot) FoldPlan(least int) ([]logstore.PageID, error) {
	return s.foldPlan(least, s.pages.named)
}

// DrainPlan is FoldPlan for the inner nodes that have a child with a name in the table for which want is true.
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

// foldWalk goes through the inner nodes of a tree. Levels go down and no node is met twice, so it ends on any tree.
type foldWalk struct {
	s     Snapshot
	least int
	named func(child logstore.PageID) bool
	seen  innerSet
	plan  []logstore.PageID
}

// innerSet holds the names of the inner nodes that a walk through a tree has met.
type innerSet map[logstore.PageID]struct{}

// add takes in a node, which must not have been met before: a walk that goes on below it would be as long as there are ways through the
// tree, not as many as it has pages.
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
