package mvcc

import (
	"sync/atomic"
	"time"

	"flashdbm/internal/event"
	"flashdbm/logstore"
	"flashdbm/override"
)

// flusher writes dirty pages and folds names. Its fields except the atomic ones are guarded by checkpoints.mu.
type flusher struct {
	logParts
	tree        *tree
	pressure    *pressure
	checkpoints *checkpointer

	hand      []byte        // key at which the next part of a flush begins
	whole     int64         // pages of the last flush if that was of all dirty pages, else 0
	allBase   uint64        // base of the last flush of all
	unnamed   uint64        // pages appended so far when unname last folded names away
	stuck     stuckSegments // segments that the cleaner cannot empty
	lag       int64         // bytes of redo that a flush may leave behind its base, and that need not be merged for it: see withBase
	installed atomic.Uint64 // least Seq whose readers cannot see what the last flush has retired; written with the token held
	flushes   atomic.Uint64
	moved     atomic.Uint64 // pages made dirty so that their segments become free
}

// flush writes everything dirty, in parts between the groups of commits. A small flush is written in one go, so that
// a lone committer soon comes back to page groups. The caller holds checkpoints.mu.
func (fl *flusher) flush() error {
	ahead, err := fl.reserveAhead(fl.pages.Unwritten)
	if err != nil {
		return err
	}
	return fl.withBase(func() error {
		if err := fl.log.provideFor(fl.pages.Unwritten(), ahead); err != nil { // after recovery nothing is reserved yet
			return err
		}
		if err := fl.log.writeRedo(); err != nil {
			return err
		}
		base, bytes := fl.tree.base()
		f := fl.pages.StartFlush(base, fl.tree.records)
		if f == nil {
			fl.log.bytes.Base(fl.pages.Base(), bytes)
			fl.log.bytes.Start(fl.pages.RedoStart())
			fl.pressure.noteRedo() // commits may wait for that, too
			return nil
		}
		again := fl.whole > 0 && f.Pages() >= fl.whole/2
		fl.whole = f.Pages()
		between := fl.between
		if fl.opts.StepPages == 0 && f.Pages() <= flushAtOnce {
			between = func(work func()) { work() }
		}
		if err := fl.finishFlush(f, bytes, between); err != nil {
			return err
		}
		fl.allBase = f.Base()
		if again && f.Begin() != nil { // a load: the next parts come to what it wrote last while little of that is dirty again
			fl.hand = f.Begin()
		}
		return nil
	})
}

// withBase calls fn with the token and with a tree that can be flushed: it is exact, and lacks no more than lag bytes
// of redo. So a load can go on collecting records for one large merge while its parts are flushed one after the
// other. The caller holds checkpoints.mu.
//
// Nothing is lost by a base below the end of the log. Redo starts at the base or before it, so everything after the
// base is redone, whether it was logged before the flush began or during it. Recovery relies on one thing: no page of
// the flush has any of those later commits. That is what exact means.
func (fl *flusher) withBase(fn func() error) error {
	if lag := fl.opts.Lag; lag > fl.lag && !fl.readers.ending.Load() {
		return fl.tree.withExact(lag, fn)
	}
	return fl.tree.withExact(fl.lag, fn)
}

// reserveAhead reserves what a flush of that number of pages lacks, without the token, since the file may have to
// grow. The caller holds checkpoints.mu.
func (fl *flusher) reserveAhead(pages func() int64) (ahead int64, err error) {
	err = fl.withBase(func() error {
		ahead = fl.log.lacks(pages())
		return fl.Failed()
	})
	if err == nil {
		err = fl.store.Reserve(ahead, true)
	}
	return ahead, err
}

// flushSome flushes a part, or everything if that is better. The caller holds checkpoints.mu.
func (fl *flusher) flushSome() (all bool, err error) {
	parts, err := fl.parts()
	if err != nil {
		return false, err
	}
	if parts > 1 {
		return false, fl.flushPart(parts)
	}
	return true, fl.flush()
}

// finishFlush completes a flush; bytes is how much redo there was up to its base. Token held. finishFlush passes work
// that does not need the token to between, which may pass the token on meanwhile if the caller holds checkpoints.mu.
func (fl *flusher) finishFlush(f *override.Flush, bytes int64, between func(work func())) error {
	fl.log.bytes.Base(f.Base(), bytes)
	fl.pressure.noteRedo() // commits need not wait for the redo that this flush frees
	begin, pages := time.Now(), f.Pages()
	if err := fl.writeFlush(f, between); err != nil {
		return fl.store.Fail(err)
	}
	fl.log.bytes.Start(fl.pages.RedoStart())
	fl.pressure.noteRedo()
	fl.pressure.layered = fl.pressure.layered && fl.pages.RedoStart() < fl.pages.Base()
	fl.installed.Store(fl.readers.views.Load() + 1)
	fl.tree.reclaim()
	fl.room.rebalance(0)
	fl.flushes.Add(1)
	fl.post(event.Event{Kind: event.Flush, Took: time.Since(begin), Bytes: pages * logstore.PageSize})
	return nil
}

// between passes the token on, calls work without it and takes it again, also after a panic.
func (fl *flusher) between(work func()) {
	fl.room.rebalance(0)
	fl.token.pass(true)
	defer fl.token.take()
	work()
	fl.checkpoints.pace()
}

// Checkpoint flushes and checkpoints now.
func (e *Engine) Checkpoint() error {
	if e.opts.Store.ReadOnly {
		return nil
	}
	e.checkpoints.mu.Lock()
	defer e.checkpoints.mu.Unlock()
	return e.flusher.flushAndCheckpoint()
}

// flushAndCheckpoint folds and flushes everything, then checkpoints.
func (fl *flusher) flushAndCheckpoint() error {
	if err := fl.flushParts(); err != nil {
		return err
	}
	return fl.beginAnew()
}

// beginAnew is flushAndCheckpoint without flushing parts first. A flush makes pages clean that could not be folded
// before it. If few pages have changed since, beginAnew folds those too: then reads, also those of the next Open,
// need no table.
func (fl *flusher) beginAnew() error {
	for range 2 {
		if err := fl.fold(); err != nil {
			return err
		}
		if err := fl.flush(); err != nil {
			return err
		}
		if fl.lag > 0 { // the next flush would be of what has come meanwhile
			break
		}
		if again, err := fl.foldAgain(); err != nil {
			return err
		} else if !again {
			break
		}
	}
	fl.checkpoints.turn.ended(fl.store.Counters().Pages)
	// With lag, during a load, everything that the tree lacks would have to be merged to go on.
	if err := fl.checkpoints.checkpointTwice(); err != nil || fl.lag > 0 {
		return err
	}
	return fl.leaveBehind()
}

// leaveBehind flushes what has become dirty since a large flush began, so that redo starts after the pages which that
// flush has written. Otherwise the first part would keep the redo start where it is for a whole round, and pages of
// the flush that are overwritten meanwhile could not be reused before the end of the round. After the checkpoints
// there is room for that, and little is dirty yet. The caller holds checkpoints.mu.
func (fl *flusher) leaveBehind() error {
	worth := false
	if err := fl.tree.withTree(func() error {
		if fl.whole*logstore.PageSize >= 2*fl.pressure.partBytes() && fl.pages.RedoStart() == fl.allBase {
			worth = (fl.tree.sizes().dirty/logstore.PageSize+fl.tree.lackingPages())*leftBehind <= fl.whole
		}
		return fl.Failed()
	}); err != nil || !worth {
		return err
	}
	return fl.flush()
}

const leftBehind = 4 // leaveBehind flushes if the large flush was at least 4 times as much as is dirty and lacking
