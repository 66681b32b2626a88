package override

import (
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// names is the translation table with the store's notes about it: the store knows for each address whether the
// table has an entry for it (the overridden bit), and counts for each segment the names that are addresses in it.
type names struct {
	store  *logstore.Store
	table  *table        // any goroutine may read it
	memory *btree.Memory // memory that holds the nodes of versions
	seq    uint64        // Seq of the newest batch
}

// Seq returns the Seq of the newest batch begun. Token held.
func (p *names) Seq() uint64 { return p.seq }

// lookup returns the link of a name, or nil. The overridden bit spares most addresses the search of the table.
func (p *names) lookup(id logstore.PageID) *link {
	if logstore.IsAddr(id) && !p.store.Overridden(id) {
		return nil
	}
	return p.table.look(id)
}

// entry returns the entry of a name, or nil. Token held.
func (p *names) entry(id logstore.PageID) *entry {
	if l := p.lookup(id); l != nil {
		return l.entry
	}
	return nil
}

// named reports whether a page is found through the table, not at the address that is its name.
func (p *names) named(id logstore.PageID) bool { return !logstore.IsAddr(id) || p.store.Overridden(id) }

// enter adds an entry for a name. If the name is an address, the entry's first version is the page at that
// address.
func (p *names) enter(id logstore.PageID) *entry {
	e, first := newEntry(id)
	if logstore.IsAddr(id) {
		first.kind, first.addr = atAddress, id
		first.seq = p.store.Birth(id) // readers below this Seq do not know the page by this name
	}
	p.attach(e)
	return e
}

// claim is enter for a page that is about to change in the newest tree. The place of such a page is live as
// long as the tree has the page by this name. If the place is dead, the file is damaged: two parents name the
// page, and a change by way of the other parent renamed or removed it. The dead place may be reused while
// versions still have cells in the image there, so claim poisons the store.
func (p *names) claim(id logstore.PageID) *entry {
	if logstore.IsAddr(id) && !p.store.IsLive(id) {
		p.store.Fail(fmt.Errorf("%w: %s: page %#x has two parents", logstore.ErrCorrupt, p.store.Path(), id))
	}
	return p.enter(id)
}

// attach puts an entry into the table. The overridden bit is set last, so that a reader that sees the bit finds
// the entry.
func (p *names) attach(e *entry) {
	p.table.insert(e)
	p.store.AddName(e.id)
	if logstore.IsAddr(e.id) {
		p.store.SetOverridden(e.id, true)
	}
}

// detach takes an entry out of the table. The caller knows that no reader can come by its name any more.
func (p *names) detach(e *entry) {
	p.table.remove(e)
	if logstore.IsAddr(e.id) {
		p.store.SetOverridden(e.id, false)
	}
	p.store.DropName(e.id)
}

// owner returns the name by which the table knows the tree page at a. bears is the name in the page's mux area:
// the page is known by it if the table maps it to a, else by its own address. Token held.
func (p *names) owner(a logstore.Addr, bears logstore.PageID) logstore.PageID {
	if e := p.table.find(bears); e != nil && e.disk == a {
		return bears
	}
	return a
}

// TableEntries returns the number of entries in the translation table. Any goroutine may call it.
func (p *names) TableEntries() int64 { return p.table.count.Load() }

func (p *names) unknown(id logstore.PageID) error {
	return fmt.Errorf("%w: %s: no page has the name %#x", logstore.ErrCorrupt, p.store.Path(), id)
}
