package override

import (
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// Root is the reserved name of the default tree's root. Root names have the two highest bits set and hold the tree's id.
const Root logstore.PageID = logstore.BornBit | 1<<62 | defaultTree

const (
	defaultTree = 1         // id 0 is kept for the catalogue of named trees
	maxBorn     = 1<<62 - 1 // greatest value of the counter of born names
)

// Pages are the pages of a database. Fields without a comment about readers belong to the baton holder.
type Pages struct {
	store    *logstore.Store
	table    *table // read by anyone
	memory   *btree.Memory
	registry *lockfree.Registry
	batch    Batch // reused

	seq     uint64        // of the newest batch
	born    atomic.Uint64 // counter of born names; also read by the encoder of a checkpoint
	epoch   uint64        // of flushes: pages made dirty since the last one started have this epoch
	dirty   []*entry      // of this epoch
	retired []retirement  // names folded away since the last flush started
	deaths  deaths        // values that left the tree since then
	renamed int           // of dirty: old names, whose pages are dirty under new ones
	doomed  int64         // pages of those, and removed from the tree
	births  []birth       // values that entered the log after the base
	limbo   limbo
	flush   *Flush // in flight
	frozen  bool   // a checkpoint or a check reads the table: no page groups

	base        uint64 // group: redo starts behind it
	baseRecords int64  // records in the tree as of the base

	folds, flushes, writtenEarly atomic.Uint64

	follow *following // of pages that another process writes; nil else
}

// retirement is a name folded away, on the way out of the table.
type retirement struct {
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
	e, first := newEntry(id)
	if logstore.IsAddr(id) {
		first.kind, first.addr = atAddress, id
	}
	p.attach(e)
	return e
}

// attach puts an entry into the table. The overridden bit comes last, so that whoever sees it finds the entry.
func (p *Pages) attach(e *entry) {
	p.table.insert(e)
	p.store.AddName(e.id)
	if logstore.IsAddr(e.id) {
		p.store.SetOverridden(e.id, true)
	}
}

// detach takes an entry out of the table: no reader can come by its name any more.
func (p *Pages) detach(e *entry) {
	p.table.remove(e)
	if logstore.IsAddr(e.id) {
		p.store.SetOverridden(e.id, false)
	}
	p.store.DropName(e.id)
}

// markDirty puts a page on the list for the next flush.
func (p *Pages) markDirty(e *entry) {
	if e.epoch != p.epoch {
		e.epoch = p.epoch
		p.dirty = append(p.dirty, e)
	}
}

// Stats describes the table and what waits to be written.
type Stats struct {
	TableEntries int64
	DirtyPages   int
	MemoryBytes  int64
	Flushes      uint64
	Folds        uint64
	Early        uint64 // pages written before their batch was whole
}

// Stats returns the present counts. Baton holder.
func (p *Pages) Stats() Stats {
	return Stats{
		TableEntries: p.table.count.Load(), DirtyPages: len(p.dirty), MemoryBytes: p.memory.Held(),
		Flushes: p.flushes.Load(), Folds: p.folds.Load(), Early: p.writtenEarly.Load(),
	}
}

// Base returns the group behind which redo starts. Baton holder.
func (p *Pages) Base() uint64 { return p.base }

// Dying returns how many pages the next flush will let die beside those that it replaces, roughly. Baton holder.
func (p *Pages) Dying() int64 { return p.doomed }

// DirtyBytes returns what the next flush would write, roughly: a page for each dirty page. Baton holder.
func (p *Pages) DirtyBytes() int64 { return int64(len(p.dirty)-p.renamed) * logstore.PageSize }

// MemoryBytes returns the bytes held by versions in memory. Baton holder.
func (p *Pages) MemoryBytes() int64 { return p.memory.Held() }

// Freeze keeps the installed state as it is until Thaw: no page group is legal, and the caller starts no flush. No flush is in flight.
// Baton holder.
func (p *Pages) Freeze() {
	if p.flush != nil {
		panic("override: pages frozen during a flush")
	}
	p.frozen = true
}

// Thaw ends Freeze. Baton holder.
func (p *Pages) Thaw() { p.frozen = false }

// Close frees the memory of all versions. No reader is left.
func (p *Pages) Close() { p.memory.Close() }

// Seq returns the Seq of the newest batch begun. Baton holder.
func (p *Pages) Seq() uint64 { return p.seq }

// Unwritten bounds the pages that the flush in flight and the next one have still to write.
func (p *Pages) Unwritten() int64 {
	n := int64(len(p.dirty) - p.renamed)
	if p.flush != nil {
		n += p.flush.Pages()
	}
	if stream := len(p.retired)*retiredSize + p.renamed*8 + p.deaths.entries*deathSize; n > 0 || stream > 0 {
		n += int64(flushFixed+stream)/logstore.BodySize + 1
	}
	return n
}
