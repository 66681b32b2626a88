package override

import (
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// Recover rebuilds the pages from the newest checkpoint and the accepted groups behind it: complete flushes and page groups are
// installed in order, births marked from every group behind the checkpoint's base, deaths taken from the flush that lists them. What is
// left to do is redo: the record groups after RedoStart, in order. records is the number of records as of the base. The memory is
// that of all versions: the caller closes it if Recover fails, else it is closed with the pages.
func Recover(store *logstore.Store, rec *logstore.Recovery, registry *lockfree.Registry, memory *btree.Memory) (
	p *Pages, records int64, err error) {
	p = newPages(store, registry, memory, len(rec.Table)/tableEntry)
	if err := p.recoverTable(rec.Table); err != nil {
		return nil, 0, err
	}
	tableBase := p.base
	parts := map[uint64][]logstore.ScannedPage{} // tree pages of flushes, by the group of the first part
	for i := range rec.Groups {
		if err := p.recoverGroup(&rec.Groups[i], tableBase, parts); err != nil {
			return nil, 0, err
		}
	}
	if err := p.checkNames(store.BehindEnd()); err != nil {
		return nil, 0, err
	}
	p.forgetBirths()
	p.dirty.began(p.redo)
	store.RebaseRecovered(rec, p.redo)
	if store.Beside() {
		p.startFollowing(tableBase, parts)
	}
	return p, p.baseRecords, nil
}

// recoverTable takes in the table of a checkpoint.
func (p *Pages) recoverTable(table []byte) error {
	r := &reader{b: table}
	head, err := getTableHead(r)
	if err != nil {
		return fmt.Errorf("%s: %w", p.store.Path(), err)
	}
	p.base, p.redo, p.baseRecords = head.base, head.redo, head.records
	p.born.Store(head.born)
	for range head.entries {
		id, a := r.u64(), r.u64()
		if err := p.recoverEntry(id, a); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pages) recoverEntry(id logstore.PageID, a logstore.Addr) error {
	end := p.store.End()
	if a == 0 || a >= end || a == id || (logstore.IsAddr(id) && (id == 0 || id >= end)) || p.table.find(id) != nil {
		return fmt.Errorf("%w: %s: entry %#x -> %d of the translation table", logstore.ErrCorrupt, p.store.Path(), id, a)
	}
	e, first := newEntry(id)
	e.disk, first.kind, first.addr = a, atAddress, a
	p.attach(e)
	return nil
}

func (p *Pages) recoverGroup(g *logstore.ScannedGroup, tableBase uint64, parts map[uint64][]logstore.ScannedPage) error {
	switch g.Kind {
	case logstore.RecordGroup, logstore.PageGroup:
		if g.No <= tableBase { // the checkpoint's space map knows what became of the values since
			return nil
		}
		if err := p.recoverBirths(g); err != nil {
			return err
		}
		if g.Kind == logstore.PageGroup {
			if err := p.recoverPages(g.Pages); err != nil {
				return err
			}
			p.base, p.redo, p.baseRecords = g.No, g.No, int64(g.Count)
		}
	case logstore.FlushGroup:
		stream, err := p.flushStream(g)
		if err != nil {
			return err
		}
		if stream == nil {
			parts[g.Count] = append(parts[g.Count], g.Pages...)
			return nil
		}
		return p.recoverFlush(g, stream, tableBase, parts)
	}
	return nil
}

// recoverBirths marks the values that a group carries, whatever became of them later.
func (p *Pages) recoverBirths(g *logstore.ScannedGroup) error {
	for _, page := range g.Pages {
		if page.Kind == logstore.KindRecord && page.Values > 0 {
			p.BornLogged(g.No, page.Addr, int(page.Run), uint16(1<<page.Values-1), 0, 0)
		}
		if page.Kind != logstore.KindRun {
			continue
		}
		p.store.MarkLive(page.Addr, page.Run, 0)
		p.births = append(p.births, birth{group: g.No, addr: page.Addr})
		extents, err := p.store.ListAt(page.Addr)
		if err != nil {
			return err
		}
		if err := p.store.NoteListed(extents, g.No); err != nil {
			return err
		}
	}
	return nil
}

// recoverPages installs tree pages.
func (p *Pages) recoverPages(pages []logstore.ScannedPage) error {
	for _, page := range pages {
		if page.Kind != logstore.KindTree {
			continue
		}
		if page.Name == page.Addr { // built: see Build
			p.store.MarkNode(page.Addr, 0)
			continue
		}
		if logstore.IsAddr(page.Name) && !p.store.InFile(page.Name, 1) {
			return fmt.Errorf("%w: %s: page %d bears the name %d", logstore.ErrCorrupt, p.store.Path(), page.Addr, page.Name)
		}
		e := p.table.find(page.Name)
		if e == nil {
			var first *version
			e, first = newEntry(page.Name)
			first.kind, first.addr = atAddress, page.Addr
			p.attach(e)
		} else {
			e.head.Store(&version{kind: atAddress, addr: page.Addr})
		}
		p.install(e, page.Addr, 0)
	}
	return nil
}

// recoverRuns marks the values that the flush in a group has brought with a tree that was built.
func (p *Pages) recoverRuns(group uint64, pages []logstore.ScannedPage) error {
	for _, page := range pages {
		if page.Kind != logstore.KindRun {
			continue
		}
		p.store.MarkLive(page.Addr, page.Run, 0)
		extents, err := p.store.ListAt(page.Addr)
		if err != nil {
			return err
		}
		if err := p.store.NoteListed(extents, group); err != nil {
			return err
		}
	}
	return nil
}

// flushStream returns what ends a flush, nil for a part that does not.
func (p *Pages) flushStream(g *logstore.ScannedGroup) ([]byte, error) {
	var stream []byte
	for _, page := range g.Pages {
		if page.Kind == logstore.KindFlush {
			body, err := p.store.Body(page)
			if err != nil {
				return nil, err
			}
			stream = append(stream, body...)
		}
	}
	return stream, nil
}

// recoverFlush installs a complete flush. One whose base is not above the checkpoint's is in its table already: the checkpoint followed
// it, and any later flush has a base behind the checkpoint's own groups.
func (p *Pages) recoverFlush(g *logstore.ScannedGroup, stream []byte, tableBase uint64, parts map[uint64][]logstore.ScannedPage) error {
	end, err := getFlushEnd(stream, g.No)
	if err != nil {
		return fmt.Errorf("%s: %w", p.store.Path(), err)
	}
	if end.base <= tableBase {
		delete(parts, end.first)
		return nil
	}
	if end.redo < p.redo {
		return fmt.Errorf("%w: %s: redo goes back to group %d with the flush in group %d", logstore.ErrCorrupt, p.store.Path(), end.redo, g.No)
	}
	all := append(parts[end.first], g.Pages...)
	if err := p.recoverPages(all); err != nil {
		return err
	}
	if err := p.recoverRuns(g.No, all); err != nil {
		return err
	}
	delete(parts, end.first)
	for _, r := range end.retired {
		e := p.table.find(r.id)
		if e == nil || e.disk != r.addr {
			return p.badFlush(g.No, r.id)
		}
		p.detach(e)
	}
	for _, id := range end.removed {
		if e := p.table.find(id); e != nil {
			p.store.KillNode(e.place(), 0)
			p.detach(e)
		} else if logstore.IsAddr(id) { // else it was born and removed before any flush
			if !p.store.InFile(id, 1) {
				return p.badFlush(g.No, id)
			}
			p.store.KillNode(id, 0)
		}
	}
	if err := p.killListed(g.No, end.dying); err != nil {
		return err
	}
	p.base, p.redo, p.baseRecords = end.base, end.redo, end.records
	p.born.Store(end.born)
	return nil
}

func (p *Pages) badFlush(group uint64, id logstore.PageID) error {
	return fmt.Errorf("%w: %s: the end of a flush in group %d lists %#x", logstore.ErrCorrupt, p.store.Path(), group, id)
}

// checkNames makes sure that the tree has a root and that no name comes twice: neither from the counter, nor as the address of a page that the
// log has yet to write, which are those from one up to another.
func (p *Pages) checkNames(from, end logstore.Addr) (err error) {
	if p.table.find(Root) == nil {
		return fmt.Errorf("%w: %s: the tree has no root", logstore.ErrCorrupt, p.store.Path())
	}
	born := p.born.Load()
	p.table.all(func(e *entry) {
		switch addr := logstore.IsAddr(e.id); {
		case !addr && e.id != Root && e.id&^logstore.BornBit > born:
			err = fmt.Errorf("%w: %s: name %#x is beyond the counter of names, %d", logstore.ErrCorrupt, p.store.Path(), e.id, born)
		case addr && e.id >= from && e.id < end:
			err = fmt.Errorf("%w: %s: the table has the name %d of a page that the log has yet to write", logstore.ErrCorrupt, p.store.Path(), e.id)
		}
	})
	return err
}

// Create makes the pages of a new database: an empty leaf as the root, in a page group of its own. On a read-only store it stays in
// memory. The Memory is the caller's to close if Create fails, and else closed with the pages.
func Create(store *logstore.Store, registry *lockfree.Registry, memory *btree.Memory, readOnly bool) (*Pages, error) {
	p := newPages(store, registry, memory, 0)
	e := &entry{id: Root}
	empty := btree.EmptyLeaf(p.memory)
	v := &version{kind: inMemory, node: empty}
	e.head.Store(v)
	p.attach(e)
	if readOnly {
		return p, nil
	}
	g := store.Begin(logstore.PageGroup)
	a, body := g.Page(Root)
	empty.Encode(body, false)
	no, err := g.Commit(0)
	if err != nil {
		return nil, err
	}
	e.head.Store(&version{kind: atAddress, addr: a})
	empty.Release(p.memory)
	p.install(e, a, 0)
	p.rebase(no, p.dirty.began(no), 0)
	return p, nil
}
