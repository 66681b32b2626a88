package mvcc

import (
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/internal/event"
	"flashdbm/logstore"
	"flashdbm/override"
)

// keeper does the housekeeping: flushes, folds, checkpoints, and in Buffered mode the writing of what commits have left in memory. It
// decides when; package override plans what. Its own goroutine does the work that is due; a committer that finds no memory or no room
// does it itself, under the same lock.
type keeper struct {
	e         *Engine
	mu        sync.Mutex // one flush or checkpoint at a time; taken before the baton
	wake      chan struct{}
	quit      chan struct{}
	done      chan struct{} // closed when the goroutine has ended,
	written   chan struct{} // and when that of writeBuffered has
	sync      chan struct{} // a sync is due before the next tick
	due       atomic.Bool   // the goroutine was nudged
	tight     atomic.Bool   // it was nudged to let the file grow,
	asked     atomic.Int64  // for commits that reserve so many pages
	pacing    pacing        // guarded by mu
	turn      turn
	cleaner   cleaner
	rest      rest
	hand      []byte        // key that the next part of a flush begins at; guarded by mu
	whole     int64         // pages of the last flush if that was of all; guarded by mu
	allBase   uint64        // base of the last flush of all; guarded by mu
	unnamed   uint64        // pages appended when names were folded away for the last time; guarded by mu
	installed atomic.Uint64 // least Seq whose readers cannot see what the last flush has retired; written with the baton

	checkpoints, flushes atomic.Uint64
}

// Thresholds of the housekeeping.
const (
	flushRatioNum    = 6       // a flush is due when record bytes reach 6/10 of dirty bytes,
	flushRatioDen    = 10      //
	flushLoneBytes   = 1 << 20 // while so few are dirty that a lone committer comes back to page groups soon
	loneOps          = 16      // in batches of at most so many: a flush brings larger ones no nearer to page groups, which split leaves too often
	growthLimit      = 2       // of RedoLimit, half makes a flush due if all that is dirty is new
	minLogBytes      = 4 << 20 // of log since the scan start, below which no checkpoint is due
	foldAgainEntries = 1 << 10 // entries of the table from which it is folded once more behind the flush of a checkpoint,
	foldAgainShare   = 16      // if no more pages have changed meanwhile than a 16th of them
	flushAtOnce      = 16      // pages up to which a flush is written without laying the baton down
)

func (k *keeper) start(e *Engine) {
	k.e, k.quit, k.done, k.written = e, make(chan struct{}), make(chan struct{}), make(chan struct{})
	if e.opts.Durability == Buffered {
		go k.writeBuffered()
	} else {
		close(k.written)
	}
	if e.Redoing() || e.flushDue() {
		k.due.Store(true)
		k.wake <- struct{}{}
	}
	go k.run()
}

func (k *keeper) stop() {
	if k.quit != nil {
		close(k.quit)
		<-k.done
		<-k.written
		k.quit = nil
	}
}

// nudge wakes the goroutine if work is due. Baton holder.
func (k *keeper) nudge() {
	if k.e == nil || k.due.Load() || !(k.e.flushDue() || k.e.zeroDue()) {
		return
	}
	k.due.Store(true)
	k.rouse()
}

// nudgeToGrow wakes the goroutine if the file should grow before a commit has to wait for that: on tmpfs a fifth of the time of one that
// loads a new file, on other file systems a sync as well. Where commits are synced ZeroAhead sees to it. asked is what the
// last commit has reserved. Baton holder.
func (k *keeper) nudgeToGrow(asked int64) {
	if k.e == nil || k.e.opts.Durability == Durable || k.tight.Load() || !k.e.store.GrowDue(asked) {
		return
	}
	k.asked.Store(asked)
	k.tight.Store(true)
	k.rouse()
}

// growAhead lets the file grow if somebody has asked for that.
func (k *keeper) growAhead() {
	if k.tight.Swap(false) {
		k.log("growth", k.e.store.GrowAhead(k.asked.Load()))
	}
}

