package mvcc

import (
	"sync/atomic"
	"time"

	"flashdbm/internal/event"
	"flashdbm/logstore"
	"flashdbm/override"
)

// flusher writes dirty pages and folds names. Its fields but the atomic ones are guarded by checkpoints.mu.
type flusher struct {
	logParts
	tree        *tree
	pressure    *pressure
	checkpoints *checkpointer

	hand      []byte        // key that the next part of a flush begins at
	whole     int64         // pages of the last flush if that was of all
	allBase   uint64        // base of the last flush of all
	unnamed   uint64        // pages appended when names were folded away for the last time
	stuck     stuckSegments // that the cleaner cannot empty
	lag       int64         // bytes of redo that a flush may leave behind its base, which need not be merged for it: see withBase
	installed atomic.Uint64 // least Seq whose readers cannot see what the last flush has retired; written with the token
	flushes   atomic.Uint64
	moved     atomic.Uint64 // pages made dirty so that their segments become free
}

// flush writes all that is dirty now, in parts between the groups of commits; a small one in one go, so that a lone committer soon
// comes back to page groups. The caller holds checkpoints.mu.
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
		if again && f.Begin() != nil { // a load: parts come by what it has written last while little of that is dirty again
			fl.hand = f.Begin()
		}
		return nil
	})
}

// withBase calls fn with the token, and with a tree that a flush can be made of: it is exact, and lacks no more than lag. A load so goes on while what
// it wrote last waits to be merged at once, and its parts are flushed one after the other in between. The caller holds checkpoints.mu.
//
// Nothing is lost by a base that is below the end of the log: redo starts at the base or before it, so what lies behind the base is redone, whether
// the tree that was flushed was made before or after that was logged. Those commits may have been logged before the flush began or beside it. What
// recovery relies on is that no page of the flush has any of them, and that is what exact says.
func (fl *flusher) withBase(fn func() error) error {
	if lag := fl.opts.Lag; lag > fl.lag && !fl.readers.ending.Load() {
		return fl.tree.withExact(lag, fn)
	}
	return fl.tree.withExact(fl.lag, fn)
}

// reserveAhead reserves what a flush of that number of pages lacks, without the token: the file may have to grow for it. The caller holds checkpoints.mu.
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

// flushSome flushes a part, or all if that is better. The caller holds checkpoints.mu.
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

// finishFlush carries a flush through, up to whose base there were the given bytes of redo. Token held; between, which may lay the token down if the caller
// holds checkpoints.mu, calls what does not need it.
func (fl *flusher) finishFlush(f *override.Flush, bytes int64, between func(work func())) error {
	fl.log.bytes.Base(f.Base(), bytes)
	fl.pressure.noteRedo() // commits need not wait for what goes with this flush
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

// between lays the token down, works without it and takes it again, also after a panic.
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

// flushAndCheckpoint folds and flushes all before it checkpoints.
func (fl *flusher) flushAndCheckpoint() error {
	if err := fl.flushParts(); err != nil {
		return err
	}
	return fl.beginAnew()
}

// beginAnew is flushAndCheckpoint without parts before it. A flush leaves the pages clean that could not be folded before it; if few
// have changed meanwhile, they are folded too: what is read after that, also by the next Open, needs no table.
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
	if err := fl.checkpoints.checkpointTwice(); err != nil || fl.lag > 0 { // of a load all that the tree lacks would have to be merged
		return err
	}
	return fl.leaveBehind()
}

// leaveBehind flushes what has become dirty since a flush of much began, so that redo starts behind what that has written: the first part would have redo
// start where it does for a whole round, and what overwrites let die of those pages would not be used again before its end. Behind the checkpoints there is
// room for that, and little is dirty yet. The caller holds checkpoints.mu.
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

const leftBehind = 4 // times what is dirty and lacking
