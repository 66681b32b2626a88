package mvcc

import (
	"sync/atomic"

	"flashdbm/internal/commit"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// pressure is how much waits to be written, and what is due because of that. Its fields except the atomic ones belong
// to the token holder.
type pressure struct {
	logParts
	tree *tree

	excess       excess
	crowd        crowd
	growth       growth
	layered      bool  // the log has layers or ranges to redo: the next flush must be of all dirty pages
	atCheckpoint int64 // bytes between the scan start and the end of the last checkpoint, mostly of its flush
}

// manySyncs is how many syncs that callers have waited for pay for two segments of zeros: each is shorter by some 90
// to 250 µs, and the zeros take a millisecond or two of the device. Smaller: programs that call Sync now and then write
// zeros for it. Larger: those that call it after each commit wait longer in the first of their segments.
const manySyncs = 16

// zeroDue reports whether segments should be zeroed ahead of the log: that helps only where syncs are waited for.
func (p *pressure) zeroDue() bool {
	return (p.opts.Durability == Durable || p.log.asked.Load() >= manySyncs) && p.store.ZeroDue()
}

// flushDue reports whether dirty pages should be written. Token held.
func (p *pressure) flushDue() bool {
	tree := p.tree.sizes()
	dirty := tree.dirty
	crowded := tree.memory >= p.opts.MemoryLimit/2 && dirty >= p.opts.MemoryLimit/worthFlushing // else readers hold the memory
	redo := p.log.bytes.Since()
	if crowded || p.redoBytes() >= p.redoLimit() || p.growthDue() || p.checkpointDue() || p.partDue(p.parts()) {
		return true
	}
	return p.opts.Durability == Durable && !p.tree.tables.merging() && p.log.recent.ops <= loneOps && !p.log.recent.stays && !p.log.recent.beside && dirty > 0 && dirty <= flushLoneBytes &&
		redo*flushRatioDen >= dirty*flushRatioNum && !(p.log.inRow() && p.pages.CanPageGroup())
}

// growthDue reports whether a flush of all is due early because waiting gains nothing: the dirty pages are new, and not
// more than the redo that made them dirty, as after the batches of a load in key order. The pages that such a flush
// writes lie after its base, and redo starts at that base until incremental flushes have written each part of the tree
// once. Until then, pages of the flush that overwrites leave dead cannot be reused. So the last flush of a load should
// be small. Token held.
func (p *pressure) growthDue() bool {
	// Not a load in key order: some of the redo is not in the tree yet.
	if t := &p.tree.tables; t.merging() || t.rest() > 0 && !t.active.Ascends() {
		return false
	}
	redo, tree := p.log.bytes.SinceBase(), p.tree.sizes()
	dirty := tree.dirty
	return p.log.recent.ops >= deferOps && redo >= p.redoLimit()/growthLimit && dirty >= redo/2 && dirty <= redo+redo/4 &&
		(tree.must+tree.grown)*logstore.PageSize >= dirty-dirty/4
}

// checkpointDue reports whether the log since the last checkpoint is long enough for another one: as long as the redo
// limit, or shorter if the flush that has to come first is cheap. So a small database does not keep a long log. Token
// held.
func (p *pressure) checkpointDue() bool {
	since := p.sinceCheckpoint()
	if since >= p.redoLimit() {
		return true
	}
	return since >= max(p.store.SpaceStats().LiveBytes/8, minLogBytes) && p.unwrittenBytes() <= since/2
}

// unwrittenBytes returns the bytes of dirty pages and of the entries that the tree lacks. Token held.
func (p *pressure) unwrittenBytes() int64 {
	_, lacking := p.tree.tables.lacking()
	return p.tree.sizes().dirty + lacking
}

// sinceCheckpoint returns the bytes of log since the last checkpoint ended. Token held.
func (p *pressure) sinceCheckpoint() int64 { return p.store.SinceCheckpoint() - p.atCheckpoint }

// unwritten bounds the pages for which room is held: those of the flush in flight, and what is dirty or lacking in
// the tree. If the device has plenty of room, no more than heldParts parts of these count, unless the next flush has
// to write more. A flush makes sure of its own room before it begins, and most of that is what earlier flushes have
// freed. A file that grows ahead for everything that may become dirty during a load gets twice as long as its bound.
func (p *pressure) unwritten() int64 {
	tree, lacking, later := p.tree.sizes(), p.tree.lackingPages(), int64(0)
	if n := tree.dirty/logstore.PageSize + lacking - heldParts*p.partBytes()/logstore.PageSize + p.crowd.lent; n > 0 && !p.room.scarce(n) {
		later = n
		if more := tree.must - heldParts*p.partBytes()/logstore.PageSize; more > 0 && !p.isNew() && !p.inBulk() {
			later = max(0, n-more)
		}
	}
	return withMargin(p.pages.InFlight()+tree.unwritten+lacking-later) + redo.Pages(p.log.waiting())
}

// The redo limit follows from the difference between the bound of the file and what is live. Redo, the pages of one
// round of flushes after the redo start, and the free space for the next turn each take about as much of the file as
// the redo limit. So the limit is a redoShare-th of that difference, at least redoFloor, and at most
// Options.RedoLimit.
//
// In a new file nearly all records are in the redo only, so a flush writes them for the first time. That flush is due
// when its pages would reach the bound; a load that ends earlier has written each record once.
//
// Invariant: redoLimit <= Options.RedoLimit. So the time to open a file is bounded by what the user has asked for.
const (
	// redoShare: with a larger divisor each leaf is written for fewer updates. With a smaller one commits wait more
	// often for room within the bound, and flushes made for that are of parts that are worth less.
	redoShare = 3
	// redoFloor, in bytes: if leaves are so empty that the bound leaves hardly anything besides live pages, flushes
	// after less redo would write each leaf for one update.
	redoFloor = 8 << 20
	// heldParts, times partBytes, is more than most parts take.
	heldParts = 2
	// A file is new while its live pages are at most an 8th of the redo (newShare), and new pages are at least half of
	// the redo (newDirty). With fewer new pages, a few records are being overwritten, and live pages will stay few.
	newShare = 8
	newDirty = 2
	// newMargin: the flush of a new file is due when redo, dirty pages and an 8th more would exceed the bound, because
	// more redo is written before the flush begins. newLeaves: entries that the tree lacks are taken to need nine eighths
	// of their keys and values in leaves.
	newMargin = 8
	newLeaves = 9
	// mergeShare: entries are merged when their redo is a quarter of the redo limit. Earlier: each change of a leaf
	// brings fewer records. Later: when a flush begins, fewer of the records are in the tree.
	mergeShare = 4
)

// excess is by how much redo exceeds its limit; commits wait longer the larger that is.
type excess struct {
	past  atomic.Int64   // bytes beyond limit; written by the token holder,
	limit atomic.Int64   // together with the limit
	held  commit.Waiters // commits that wait until past is 0 or less
}

// noteRedo notes how long redo is. A flush of all is due at the redo limit, and frees the redo that was there when it
// began; so the redo after its base may be as long again. Token held.
func (p *pressure) noteRedo() {
	p.noteGrowth()
	p.noteBound()
	redo := p.log.bytes.Since()
	if p.parts() == 1 {
		redo = p.log.bytes.SinceBase()
	}
	limit := p.redoLimit()
	p.tree.tables.worth = limit / mergeShare
	if p.tree.records == 0 && p.isNew() { // by the flush, in one merge
		p.tree.tables.worth = limit
	}
	past := redo + p.log.waiting() - limit
	p.excess.limit.Store(limit)
	p.excess.past.Store(past)
	if past <= 0 {
		p.excess.held.Broadcast()
	}
	p.callNext()
}

// redoLimit returns the bytes of redo at which a flush is due. Token held.
func (p *pressure) redoLimit() int64 {
	if p.isNew() {
		_, lacking := p.tree.tables.lacking()
		return newRedoLimit(p.opts.RedoLimit, p.redoBytes(), p.tree.sizes().dirty+lacking*newLeaves/8, p.crowd.bound.Load())
	}
	if p.inBulk() {
		return p.shareOfBound()
	}
	born := p.tree.sizes().born * logstore.PageSize
	return redoLimit(p.opts.RedoLimit, p.crowd.bound.Load()-p.store.SpaceStats().PackedBytes-born)
}

// inBulk reports whether commits have many records each, as those of a load. Their entries are merged late, so all of
// the tree grows at once, and a flush of it is due soon. With room held for that, and shorter redo, such a load took
// half as long again, and the file twice as much. Token held.
func (p *pressure) inBulk() bool { return p.log.recent.ops >= deferOps }

// shareOfBound returns the limit that follows from the bound and what is live now. Anyone may call it.
func (p *pressure) shareOfBound() int64 {
	return redoLimit(p.opts.RedoLimit, p.crowd.bound.Load()-p.store.SpaceStats().PackedBytes)
}

// redoLimit returns the limit if the bound leaves the given bytes besides what is live.
func redoLimit(most, beside int64) int64 {
	return min(most, max(beside/redoShare, redoFloor))
}

// newRedoLimit returns the limit of a new file: the present redo, once the pages of a flush would reach the bound.
func newRedoLimit(most, redo, dirty, bound int64) int64 {
	if takes := redo + dirty; takes+takes/newMargin > bound {
		most = min(most, max(redo, redoFloor))
	}
	return most
}

// redoBytes returns how long redo is, including what is on its way to the log. Token held.
func (p *pressure) redoBytes() int64 { return p.log.bytes.Since() + p.log.waiting() }

// isNew reports whether nearly all records are in the redo only. Token held.
func (p *pressure) isNew() bool {
	if p.room.limited() {
		return false
	}
	redo, lives := p.redoBytes(), p.store.SpaceStats().LiveBytes
	return lives <= redo/newShare && p.tree.sizes().dirty+p.tree.fresh() >= redo/newDirty
}
