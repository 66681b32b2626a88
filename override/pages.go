package override

import (
	"fmt"
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// Root is the reserved name of the default tree's root. Root names have the two highest bits set and hold the tree's id.
const Root logstore.PageID = logstore.BornBit | 1<<62 | defaultTree

const defaultTree = 1 // id 0 is kept for the catalogue of named trees

// death is a value that left the tree at seq; the flush whose base covers seq kills its pages.
type death struct {
	seq uint64
	ref btree.Ref
}

// birth is a run, or a large value's list, that entered the log after the base.
type birth struct {
	group uint64
	addr  logstore.Addr
}

// Pages are the pages of a database. Fields without a comment about readers belong to the baton holder.
type Pages struct {
	store    *logstore.Store
	table    *table // read by anyone
	memory   *btree.Memory
	registry *lockfree.Registry
	batch    Batch // reused

	seq     uint64   // of the newest batch
	born    uint64   // counter of born names
	epoch   uint64   // of flushes: pages made dirty since the last one started have this epoch
	dirty   []*entry // of this epoch
	retired []retirement
	deaths  []death
	births  []birth
	limbo   limbo
	flush   *Flush // in flight
	frozen  bool   // a checkpoint or a check reads the table: no page groups

	base        uint64 // group: redo starts behind it
	baseRecords int64  // records in the tree as of the base

	folds, flushes atomic.Uint64
}

// retirement is a name folded away at seq, on the way out of the table.
type retirement struct {
	seq   uint64
	entry *entry
	addr  logstore.Addr
}

func newPages(store *logstore.Store, registry *lockfree.Registry, expected int) *Pages {
	p := &Pages{store: store, table: newTable(expected), memory: btree.NewMemory(), registry: registry, epoch: 2}
	p.batch.p = p
	return p
}

// enter makes an entry for a name. An address gets its own page as the version that always was there.
func (p *Pages) enter(id logstore.PageID) *entry {
	e := &entry{id: id}
	if logstore.IsAddr(id) {
		e.head.Store(&version{kind: atAddress, addr: id})
	}
	p.attach(e)
	return e
}

// attach puts an entry into the table. The overridden bit comes last, so that whoever sees it finds the entry.
func (p *Pages) attach(e *entry) {
	p.table.insert(e)
	if logstore.IsAddr(e.id) {
		p.store.AddName(e.id)
		p.store.SetOverridden(e.id, true)
	}
}

// detach takes an entry out of the table: no reader can come by its name any more.
func (p *Pages) detach(e *entry) {
	p.table.remove(e)
	if logstore.IsAddr(e.id) {
		p.store.SetOverridden(e.id, false)
		p.store.DropName(e.id)
	}
}

// isDirty reports whether the newest version of a page is not on its way to the log's installed state.
func (p *Pages) isDirty(e *entry) bool {
	return e.epoch == p.epoch || (p.flush != nil && e.epoch == p.epoch-1)
}

func (p *Pages) markDirty(e *entry) {
	if e.epoch != p.epoch {
		e.epoch = p.epoch
		p.dirty = append(p.dirty, e)
	}
}

// node returns the image that a version stands for. A page reached through the table bears its name.
func (p *Pages) node(e *entry, v *version) (btree.Node, error) {
	switch {
	case v == nil:
		return btree.Node{}, p.unknown(e.id)
	case v.kind == inMemory:
		return v.node, nil
	case v.kind != atAddress:
		return btree.Node{}, p.unknown(e.id)
	}
	image, err := p.store.Page(v.addr)
	if err != nil {
		return btree.Node{}, err
	}
	if name := logstore.PageName(image); name != e.id && v.addr != e.id {
		return btree.Node{}, &logstore.PageError{Path: p.store.Path(), Addr: v.addr, What: fmt.Sprintf("bears the name %#x instead of %#x", name, e.id)}
	}
	return btree.View(image), nil
}

func (p *Pages) unknown(id logstore.PageID) error {
	return fmt.Errorf("%w: %s: no page has the name %#x", logstore.ErrCorrupt, p.store.Path(), id)
}

// nodeAt returns the image of a page for a reader at seq. Any goroutine; no lock, no allocation.
func (p *Pages) nodeAt(id logstore.PageID, seq uint64) (btree.Node, error) {
	if logstore.IsAddr(id) && !p.store.Overridden(id) {
		image, err := p.store.Page(id)
		if err != nil {
			return btree.Node{}, err
		}
		return btree.View(image), nil
	}
	e := p.table.find(id)
	if e == nil {
		if !logstore.IsAddr(id) {
			return btree.Node{}, p.unknown(id)
		}
		image, err := p.store.Page(id) // the entry left the table since the bit was read
		if err != nil {
			return btree.Node{}, err
		}
		return btree.View(image), nil
	}
	return p.node(e, e.at(seq))
}

// addrAt returns where the value with the given name lies for a reader at seq.
func (p *Pages) addrAt(id logstore.PageID, seq uint64) (logstore.Addr, error) {
	if logstore.IsAddr(id) && !p.store.Overridden(id) {
		return id, nil
	}
	e := p.table.find(id)
	switch {
	case e == nil && logstore.IsAddr(id):
		return id, nil
	case e == nil:
		return 0, p.unknown(id)
	}
	if v := e.at(seq); v != nil && v.kind == atAddress {
		return v.addr, nil
	}
	return 0, p.unknown(id)
}

// runAt returns the payload of the run with the given name.
func (p *Pages) runAt(id logstore.PageID, seq uint64) ([]byte, error) {
	a, err := p.addrAt(id, seq)
	if err != nil {
		return nil, err
	}
	return p.store.Run(a)
}

// Stats describes the table and what waits to be written.
type Stats struct {
	TableEntries int64
	DirtyPages   int
	MemoryBytes  int64
	Flushes      uint64
	Folds        uint64
}

// Stats returns the present counts. Baton holder.
func (p *Pages) Stats() Stats {
	return Stats{
		TableEntries: p.table.count.Load(), DirtyPages: len(p.dirty), MemoryBytes: p.memory.Held(),
		Flushes: p.flushes.Load(), Folds: p.folds.Load(),
	}
}

// Base returns the group behind which redo starts.
func (p *Pages) Base() uint64 { return p.base }

// DirtyBytes returns what a flush would write, roughly: a page for each dirty page.
func (p *Pages) DirtyBytes() int64 { return int64(len(p.dirty)) * logstore.PageSize }

// MemoryBytes returns the bytes held by versions in memory.
func (p *Pages) MemoryBytes() int64 { return p.memory.Held() }

// Freeze keeps the installed state as it is until Thaw: no page group is written, and the caller starts no flush. Baton holder.
func (p *Pages) Freeze() { p.frozen = true }

// Thaw ends Freeze.
func (p *Pages) Thaw() { p.frozen = false }

// Close frees the memory of all versions. No reader is left.
func (p *Pages) Close() { p.memory.Close() }

// Seq returns the Seq of the newest batch begun.
func (p *Pages) Seq() uint64 { return p.seq }

// Unwritten bounds the pages that the flush in flight and the next one have still to write.
func (p *Pages) Unwritten() int64 {
	n := int64(len(p.dirty))
	if p.flush != nil {
		n += p.flush.Pages()
	}
	if stream := len(p.retired)*retiredSize + len(p.deaths)*deathSize; n > 0 || stream > 0 {
		n += int64(flushFixed+stream)/logstore.BodySize + 1
	}
	return n
}

// pagesOf returns the pages of a value that is not in its leaf: those of its run, and of the extents that it lists.
func (p *Pages) pagesOf(ref btree.Ref) ([]Extent, error) {
	a, err := p.addrAt(ref.ID, p.seq)
	if err != nil {
		return nil, err
	}
	ref.ID = a
	return p.pagesAt(ref)
}

// pagesAt is pagesOf for a reference whose name is the run's address.
func (p *Pages) pagesAt(ref btree.Ref) ([]Extent, error) {
	a := ref.ID
	payload, err := p.store.Run(a)
	if err != nil {
		return nil, err
	}
	pages := []Extent{{a, logstore.RunPages(int64(len(payload)))}}
	if ref.Kind != btree.Extents {
		return pages, nil
	}
	extents, err := logstore.GetExtents(payload)
	if err != nil {
		return nil, err
	}
	for _, x := range extents {
		if !p.store.InFile(x.Addr, x.Pages()) {
			return nil, p.badRun(ref)
		}
		pages = append(pages, Extent{x.Addr, x.Pages()})
	}
	return pages, nil
}
