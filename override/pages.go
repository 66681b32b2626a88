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

const (
	defaultTree = 1         // id 0 is kept for the catalogue of named trees
	maxBorn     = 1<<62 - 1 // greatest value of the counter of born names
)

// Pages are the pages of a database. Fields without a comment about readers belong to the token holder.
type Pages struct {
	store    *logstore.Store
	table    *table // read by anyone
	memory   *btree.Memory
	registry *lockfree.Registry
	batch    Batch // reused

	seq     uint64        // of the newest batch
	born    atomic.Uint64 // counter of born names; also read by the encoder of a checkpoint
	dirty   dirtyPages
	retired []retirement // names folded away since the last flush started
	deaths  deaths       // values that left the tree since then
	renamed int          // of dirty: old names, whose pages are dirty under new ones
	doomed  int64        // pages of those, and removed from the tree
	births  []birth      // values that entered the log after the base
	limbo   limbo
	flush   *Flush // in flight
	frozen  bool   // a checkpoint reads the table: no page groups
	checks  []*Installed

	base        uint64 // group: the installed tree is as of it, but for records behind redo
	redo        uint64 // group, not above base: redo starts behind it
	baseRecords int64  // records in the tree as of the base

	payload payload

	unplaced atomic.Int64 // pages that the flush in flight writes for the first time and that have no place yet; read by anyone

	folds, flushes, parts, writtenEarly atomic.Uint64

	follow *following // of pages that another process writes; nil else
}

// retirement is a name folded away, on the way out of the table.
type retirement struct {
	entry *entry
	addr  logstore.Addr
}

func newPages(store *logstore.Store, registry *lockfree.Registry, memory *btree.Memory, expected int) *Pages {
	p := &Pages{store: store, table: newTable(expected), memory: memory, registry: registry, dirty: newDirtyPages()}
	p.batch.p = p
	return p
}

// enter makes an entry for a name. An address gets its own page as the version that always was there.
func (p *Pages) enter(id logstore.PageID) *entry {
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
func (p *Pages) claim(id logstore.PageID) *entry {
	if logstore.IsAddr(id) && !p.store.IsLive(id) {
		p.store.Fail(fmt.Errorf("%w: %s: page %#x has two parents", logstore.ErrCorrupt, p.store.Path(), id))
	}
	return p.enter(id)
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

// Stats describes the table and the flushes.
type Stats struct {
	TableEntries int64
	Flushes      uint64
	Parts        uint64 // of them, those that left leaves behind
	Folds        uint64
	Early        uint64 // pages written before their batch was whole
}

// Stats returns the present counts. Any goroutine may call it.
func (p *Pages) Stats() Stats {
	return Stats{
		TableEntries: p.table.count.Load(), Flushes: p.flushes.Load(), Parts: p.parts.Load(), Folds: p.folds.Load(), Early: p.writtenEarly.Load(),
	}
}

// DirtyPages returns how many pages are dirty. Token held.
func (p *Pages) DirtyPages() int { return p.dirty.len() }

// TableEntries returns how many names the translation table has. Anyone may call it.
func (p *Pages) TableEntries() int64 { return p.table.count.Load() }

// Base returns the group that the newest flush or page group is the tree of. Token held.
func (p *Pages) Base() uint64 { return p.base }

// RedoStart returns the group behind which redo starts: the base, or one before it if leaves were left behind. Token held.
func (p *Pages) RedoStart() uint64 { return p.redo }

// MustPages returns how many of the dirty pages no flush may leave behind. Token held.
func (p *Pages) MustPages() int64 { return int64(p.dirty.musts) }

// Obliged counts the pages that have become such since the start. Token held.
func (p *Pages) Obliged() int64 { return p.dirty.asked }

// Dying returns how many pages the next flush will let die beside those that it replaces, roughly. Token held.
func (p *Pages) Dying() int64 { return p.doomed }

// DirtyBytes returns what a flush of all would write, roughly: a page for each dirty page. Token held.
func (p *Pages) DirtyBytes() int64 { return int64(p.dirty.len()-p.renamed) * logstore.PageSize }

// MemoryBytes returns the bytes held by versions in memory. Token held.
func (p *Pages) MemoryBytes() int64 { return p.memory.Held() }

// BookBytes returns roughly what the Go heap takes beside that for pages that are dirty or being flushed, and for what waits in limbo. It
// counts twice, since the collector lets as much garbage lie as there is in use. Token held.
func (p *Pages) BookBytes() int64 {
	dirty := p.dirty.len()
	if p.flush != nil {
		dirty += len(p.flush.work)
	}
	return 2 * int64(dirty*dirtyPageBytes+p.limbo.size()*remnantBytes)
}

const (
	dirtyPageBytes = 384 // entries and versions, under an old name and a new one often, and their places in lists
	remnantBytes   = 72
)

// Freeze keeps the installed state as it is until Thaw: no page group is legal, and the caller starts no flush. No flush is in flight.
// Token held.
func (p *Pages) Freeze() {
	if p.flush != nil {
		panic("override: pages frozen during a flush")
	}
	p.frozen = true
}

// Thaw ends Freeze. Token held.
func (p *Pages) Thaw() { p.frozen = false }

// Close frees the memory of all versions. No reader is left.
func (p *Pages) Close() { p.memory.Close() }

// Seq returns the Seq of the newest batch begun. Token held.
func (p *Pages) Seq() uint64 { return p.seq }

// Unwritten bounds the pages that the flush in flight and one of all that is dirty have still to write.
func (p *Pages) Unwritten() int64 {
	n := int64(p.dirty.len() - p.renamed)
	if p.flush != nil {
		n += p.flush.Pages()
	}
	if n > 0 || p.streamBytes() > 0 {
		n += p.StreamPages()
	}
	return n
}

// Unplaced returns how many pages the flush in flight writes for the first time: they are not dirty any more and do not live yet, and a
// commit may change them. Anyone may call it.
func (p *Pages) Unplaced() int64 { return p.unplaced.Load() }

// streamBytes is what the lists of the next flush take.
func (p *Pages) streamBytes() int {
	return len(p.retired)*retiredSize + p.renamed*8 + p.deaths.most(p.store.End())*deathSize
}

// StreamPages bounds the pages that the end of the next flush takes, beside those of the tree.
func (p *Pages) StreamPages() int64 { return int64(flushFixed+p.streamBytes())/logstore.BodySize + 1 }
