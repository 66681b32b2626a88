package mvcc

import (
	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// pieces applies a batch that may change more pages than memory holds. It is merged into the tree a piece at a time, all under one Seq,
// and whenever its pages take more than half of MemoryLimit between two pieces, they are written as the first parts of a flush whose
// base is the batch's group (see override.Pages.StartEarly for why that is safe). Readers see nothing of it before the Seq is published.
//
// The caller has checkpoints.mu, so no other flush is in flight, and the token until finish has sealed the flush: no other group comes between.
type pieces struct {
	flusher *flusher
	batch   *override.Batch
	group   uint64          // that carries the batch, or the newest one of those redone
	records int64           // in the tree with what was applied so far
	room    int64           // pages reserved for the flush
	again   int64           // pages that all of a redo takes, where space is scarce: see provide
	flush   *override.Flush // nil until something is written early
}

const (
	minPieceOps  = 4
	maxPieceOps  = 1 << 14
	pieceOpBytes = 4096 // of versions that an op makes at most: of its leaf
)

// beginPieces starts a batch at the next Seq. room is what was reserved for the pages that it changes.
func (fl *flusher) beginPieces(group uint64, room int64) *pieces {
	return &pieces{flusher: fl, batch: fl.pages.Begin(fl.marks.applied.Load() + 1), group: group, records: fl.tree.records, room: room}
}

// pieceOps is how many ops are applied between two looks at the memory: they make versions of a quarter of MemoryLimit at most.
func (f *file) pieceOps() int {
	return int(min(max(f.earlyBytes()/2/pieceOpBytes, minPieceOps), maxPieceOps))
}

// apply applies ops, whose keys ascend, and come after those of the ops applied before or are the newer for their keys.
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

// relieve writes leaves early, then inner nodes, while they take too much memory. Without room for that the batch stays in memory whole:
// the database can then be read, and deleting may make room.
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

// earlyBytes is what versions may take before a batch's pages are written early.
func (f *file) earlyBytes() int64 {
	if n := f.opts.Shares.Batch; n > 0 {
		return n
	}
	return f.opts.MemoryLimit / 2
}

// provide makes sure that n pages are reserved, beside what is held for the rest of the flush, for which seal makes sure of all, and those that the
// batch's group has taken already.
//
// Parts written early are void if the process dies before the end, and their space is lost until a checkpoint behind the next redo. So where
// space is scarce what redo writes early leaves room for all of it to be redone again: else each of several such opens would write as much
// as there is room for, until there is too little for the flush that ends it.
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

// seal follows when the batch was published. It returns the flush that was begun, or one of all that is dirty if that is wanted, for
// finishFlush, or nil. Unneeded room goes back. A flush that there is no room for is none: what it had written is dirty again.
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