func (k *keeper) rouse() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) run() {
	defer close(k.done)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	interval := k.e.opts.FlushInterval
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var aging <-chan time.Time // looks for transactions that are too old
	if age := k.e.opts.Leases.MaxAge; age > 0 {
		t := time.NewTicker(min(max(age/4, time.Millisecond), time.Second))
		defer t.Stop()
		aging = t.C
	}
	var warned time.Time
	storm := k.e.newStorm()
	for {
		select {
		case <-k.quit:
			return
		case <-k.wake:
			k.growAhead()
			if !k.due.Load() {
				continue
			}
		case <-aging:
			k.log("old transactions", k.e.endOldSnapshots())
			continue
		case <-tick.C:
			warned = k.e.warnOfOldSnapshot(time.Now(), warned)
			k.e.warnOfStorm(time.Now(), &storm)
		}
		k.due.Store(false)
		flushes := k.flushes.Load()
		k.log("housekeeping", k.e.Housekeep())
		if k.flushes.Load() != flushes {
			k.goOn()
		}
		if k.e.zeroDue() {
			k.log("zeroing", k.e.store.ZeroAhead())
		}
		if k.e.Failed() != nil { // nothing is left to do
			return
		}
	}
}

// writeBuffered writes and syncs what Buffered commits have left in memory, once in an interval. It has a goroutine of its own, and does
// not take mu: a flush, a checkpoint or a compaction may take longer than an interval, and so may the wait for one.
func (k *keeper) writeBuffered() {
	defer close(k.written)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	tick := time.NewTicker(k.e.opts.FlushInterval)
	defer tick.Stop()
	for k.e.Failed() == nil {
		select {
		case <-k.quit:
			return
		case <-tick.C:
		case <-k.sync:
		}
		k.log("write", k.e.Sync())
	}
}

// goOn looks whether more work is due behind a flush. Commits say so too, but not while they are held back for want of that work: one
// writer, and what it was held back for, had come to 16 commits between two turns.
func (k *keeper) goOn() {
	k.log("housekeeping", k.e.withLog(func() error {
		k.nudge()
		return nil
	}))
}

func (k *keeper) log(what string, err error) {
	k.e.Met(err)
	if err != nil && !errors.Is(err, logstore.ErrFailed) {
		k.e.post(event.Event{Kind: event.Background, What: what, Err: err})
	}
}

// zeroDue reports whether segments should be written ahead of the log: it pays for syncs only.
func (e *Engine) zeroDue() bool { return e.opts.Durability == Durable && e.store.ZeroDue() }

// flushDue reports whether the dirty pages should be written. Baton holder.
func (e *Engine) flushDue() bool {
	tree := e.sizes()
	dirty := tree.dirty
	crowded := tree.memory >= e.opts.MemoryLimit/2 && dirty >= e.opts.MemoryLimit/worthFlushing // else readers hold it
	redo := e.redoBytes.Since()
	if crowded || redo+e.waiting() >= e.redoLimit() || e.growthDue() || e.checkpointDue() || e.partDue(e.parts()) {
		return true
	}
	return e.opts.Durability == Durable && !e.tables.merging() && e.batchOps <= loneOps && !e.stays && dirty > 0 && dirty <= flushLoneBytes &&
		redo*flushRatioDen >= dirty*flushRatioNum && !(e.inRow() && e.pages.CanPageGroup())
}

// growthDue reports whether a flush of all is due early, as nothing is gained by waiting: what is dirty is new, and no more than the redo
// that made it so, as behind the batches of a load in order. What such a flush writes lies behind its base, where redo starts until
// overwrites have gone round the tree once, and of what they let die of it nothing is used again before: so the last one should be short.
// Baton holder.
func (e *Engine) growthDue() bool {
	if t := &e.tables; t.merging() || t.rest() > 0 && !t.active.Ascends() { // not a load in order, and not all that is in the redo is dirty yet
		return false
	}
	redo, tree := e.redoBytes.SinceBase(), e.sizes()
	dirty := tree.dirty
	return e.batchOps >= deferOps && redo >= e.redoLimit()/growthLimit && dirty >= redo/2 && dirty <= redo+redo/4 &&
		tree.must*logstore.PageSize >= dirty-dirty/4
}

