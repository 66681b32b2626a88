package override

import (
	"context"
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// installed reads the tree as the log has it: as recovery would find it without redo.
type installed struct{ p *Pages }

func (t installed) addr(id btree.PageID) logstore.Addr {
	if e := t.p.table.find(id); e != nil && e.place() != 0 {
		return e.place()
	}
	return id
}

// Node returns the installed image of a page.
func (t installed) Node(id btree.PageID) (btree.Node, error) {
	a := t.addr(id)
	if !logstore.IsAddr(a) {
		return btree.Node{}, t.p.unknown(id)
	}
	image, err := t.p.store.Page(a)
	if err != nil {
		return btree.Node{}, err
	}
	return btree.View(image), nil
}

// RunKey returns the whole key of a record with a long key.
func (t installed) RunKey(ref btree.Ref) ([]byte, error) {
	payload, err := t.p.store.Run(t.addr(ref.ID))
	if err == nil && uint64(ref.KeyLen) > uint64(len(payload)) {
		err = t.p.badRun(ref)
	}
	if err != nil {
		return nil, err
	}
	return payload[:ref.KeyLen], nil
}

// Installed lists the pages that the installed tree and its values use, and checks the tree on the way, and that the table on disk has
// only names that it uses. The pages are frozen and no flush is in flight; the baton is not needed.
func (p *Pages) Installed(ctx context.Context) (used map[logstore.Addr]bool, err error) {
	used = map[logstore.Addr]bool{}
	named := map[logstore.PageID]bool{}
	use := func(a logstore.Addr, n int64) {
		for i := range uint64(n) {
			used[a+i] = true
		}
	}
	t := installed{p}
	useValue := func(ref btree.Ref) error {
		named[ref.ID] = true
		pages, err := p.pagesAt(t.addr(ref.ID), ref)
		for _, x := range pages {
			use(x.Addr, x.Pages)
		}
		return err
	}
	records, err := btree.CheckTree(t, Root, func(id btree.PageID, n btree.Node) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		use(t.addr(id), 1)
		named[id] = true
		for i := 0; n.IsLeaf() && i < n.Count(); i++ {
			if c := n.Cell(i); c.Kind() != btree.Inline {
				if err := useValue(c.Ref()); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil && records != p.baseRecords {
		err = fmt.Errorf("%w: %s: %d records counted in the installed tree, %d found", logstore.ErrCorrupt, p.store.Path(), p.baseRecords, records)
	}
	p.table.all(func(e *entry) {
		if err == nil && e.disk != 0 && !named[e.id] {
			err = fmt.Errorf("%w: %s: the table leads from %#x to page %d, which nothing in the installed tree names so", logstore.ErrCorrupt, p.store.Path(), e.id, e.disk)
		}
	})
	return used, err
}

// CheckSpace compares the space map with the pages that the installed tree uses and the values born since the base: they must be the
// same. Baton holder; nothing was installed since Installed.
func (p *Pages) CheckSpace(used map[logstore.Addr]bool) []error {
	born, err := p.bornPages()
	if err != nil {
		return []error{err}
	}
	return p.store.CheckLive(func(a logstore.Addr) (must, may bool) { return used[a], used[a] || born[a] })
}

// bornPages returns the pages of values that entered the log after the base: they live whether or not they are still in the tree.
func (p *Pages) bornPages() (map[logstore.Addr]bool, error) {
	pages := map[logstore.Addr]bool{}
	for _, b := range p.births {
		payload, err := p.store.Run(b.addr)
		if err != nil {
			return nil, err
		}
		for i := range uint64(logstore.RunPages(int64(len(payload)))) {
			pages[b.addr+i] = true
		}
		extents, err := p.store.ListAt(b.addr)
		if err != nil {
			return nil, err
		}
		for _, x := range extents {
			for i := range uint64(x.Pages()) {
				pages[x.Addr+i] = true
			}
		}
	}
	return pages, nil
}
