package override

import (
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// names is the translation table, and what the store knows of it: which pages have another image than the one at the address that is their name,
// and which segments the names lie in.
type names struct {
	store  *logstore.Store
	table  *table        // read by anyone
	memory *btree.Memory // of versions
	seq    uint64        // of the newest batch
}

// Seq returns the Seq of the newest batch begun. Token held.
func (p *names) Seq() uint64 { return p.seq }

// lookup returns the entry of a name, or nil. The overridden bit spares most addresses the search.
func (p *names) lookup(id logstore.PageID) *entry {
	if logstore.IsAddr(id) && !p.store.Overridden(id) {
		return nil
	}
	return p.table.find(id)
}

// named reports whether a page is found through the table.
func (p *names) named(id logstore.PageID) bool { return !logstore.IsAddr(id) || p.store.Overridden(id) }

// enter makes an entry for a name. An address gets its own page as the version that always was there.
func (p *names) enter(id logstore.PageID) *entry {
	e, first := newEntry(id)
	if logstore.IsAddr(id) {
		first.kind, first.addr = atAddress, id
		first.seq = p.store.Birth(id) // nobody below it knows the page by this name
	}
	p.attach(e)
	return e
}

// claim is enter for a page that the newest tree changes. The page's place lives, for as long as the tree has it by this name. If not, the
// file is damaged: two parents name the page, and by the way of the other one it got another name, or left the tree. The place may then be
// used again while versions have cells in the image there, so nothing is written any more.
func (p *names) claim(id logstore.PageID) *entry {
	if logstore.IsAddr(id) && !p.store.IsLive(id) {
		p.store.Fail(fmt.Errorf("%w: %s: page %#x has two parents", logstore.ErrCorrupt, p.store.Path(), id))
	}
	return p.enter(id)
}

// attach puts an entry into the table. The overridden bit comes last, so that whoever sees it finds the entry.
func (p *names) attach(e *entry) {
	p.table.insert(e)
	p.store.AddName(e.id)
	if logstore.IsAddr(e.id) {
		p.store.SetOverridden(e.id, true)
	}
}

// detach takes an entry out of the table: no reader can come by its name any more.
func (p *names) detach(e *entry) {
	p.table.remove(e)
	if logstore.IsAddr(e.id) {
		p.store.SetOverridden(e.id, false)
	}
	p.store.DropName(e.id)
}

// owner returns the name that the table has for the tree page at a, which bears the given one. Token held.
func (p *names) owner(a logstore.Addr, bears logstore.PageID) logstore.PageID {
	if e := p.table.find(bears); e != nil && e.disk == a {
		return bears
	}
	return a
}

// TableEntries returns how many names the translation table has. Anyone may call it.
func (p *names) TableEntries() int64 { return p.table.count.Load() }

func (p *names) unknown(id logstore.PageID) error {
	return fmt.Errorf("%w: %s: no page has the name %#x", logstore.ErrCorrupt, p.store.Path(), id)
}
