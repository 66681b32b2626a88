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

// Pages are the pages of a database. They consist of parts with state of their own, each of which knows only those before it. Fields without a
// comment about readers belong to the token holder.
type Pages struct {
	names     // which name leads where
	images    // how pages are read
	installed // what recovery would find
	pending   // what the next flush will list
	limbo     // what nobody finds any more and somebody may still look at

	batch    Batch         // reused
	born     atomic.Uint64 // counter of born names; also read by the encoder of a checkpoint
	dirty    dirtyPages
	flush    *Flush // in flight
	frozen   bool   // a checkpoint reads the table: no page groups
	payload  payload
	unplaced atomic.Int64 // pages that the flush in flight writes for the first time and that have no place yet; read by anyone

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

// MustPages returns how many of the dirty pages no flush may leave behind. Token held.
func (p *Pages) MustPages() int64 { return int64(p.dirty.musts) }

// GrownPages returns how many dirty pages may be left behind with their families only. Token held.
func (p *Pages) GrownPages() int64 { return int64(p.dirty.grown) }

// Obliged counts the pages that have become such since the start. Token held.
func (p *Pages) Obliged() int64 { return p.dirty.asked }

// DirtyBytes returns what a flush of all would write, roughly: a page for each dirty page. Token held.
func (p *Pages) DirtyBytes() int64 { return int64(p.dirty.len()-p.listed) * logstore.PageSize }

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

// Unwritten bounds the pages that a flush of all that is dirty would write, beside what the flush in flight has still to write. Token held.
func (p *Pages) Unwritten() int64 {
	n := int64(p.dirty.len() - p.listed)
	if n > 0 || p.flush != nil || p.streamBytes() > 0 {
		n += p.StreamPages()
	}
	return n
}

// InFlight bounds the pages that the flush in flight has still to write. Token held; a merge may be under way.
func (p *Pages) InFlight() int64 {
	if p.flush == nil {
		return 0
	}
	return p.flush.Pages()
}

// Unplaced returns how many pages the flush in flight writes for the first time: they are not dirty any more and do not live yet, and a
// commit may change them. Anyone may call it.
func (p *Pages) Unplaced() int64 { return p.unplaced.Load() }