// checkpointDue reports whether the log since the last checkpoint is long enough. RedoLimit is; less is when the flush that has to
// come first is cheap, so that a small database does not keep a long log. Baton holder.
func (e *Engine) checkpointDue() bool {
	since := e.sinceCheckpoint()
	if since >= e.redoLimit() {
		return true
	}
	return since >= max(e.store.SpaceStats().LiveBytes/8, minLogBytes) && e.sizes().dirty <= since/2
}

// sinceCheckpoint returns the bytes of log since the last checkpoint ended. Baton holder.
func (e *Engine) sinceCheckpoint() int64 { return e.store.SinceCheckpoint() - e.atCheckpoint }

// Housekeep does what is due: cleaning, a flush of all or of a part, and a checkpoint behind it; or a checkpoint alone, if that sets much
// free; or else what scans have asked for.
func (e *Engine) Housekeep() error {
	e.store.NoteDevice()
	e.keeper.mu.Lock()
	defer e.keeper.mu.Unlock()
	if pages := e.crowd.asked.Swap(0); pages > 0 {
		return e.makeWay(pages)
	}
	var flush, checkpoint, trim, anew, rest bool
	parts := 1
	if err := e.withBaton(func() error {
		var dying bool
		if e.Failed() == nil {
			e.reclaimAll() // readers may have ended, and nobody commits
		}
		e.noteRedo()
		flush, checkpoint = e.flushDue(), e.checkpointDue()
		parts = e.parts()
		rest = e.restDue()
		anew = e.cutDue() || flush && parts > 1 && e.firstPart()
		checkpoint = checkpoint || flush && e.pages.DirtyBytes() > flushLoneBytes // else its own pages would soon make one due
		trim, dying = e.trimDue()
		checkpoint = checkpoint || dying
		return e.Failed()
	}); err != nil {
		return err
	}
	if rest {
		if err := e.rest(); !logstore.IsFull(err) {
			return err
		}
	}
	if anew {
		if err := e.beginAnew(); !logstore.IsFull(err) {
			return err
		}
	}
	pages, due := e.cleanBudget()
	if parts > 1 && (flush || checkpoint || due) {
		if err := e.clean(pages); err != nil {
			return err
		}
		return e.sweep(parts, false)
	}
	if checkpoint || due {
		if err := e.clean(pages); err != nil {
			return err
		}
		return e.flushAndCheckpoint()
	}
	if trim {
		return e.checkpointTwice()
	}
	if flush {
		return e.flush()
	}
	return e.moveScanned()
}

// flushSome flushes a part, or all if that is better. The caller holds keeper.mu.
func (e *Engine) flushSome() (all bool, err error) {
	parts := 1
	if err := e.withBaton(func() error {
		parts = e.parts()
		return e.Failed()
	}); err != nil {
		return false, err
	}
	if parts > 1 {
		return false, e.flushPart(parts)
	}
	return true, e.flush()
}

// Checkpoint flushes and checkpoints now.
func (e *Engine) Checkpoint() error {
	if e.opts.Store.ReadOnly {
		return nil
	}
	e.keeper.mu.Lock()
	defer e.keeper.mu.Unlock()
	return e.flushAndCheckpoint()
}

// flushAndCheckpoint folds and flushes all before it checkpoints.
func (e *Engine) flushAndCheckpoint() error {
	if err := e.flushParts(); err != nil {
		return err
	}
	return e.beginAnew()
}

// beginAnew is flushAndCheckpoint without parts before it. A flush leaves the pages clean that could not be folded before it; if few
// have changed meanwhile, they are folded too: what is read after that, also by the next Open, needs no table.
func (e *Engine) beginAnew() error {
	for range 2 {
		if err := e.fold(); err != nil {
			return err
		}
		if err := e.flush(); err != nil {
			return err
		}
		if again, err := e.foldAgain(); err != nil {
			return err
		} else if !again {
			break
		}
	}
	e.keeper.turn.ended(e.store.Counters().Pages)
	return e.checkpointTwice()
}

