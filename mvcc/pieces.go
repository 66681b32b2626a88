package mvcc

import (
	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// pieces applies a batch that may change more pages than memory holds. It is merged into the tree a piece at a time,
// all under one Seq. If its pages take more than half of MemoryLimit after a piece, they are written as the first
// parts of a flush whose base is the batch's group (override.Pages.StartEarly explains why that is safe). Readers see
// nothing of the batch before the Seq is published.
//
// The caller holds checkpoints.mu, so no other flush is in flight, and keeps the token until the flush is sealed: no
// other group comes between.
type pieces struct {
	flusher *flusher
	batch   *override.Batch
	group   uint64          // the group that carries the batch, or the newest one of those redone
	records int64           // records in the tree, with what was applied so far
	room    int64           // pages reserved for the flush
	again   int64           // pages that a whole redo takes, if space is scarce: see provide
	flush   *override.Flush // nil until something is written early
}

const (
	minPieceOps  = 4
	maxPieceOps  = 1 << 14
	pieceOpBytes = 4096 // most bytes of versions that an op makes: of its leaf
)

// beginPieces starts a batch at the next Seq. room is what was reserved for the pages that it changes.
func (fl *flusher) beginPieces(group uint64, room int64) *pieces {
	return &pieces{flusher: fl, batch: fl.pages.Begin(fl.marks.applied.Load() + 1), group: group, records: fl.tree.records, room: room}
}

// pieceOps is how many ops are applied between two looks at the memory: they make versions of at most a quarter of
// MemoryLimit.
func (f *file) pieceOps() int {
	return int(min(max(f.earlyBytes()/2/pieceOpBytes, minPieceOps), maxPieceOps))
}

// apply applies ops in ascending key order. Their keys are above those of ops applied before, or the ops are the
// newer ones for their keys.
func (p *pieces) apply(ops []btree.Op) error {
	for len(ops) > 0 {
		n := min(len(ops), p.flusher.pieceOps())
		r, err := btree.Apply(p.batch, override.Root, ops[:n])
		if err != nil {
			return err
		}
		p.records += r.Added
		ops = ops[n:]
		if err := p.relieve(); err != nil {
			return err
		}
	}
	return nil
}

// relieve writes leaves early, then inner nodes, while they take too much memory. If there is no room for that, the
// whole batch stays in memory: the database can then be read, and deletes may make room.
func (p *pieces) relieve() error {
	fl := p.flusher
	for _, level := range [...]int{0, override.AllLevels} {
		if fl.opts.Store.ReadOnly || fl.pages.MemoryBytes() <= fl.earlyBytes() {
			return nil
		}
		n := fl.pages.EarlyPages(level)
		if n*logstore.PageSize < fl.earlyBytes()/worthFlushing || !p.provide(n) {
			continue
		}
		if p.flush == nil {
			p.flush = fl.pages.StartEarly()
			if n := fl.opts.StepPages; n > 0 {
				p.flush.LimitPart(n)
			}
		}
		written, err := p.flush.WriteEarly(level)
		if err != nil {
			return err
		}
		fl.store.Release(written)
		p.room -= written
	}
	return nil
}

// earlyBytes is how much memory versions may take before a batch's pages are written early.
func (f *file) earlyBytes() int64 {
	if n := f.opts.Shares.Batch; n > 0 {
		return n
	}
	return f.opts.MemoryLimit / 2
}

// provide makes sure that n pages are reserved. They are in addition to those held for the rest of the flush, which
// seal reserves completely, and to those that the batch's group has taken already.
//
// Parts written early do not count if the process dies before the end, and their space is lost until a checkpoint
// after the next redo. So if space is scarce, redo writes pages early only if enough is left to redo everything
// again. Otherwise each of several such opens would write as much as there is room for, until too little is left for
// the flush that ends it.
func (p *pieces) provide(n int64) bool {
	fl := p.flusher
	want := n + fl.pressure.unwritten() + fl.room.logged
	missing := max(0, want-p.room-fl.room.held)
	if p.again > 0 && !fl.store.Fits(missing+p.again) {
		return false
	}
	if missing == 0 {
		return p.room >= n
	}
	if fl.store.Reserve(missing, false) != nil {
		return false
	}
	p.room += missing
	return p.room >= n
}

// seal is called after the batch was published. It returns a flush for finishFlush: the one that was begun early, or
// if flush is set one of all dirty pages, or nil. Room that is not needed goes back. If there is no room for the
// flush, seal returns nil, and pages that were written early are dirty again.
func (p *pieces) seal(flush bool) *override.Flush {
	fl := p.flusher
	fl.room.held += p.room
	p.room = 0
	fl.room.spend()
	full := false
	if p.flush != nil || flush {
		full = fl.log.provideFor(fl.pages.Unwritten(), 0) != nil
	} else {
		fl.room.rebalance(0)
	}
	switch {
	case full && p.flush != nil:
		p.flush.Recall()
	case full:
	case p.flush != nil:
		p.flush.Seal(p.group, p.records)
		return p.flush
	case flush:
		return fl.pages.StartFlush(p.group, p.records)
	}
	return nil
}

// abandon ends a batch that failed; the store is poisoned.
func (p *pieces) abandon() {
	if p.flush != nil {
		p.flush.Abandon()
	}
}
