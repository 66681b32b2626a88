package override

import (
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
)

// Root is the reserved name of the default tree's root. Root names have the two highest bits set; the other
// bits are the tree's id.
const Root logstore.PageID = logstore.BornBit | 1<<62 | defaultTree

const (
	defaultTree = 1         // id 0 is reserved for the catalogue of named trees
	maxBorn     = 1<<62 - 1 // limit of the counter of born names
)

// Pages holds the pages of a database. It consists of parts with their own state; each part knows only the
// parts before it. A field belongs to the token holder unless its comment names other readers.
type Pages struct {
	names     // the translation table
	images    // reading of pages
	installed // what recovery would find without redo
	pending   // what the next flush has to list
	limbo     // superseded versions and entries that a reader may still use

	batch    Batch         // the one Batch, reused
	born     atomic.Uint64 // counter of born names; also read by the encoder of a checkpoint
	dirty    dirtyPages
	flush    *Flush // in flight
	frozen   bool   // a checkpoint reads the table: no page group is legal
	payload  payload
	unplaced atomic.Int64 // pages that the flush in flight writes for the first time and that are not installed yet; any goroutine may read it

	folds, flushes, parts, writtenEarly atomic.Uint64
}

func newPages(store *logstore.Store, registry *lockfree.Registry, memory *btree.Memory, expected int) *Pages {
	p := &Pages{names: names{store: store, table: newTable(expected), memory: memory}, dirty: newDirtyPages()}
	p.images.names, p.installed.names, p.pending.names = &p.names, &p.names, &p.names
	p.limbo.images, p.limbo.registry = &p.images, registry
	p.batch.p = p
	return p
}

// Stats describes the table and the flushes.
type Stats struct {
	TableEntries int64
	Flushes      uint64
	Parts        uint64 // flushes among these that left leaves behind
	Folds        uint64
	Early        uint64 // pages written before their batch was complete
}

// Stats returns the present counts. Any goroutine may call it.
func (p *Pages) Stats() Stats {
	return Stats{
		TableEntries: p.table.count.Load(), Flushes: p.flushes.Load(), Parts: p.parts.Load(), Folds: p.folds.Load(), Early: p.writtenEarly.Load(),
	}
}

// DirtyPages returns how many pages are dirty. Token held.
func (p *Pages) DirtyPages() int { return p.dirty.len() }

// MustPages returns how many dirty pages the next flush has to write. Token held.
func (p *Pages) MustPages() int64 { return int64(p.dirty.musts) }

// GrownPages returns how many dirty pages are in families: such a page may be left behind only with its whole
// family. Token held.
func (p *Pages) GrownPages() int64 { return int64(p.dirty.grown) }

// BornPages returns how many dirty pages are new since the last flush and take no other page's place. Token held.
func (p *Pages) BornPages() int64 { return int64(p.dirty.born) }

// Obliged returns how often, since the start, a page has become one that the next flush has to write. Token
// held.
func (p *Pages) Obliged() int64 { return p.dirty.asked }

// DirtyBytes returns roughly the bytes that a flush of all dirty pages would write: one page each. Token held.
func (p *Pages) DirtyBytes() int64 { return int64(p.dirty.len()-p.listed) * logstore.PageSize }

// MemoryBytes returns the bytes held by versions in memory. Token held.
func (p *Pages) MemoryBytes() int64 { return p.memory.Held() }

// BookBytes returns roughly the bytes of Go heap, in addition to MemoryBytes, for pages that are dirty or being
// flushed and for what is in limbo. The sum is doubled, because the garbage collector lets the heap grow to
// twice what is in use. Token held.
func (p *Pages) BookBytes() int64 {
	dirty := p.dirty.len()
	if p.flush != nil {
		dirty += len(p.flush.work)
	}
	return 2 * int64(dirty*dirtyPageBytes+p.limbo.size()*remnantBytes)
}

const (
	dirtyPageBytes = 448 // bytes: entries and versions, often under an old and a new name, and their slots in lists
	remnantBytes   = 72
)

// Freeze keeps the installed state unchanged until Thaw, while a checkpoint reads it: no batch may become a page group,
// and the caller starts no flush. No flush is in flight. Token held.
func (p *Pages) Freeze() {
	if p.flush != nil {
		panic("override: pages frozen during a flush")
	}
	p.frozen = true
}

// Thaw ends Freeze. Token held.
func (p *Pages) Thaw() { p.frozen = false }

// Close frees the memory of all versions. The caller makes sure that no reader is left.
func (p *Pages) Close() { p.memory.Close() }

// Unwritten returns an upper bound of the pages that a flush of all dirty pages would write, without those that
// the flush in flight has still to write. Token held.
func (p *Pages) Unwritten() int64 {
	n := int64(p.dirty.len() - p.listed)
	if n > 0 || p.flush != nil || p.streamBytes() > 0 {
		n += p.StreamPages()
	}
	return n
}

// InFlight returns an upper bound of the pages that the flush in flight has still to write. Token held; a merge
// may be in progress.
func (p *Pages) InFlight() int64 {
	if p.flush == nil {
		return 0
	}
	return p.flush.Pages()
}

// Unplaced returns how many pages the flush in flight writes for the first time: these are not counted as dirty
// any more, and not yet as live, and a commit may change them again. Any goroutine may call it.
func (p *Pages) Unplaced() int64 { return p.unplaced.Load() }