// foldAgain reports whether another fold and the flush of what it changes are worth their while.
func (e *Engine) foldAgain() (again bool, err error) {
	err = e.withBaton(func() error {
		names := e.pages.TableEntries()
		again = names >= foldAgainEntries && int64(e.pages.DirtyPages()) <= names/foldAgainShare
		return nil
	})
	return again, err
}

// fold rewrites inner nodes that lead to children through the table, as many as there is room for: no commit has reserved any for them,
// and without them the checkpoint that may make room needs no more than is reserved.
func (e *Engine) fold() error {
	return e.foldWith(func(extra int64) error { return e.store.Reserve(extra, false) })
}

// foldWith is fold with another idea of what room there is.
func (e *Engine) foldWith(reserve func(extra int64) error) (err error) {
	defer e.protect(&err)
	plan, err := e.foldPlan()
	if err != nil {
		return e.store.Fail(err)
	}
	return e.eachParent(plan, (*override.Batch).Fold, reserve)
}

// A reservation finds room for so many pages more than are reserved.
type reservation func(extra int64) error

func (e *Engine) reserveMore(extra int64) error { return e.store.Reserve(extra, false) }

// eachParent folds the given inner nodes, or does what else is to be done to them, as far as reserve finds room: behind the batches of a bulk
// load, for which commits wait longer anyway, more of them in one turn with the baton.
func (e *Engine) eachParent(plan []logstore.PageID, do folding, reserve reservation) error {
	for most := foldsInBulk; len(plan) > 0; {
		n := 0
		err := e.withTree(func() error {
			if n = min(len(plan), most); e.batchOps < deferOps {
				n = min(n, foldsAtOnce)
			}
			return e.foldSome(plan[:n], do, reserve)
		})
		if logstore.IsFull(err) && n > 1 {
			most = n / 2
			continue
		}
		if logstore.IsFull(err) {
			return nil
		}
		if err != nil {
			return e.store.Fail(err)
		}
		plan = plan[n:]
		e.step(StepBetween)
	}
	return nil
}

// folding changes the names that an inner node has for its children.
type folding func(b *override.Batch, parent logstore.PageID) (int, error)

func (e *Engine) foldPlan() ([]logstore.PageID, error) {
	return e.planFolds(func(s override.Snapshot) ([]logstore.PageID, error) { return e.pages.FoldPlan(s, 1) })
}

// planFolds calls plan with the newest tree.
func (e *Engine) planFolds(plan func(override.Snapshot) ([]logstore.PageID, error)) ([]logstore.PageID, error) {
	slot := e.registry.Acquire(&e.views)
	defer slot.Release()
	return plan(e.pages.At(slot.Seq()))
}

const (
	foldsAtOnce = 8   // inner nodes folded under one baton,
	foldsInBulk = 128 // the same while commits are large
	foldPages   = 3   // that folding one adds to the next flush at most: its page, and its part of the names folded away
)

