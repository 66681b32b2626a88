package override

import (
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// Recover rebuilds the pages from the newest checkpoint and the accepted groups after it. The caller then
// applies redo: the record groups after RedoStart, in order. records is the number of records in the installed
// tree. memory holds the nodes of all versions: the caller closes it if Recover fails, otherwise Pages.Close
// does.
func Recover(store *logstore.Store, rec *logstore.Recovery, registry *lockfree.Registry, memory *btree.Memory) (
	p *Pages, records int64, err error) {
	p = newPages(store, registry, memory, len(rec.Table)/tableEntry)
	if err := p.recoverTable(rec.Table); err != nil {
		return nil, 0, err
	}
	in := installer{Pages: p, tableBase: p.base, parts: map[uint64][]logstore.ScannedPage{}}
	for i := range rec.Groups {
		if _, err := in.group(&rec.Groups[i]); err != nil {
			return nil, 0, err
		}
	}
	if err := p.checkNames(store.BehindEnd()); err != nil {
		return nil, 0, err
	}
	p.dirty.began(p.redo)
	store.RebaseRecovered(rec, p.redo)
	if store.Beside() {
		p.startFollowing(in)
	}
	return p, p.baseRecords, nil
}

// recoverTable takes in the translation table of a checkpoint.
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

// checkNames makes sure that the tree has a root and that no name will be given twice. A born name in the table
// must not be above the counter, and an address in the table must not be that of a page that the log has yet to
// write: a page from from up to but excluding end.
func (p *Pages) checkNames(from, end logstore.Addr) (err error) {
	if p.table.find(Root) == nil {
		return fmt.Errorf("%w: %s: the tree has no root", logstore.ErrCorrupt, p.store.Path())
	}
	born := p.born.Load()
	p.table.all(func(l *link) {
		switch addr := logstore.IsAddr(l.id); {
		case !addr && l.id != Root && l.id&^logstore.BornBit > born:
			err = fmt.Errorf("%w: %s: name %#x is beyond the counter of names, %d", logstore.ErrCorrupt, p.store.Path(), l.id, born)
		case addr && l.id >= from && l.id < end:
			err = fmt.Errorf("%w: %s: the table has the name %d of a page that the log has yet to write", logstore.ErrCorrupt, p.store.Path(), l.id)
		}
	})
	return err
}

// Create makes the pages of a new database: an empty leaf as the root, written in its own page group. On a
// read-only store the leaf stays in memory. The caller closes memory if Create fails, otherwise Pages.Close
// does.
func Create(store *logstore.Store, registry *lockfree.Registry, memory *btree.Memory, readOnly bool) (*Pages, error) {
	p := newPages(store, registry, memory, 0)
	e, first := newEntry(Root)
	empty := btree.EmptyLeaf(p.memory)
	first.kind, first.node = inMemory, empty
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
	e.show(&version{kind: atAddress, addr: a})
	empty.Release(p.memory)
	p.install(e, a, 0)
	p.rebase(no, p.dirty.began(no), 0)
	return p, nil
}
