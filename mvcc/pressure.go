package mvcc

import (
	"sync/atomic"

	"flashdbm/internal/commit"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// pressure is how much waits to be written, and what is due because of that. Its fields but the atomic ones belong to the token's holder.
type pressure struct {
	logParts
	tree *tree

	excess       excess
	crowd        crowd
	growth       growth
	layered      bool  // the log has layers or ranges to redo: the next flush is of all
	atCheckpoint int64 // bytes between the scan start and the end of the last checkpoint: mostly of its flush
}

// zeroDue reports whether segments should be written ahead of the log: it pays for syncs only.
func (p *pressure) zeroDue() bool { return p.opts.Durability == Durable && p.store.ZeroDue() }

// flushDue reports whether the dirty pages should be written. Token held.
func (p *pressure) flushDue() bool {
	tree := p.tree.sizes()
	dirty := tree.dirty
	crowded := tree.memory >= p.opts.MemoryLimit/2 && dirty >= p.opts.MemoryLimit/worthFlushing // else readers hold it
	redo := p.log.bytes.Since()
	if crowded || redo+p.log.waiting() >= p.redoLimit() || p.growthDue() || p.checkpointDue() || p.partDue(p.parts()) {
		return true
	}
	return p.opts.Durability == Durable && !p.tree.tables.merging() && p.log.recent.ops <= loneOps && !p.log.recent.stays && dirty > 0 && dirty <= flushLoneBytes &&
		redo*flushRatioDen >= dirty*flushRatioNum && !(p.log.inRow() && p.pages.CanPageGroup())
}

// growthDue reports whether a flush of all is due early, as nothing is gained by waiting: what is dirty is new, and no more than the redo
// that made it so, as behind the batches of a load in order. What such a flush writes lies behind its base, where redo starts until
// overwrites have gone round the tree once, and of what they let die of it nothing is used again before: so the last one should be short.
// Token held.
func (p *pressure) growthDue() bool {
	if t := &p.tree.tables; t.merging() || t.rest() > 0 && !t.active.Ascends() { // not a load in order, and not all that is in the redo is dirty yet
		return false
	}
	redo, tree := p.log.bytes.SinceBase(), p.tree.sizes()
	dirty := tree.dirty
	return p.log.recent.ops >= deferOps && redo >= p.redoLimit()/growthLimit && dirty >= redo/2 && dirty <= redo+redo/4 &&
		tree.must*logstore.PageSize >= dirty-dirty/4
}

// checkpointDue reports whether the log since the last checkpoint is long enough. RedoLimit is; less is when the flush that has to
// come first is cheap, so that a small database does not keep a long log. Token held.
func (p *pressure) checkpointDue() bool {
	since := p.sinceCheckpoint()
	if since >= p.redoLimit() {
		return true
	}
	return since >= max(p.store.SpaceStats().LiveBytes/8, minLogBytes) && p.tree.sizes().dirty <= since/2
}

// sinceCheckpoint returns the bytes of log since the last checkpoint ended. Token held.
func (p *pressure) sinceCheckpoint() int64 { return p.store.SinceCheckpoint() - p.atCheckpoint }

// unwritten bounds the pages that memory has still to write. Where flushes are by part and the device has plenty of room, of the leaves that may
// be left behind only those of the next parts count: room for the others is mostly set free by the parts before them. It need not be, as the log
// is kept from the oldest leaf left behind on.
func (p *pressure) unwritten() int64 {
	later := int64(0)
	tree := p.tree.sizes()
	if n := int64(p.mayParts()); n > partsHeld && !p.room.limited() {
		leaves := max(0, tree.dirty/logstore.PageSize-tree.must)
		later = leaves - leaves*partsHeld/n
		if p.room.scarce(later) {
			later = 0
		}
	}
	return withMargin(tree.unwritten-later+p.tree.lackingPages()) + redo.Pages(p.log.waiting())
}

// The redo limit follows what the file may take beside what lives. Redo, the pages of one round of flushes that are written behind the redo
// start, and the free space for the next turn each take about as much of the file as the redo limit. So the limit is a redoShare-th of the
// difference between the bound and what lives, at least redoFloor, and at most Options.RedoLimit.
//
// Invariant: redoLimit <= Options.RedoLimit, so the time to open a file is bounded by what the user has asked for.
const (
	// redoShare: with a larger divisor each leaf is written for fewer updates; with a smaller one commits wait more often for room within the
	// bound, and flushes for that are of parts that are worth less.
	redoShare = 3
	// redoFloor, in bytes: where leaves are so empty that hardly anything is left beside what lives, flushes of less would write each leaf for
	// one update.
	redoFloor = 8 << 20
)

// excess is how much too long the redo is: bytes that are past RedoLimit, of a range in which commits wait longer and longer.
type excess struct {
	past  atomic.Int64   // written by the token holder,
	limit atomic.Int64   // with the limit that it is past
	held  commit.Waiters // until it is no more
}

// noteRedo notes how long the redo is. A flush of all is due at RedoLimit, and lets go what was there when it began; so the redo behind its
// base may be as long again. Token held.
func (p *pressure) noteRedo() {
	p.noteGrowth()
	p.noteBound()
	redo := p.log.bytes.Since()
	if p.parts() == 1 {
		redo = p.log.bytes.SinceBase()
	}
	limit := p.redoLimit()
	past := redo + p.log.waiting() - limit
	p.excess.limit.Store(limit)
	p.excess.past.Store(past)
	if past <= 0 {
		p.excess.held.Broadcast()
	}
}

// redoLimit returns the bytes of redo at which a flush is due.
func (p *pressure) redoLimit() int64 {
	return redoLimit(p.opts.RedoLimit, p.crowd.bound.Load()-p.store.SpaceStats().PackedBytes)
}

// redoLimit returns the limit where the file may have the given bytes beside what lives.
func redoLimit(most, beside int64) int64 {
	return min(most, max(beside/redoShare, redoFloor))
}