// foldSome folds some inner nodes. ErrFull if there is no room for them in the next flush. Baton holder.
func (e *Engine) foldSome(parents []logstore.PageID, do folding, reserve reservation) error {
	if err := e.Failed(); err != nil {
		return err
	}
	extra := int64(len(parents)) * foldPages
	if err := reserve(extra); err != nil {
		return err
	}
	b := e.pages.Begin(e.applied.Load() + 1)
	if err := e.uncounted(func() error {
		for _, id := range parents {
			if _, err := do(b, id); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	e.publishEdit()
	e.reclaim() // a fold that renames children has copied them
	e.rebalance(extra)
	return nil
}

// flush writes all that is dirty now, in parts between the groups of commits; a small one in one go, so that a lone committer soon
// comes back to page groups. The caller holds keeper.mu.
func (e *Engine) flush() error {
	return e.withBaton(func() error {
		if err := e.provideFor(e.pages.Unwritten()); err != nil { // after recovery nothing is reserved yet
			return err
		}
		if err := e.writeRedo(); err != nil {
			return err
		}
		f := e.pages.StartFlush(e.store.CloseGroup(), e.records)
		if f == nil {
			e.redoBytes.Base(e.pages.Base())
			e.redoBytes.Start(e.pages.RedoStart())
			e.noteRedo() // commits may wait for that, too
			return nil
		}
		again := e.keeper.whole > 0 && f.Pages() >= e.keeper.whole/2
		e.keeper.whole = f.Pages()
		between := e.between
		if e.opts.StepPages == 0 && f.Pages() <= flushAtOnce {
			between = func(work func()) { work() }
		}
		if err := e.finishFlush(f, between); err != nil {
			return err
		}
		e.keeper.allBase = f.Base()
		if again && f.Begin() != nil { // a load: parts come by what it has written last while little of that is dirty again
			e.keeper.hand = f.Begin()
		}
		return nil
	})
}

// finishFlush carries a flush through whose base is all up to now. Baton holder; between, which may lay the baton down if the caller
// holds keeper.mu, calls what does not need it.
func (e *Engine) finishFlush(f *override.Flush, between func(work func())) error {
	e.redoBytes.Base(f.Base())
	e.noteRedo() // commits need not wait for what goes with this flush
	begin, pages := time.Now(), f.Pages()
	if err := e.writeFlush(f, between); err != nil {
		return e.store.Fail(err)
	}
	e.redoBytes.Start(e.pages.RedoStart())
	e.noteRedo()
	e.layered = e.layered && e.pages.RedoStart() < e.pages.Base()
	e.keeper.installed.Store(e.views.Load() + 1)
	e.reclaim()
	e.rebalance(0)
	e.keeper.flushes.Add(1)
	e.post(event.Event{Kind: event.Flush, Took: time.Since(begin), Bytes: pages * logstore.PageSize})
	return nil
}

// between lays the baton down, works without it and takes it again, also after a panic.
func (e *Engine) between(work func()) {
	e.rebalance(0)
	e.putBaton(true)
	defer e.takeBaton()
	work()
	e.pace()
}

// checkpoint writes the table and the space map, and moves the scan start. It follows a flush; the caller holds keeper.mu.
func (e *Engine) checkpoint() (err error) {
	begin := time.Now()
	defer e.protect(&err)
	thaw, err := e.freeze(e.writeRedo)
	defer thaw()
	if err != nil {
		return err
	}
	c := e.store.BeginCheckpoint(e.pages.EncodeTable())
	if n := e.opts.StepPages; n > 0 {
		c.LimitPart(n)
	}
	e.step(StepBetween)
	pages := c.Pages()
	if err := e.writeCheckpoint(c); err != nil {
		return err
	}
	if err := c.Finish(); err != nil {
		return err
	}
	e.publishDurable()
	e.keeper.checkpoints.Add(1)
	e.post(event.Event{Kind: event.Checkpoint, Took: time.Since(begin), Bytes: pages * logstore.PageSize})
	return e.withLog(func() error {
		e.atCheckpoint = e.store.SinceCheckpoint()
		return nil
	})
}

// freeze calls fn with the baton, and keeps the installed state as it is then until thaw.
func (e *Engine) freeze(fn func() error) (thaw func(), err error) {
	err = e.withTree(func() error {
		e.pages.Freeze()
		return fn()
	})
	return func() {
		e.takeBaton()
		defer e.putBaton(true)
		e.settleMerge()
		e.pages.Thaw()
		e.reclaim()
	}, err
}

// writeCheckpoint appends a checkpoint, in parts between the groups of commits.
func (e *Engine) writeCheckpoint(c *logstore.Checkpoint) error {
	pages := c.Pages()
	if err := e.store.Reserve(pages, true); err != nil {
		return err
	}
	defer func() { e.store.Release(pages) }()
	for done := false; !done; {
		err := e.withLog(func() (err error) {
			before := c.Pages()
			done, err = c.WritePart()
			e.store.Release(before - c.Pages())
			pages -= before - c.Pages()
			return err
		})
		if err != nil {
			return err
		}
		e.pace()
	}
	return nil
}
