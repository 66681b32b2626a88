package mvcc

import (
	"errors"
	"runtime/debug"
	"time"

	"flashdbm/internal/event"
	"flashdbm/logstore"
	"flashdbm/override"
)

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

func (m *maintenance) start() {
	m.started = true
	m.quit, m.ended, m.written = make(chan struct{}), make(chan struct{}), make(chan struct{})
	if m.opts.Durability == Buffered {
		go m.writeBuffered()
	} else {
		close(m.written)
	}
	if m.tree.redoing() || m.pressure.flushDue() {
		m.due.Store(true)
		m.wake <- struct{}{}
	}
	go m.run()
}

func (m *maintenance) stop() {
	if m.quit != nil {
		close(m.quit)
		<-m.ended
		<-m.written
		m.quit = nil
	}
}

// nudge wakes the goroutine if work is due. Baton holder.
func (m *maintenance) nudge() {
	if !m.started || m.due.Load() || !(m.pressure.flushDue() || m.pressure.zeroDue()) {
		return
	}
	m.due.Store(true)
	m.rouse()
}

// nudgeToGrow wakes the goroutine if the file should grow before a commit has to wait for that: on tmpfs a fifth of the time of one that
// loads a new file, on other file systems a sync as well. Where commits are synced ZeroAhead sees to it. asked is what the
// last commit has reserved. Baton holder.
func (m *maintenance) nudgeToGrow(asked int64) {
	if !m.started || m.opts.Durability == Durable || m.checkpoints.tight.Load() || !m.store.GrowDue(asked) {
		return
	}
	m.checkpoints.asked.Store(asked)
	m.checkpoints.tight.Store(true)
	m.rouse()
}

// growAhead lets the file grow if somebody has asked for that.
func (k *checkpointer) growAhead() {
	if k.tight.Swap(false) {
		k.report("growth", k.store.GrowAhead(k.asked.Load()))
	}
}

func (m *maintenance) rouse() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *maintenance) run() {
	defer close(m.ended)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	interval := m.opts.FlushInterval
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var aging <-chan time.Time // looks for transactions that are too old
	if age := m.opts.Leases.MaxAge; age > 0 {
		t := time.NewTicker(min(max(age/4, time.Millisecond), time.Second))
		defer t.Stop()
		aging = t.C
	}
	var warned time.Time
	storm := m.newStorm()
	for {
		select {
		case <-m.quit:
			return
		case <-m.wake:
			m.checkpoints.growAhead()
			if !m.due.Load() {
				continue
			}
		case <-aging:
			m.report("old transactions", m.endOldSnapshots())
			continue
		case <-tick.C:
			warned = m.warnOfOldSnapshot(time.Now(), warned)
			m.warnOfStorm(time.Now(), &storm)
		}
		m.due.Store(false)
		flushes := m.flusher.flushes.Load()
		m.report("housekeeping", m.housekeep())
		if m.flusher.flushes.Load() != flushes {
			m.goOn()
		}
		if m.pressure.zeroDue() {
			m.report("zeroing", m.store.ZeroAhead())
		}
		if m.Failed() != nil { // nothing is left to do
			return
		}
	}
}

// writeBuffered writes and syncs what Buffered commits have left in memory, once in an interval. It has a goroutine of its own, and does
// not take mu: a flush, a checkpoint or a compaction may take longer than an interval, and so may the wait for one.
func (m *maintenance) writeBuffered() {
	defer close(m.written)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	tick := time.NewTicker(m.opts.FlushInterval)
	defer tick.Stop()
	for m.Failed() == nil {
		select {
		case <-m.quit:
			return
		case <-tick.C:
		case <-m.log.syncDue:
		}
		m.report("write", m.log.syncSettled()) // commits that nobody waits for are settled when they return
	}
}

// goOn looks whether more work is due behind a flush. Commits say so too, but not while they are held back for want of that work: one
// writer, and what it was held back for, had come to 16 commits between two turns.
func (m *maintenance) goOn() {
	m.report("housekeeping", m.log.withLog(func() error {
		m.nudge()
		return nil
	}))
}

func (f *file) report(what string, err error) {
	f.Met(err)
	if err != nil && !errors.Is(err, logstore.ErrFailed) {
		f.post(event.Event{Kind: event.Background, What: what, Err: err})
	}
}

// zeroDue reports whether segments should be written ahead of the log: it pays for syncs only.
func (p *pressure) zeroDue() bool { return p.opts.Durability == Durable && p.store.ZeroDue() }

// flushDue reports whether the dirty pages should be written. Baton holder.
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
// Baton holder.
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
// come first is cheap, so that a small database does not keep a long log. Baton holder.
func (p *pressure) checkpointDue() bool {
	since := p.sinceCheckpoint()
	if since >= p.redoLimit() {
		return true
	}
	return since >= max(p.store.SpaceStats().LiveBytes/8, minLogBytes) && p.tree.sizes().dirty <= since/2
}

// sinceCheckpoint returns the bytes of log since the last checkpoint ended. Baton holder.
func (p *pressure) sinceCheckpoint() int64 { return p.store.SinceCheckpoint() - p.atCheckpoint }

// Housekeep does what is due: cleaning, a flush of all or of a part, and a checkpoint behind it; or a checkpoint alone, if that sets much
// free; or else what scans have asked for.
func (m *maintenance) housekeep() error {
	m.store.NoteDevice()
	m.checkpoints.mu.Lock()
	defer m.checkpoints.mu.Unlock()
	if pages := m.pressure.crowd.asked.Swap(0); pages > 0 {
		return m.makeWay(pages)
	}
	var flush, checkpoint, trim, anew, idle bool
	parts := 1
	if err := m.tree.withBaton(func() error {
		var dying bool
		if m.Failed() == nil {
			m.tree.reclaimAll() // readers may have ended, and nobody commits
		}
		m.pressure.noteRedo()
		flush, checkpoint = m.pressure.flushDue(), m.pressure.checkpointDue()
		parts = m.pressure.parts()
		idle = m.restDue()
		anew = m.checkpoints.cutDue() || flush && parts > 1 && m.flusher.firstPart()
		checkpoint = checkpoint || flush && m.pages.DirtyBytes() > flushLoneBytes // else its own pages would soon make one due
		trim, dying = m.checkpoints.trimDue()
		checkpoint = checkpoint || dying
		return m.Failed()
	}); err != nil {
		return err
	}
	if idle {
		if err := m.rest(); !logstore.IsFull(err) {
			return err
		}
	}
	if anew {
		if err := m.flusher.beginAnew(); !logstore.IsFull(err) {
			return err
		}
	}
	pages, due := m.cleaner.cleanBudget()
	if parts > 1 && (flush || checkpoint || due) {
		if err := m.cleaner.clean(pages); err != nil {
			return err
		}
		return m.flusher.sweep(parts, false)
	}
	if checkpoint || due {
		if err := m.cleaner.clean(pages); err != nil {
			return err
		}
		return m.flusher.flushAndCheckpoint()
	}
	if trim {
		return m.checkpoints.checkpointTwice()
	}
	if flush {
		return m.flusher.flush()
	}
	moved, err := m.cleaner.moveScanned()
	if moved {
		m.idle = rest{} // begins anew: the values leave dead pages behind
	}
	if moved && m.cleaner.scattered.any() {
		m.due.Store(true)
		m.rouse()
	}
	return err
}

// flushSome flushes a part, or all if that is better. The caller holds keeper.mu.
func (fl *flusher) flushSome() (all bool, err error) {
	parts := 1
	if err := fl.tree.withBaton(func() error {
		parts = fl.pressure.parts()
		return fl.Failed()
	}); err != nil {
		return false, err
	}
	if parts > 1 {
		return false, fl.flushPart(parts)
	}
	return true, fl.flush()
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
		if again, err := fl.foldAgain(); err != nil {
			return err
		} else if !again {
			break
		}
	}
	fl.checkpoints.turn.ended(fl.store.Counters().Pages)
	return fl.checkpoints.checkpointTwice()
}

// foldAgain reports whether another fold and the flush of what it changes are worth their while.
func (fl *flusher) foldAgain() (again bool, err error) {
	err = fl.tree.withBaton(func() error {
		names := fl.pages.TableEntries()
		again = names >= foldAgainEntries && int64(fl.pages.DirtyPages()) <= names/foldAgainShare
		return nil
	})
	return again, err
}

// fold rewrites inner nodes that lead to children through the table, as many as there is room for: no commit has reserved any for them,
// and without them the checkpoint that may make room needs no more than is reserved.
func (fl *flusher) fold() error {
	return fl.foldWith(func(extra int64) error { return fl.store.Reserve(extra, false) })
}

// foldWith is fold with another idea of what room there is.
func (fl *flusher) foldWith(reserve func(extra int64) error) (err error) {
	defer fl.protect(&err)
	plan, err := fl.foldPlan()
	if err != nil {
		return fl.store.Fail(err)
	}
	return fl.eachParent(plan, (*override.Batch).Fold, reserve)
}

// A reservation finds room for so many pages more than are reserved.
type reservation func(extra int64) error

func (p *pressure) reserveMore(extra int64) error { return p.store.Reserve(extra, false) }

// eachParent folds the given inner nodes, or does what else is to be done to them, as far as reserve finds room: behind the batches of a bulk
// load, for which commits wait longer anyway, more of them in one turn with the baton.
func (fl *flusher) eachParent(plan []logstore.PageID, do folding, reserve reservation) error {
	for most := foldsInBulk; len(plan) > 0; {
		n := 0
		err := fl.tree.withTree(func() error {
			if n = min(len(plan), most); fl.log.recent.ops < deferOps {
				n = min(n, foldsAtOnce)
			}
			return fl.foldSome(plan[:n], do, reserve)
		})
		if logstore.IsFull(err) && n > 1 {
			most = n / 2
			continue
		}
		if logstore.IsFull(err) {
			return nil
		}
		if err != nil {
			return fl.store.Fail(err)
		}
		plan = plan[n:]
		fl.step(StepBetween)
	}
	return nil
}

// folding changes the names that an inner node has for its children.
type folding func(b *override.Batch, parent logstore.PageID) (int, error)

func (fl *flusher) foldPlan() ([]logstore.PageID, error) {
	return fl.readers.planFolds(func(s override.Snapshot) ([]logstore.PageID, error) { return fl.pages.FoldPlan(s, 1) })
}

// planFolds calls plan with the newest tree.
func (r *readers) planFolds(plan func(override.Snapshot) ([]logstore.PageID, error)) ([]logstore.PageID, error) {
	slot := r.registry.Acquire(&r.views)
	defer slot.Release()
	return plan(r.pages.At(slot.Seq()))
}

const (
	foldsAtOnce = 8   // inner nodes folded under one baton,
	foldsInBulk = 128 // the same while commits are large
	foldPages   = 3   // that folding one adds to the next flush at most: its page, and its part of the names folded away
)

// foldSome folds some inner nodes. ErrFull if there is no room for them in the next flush. Baton holder.
func (fl *flusher) foldSome(parents []logstore.PageID, do folding, reserve reservation) error {
	if err := fl.Failed(); err != nil {
		return err
	}
	extra := int64(len(parents)) * foldPages
	if err := reserve(extra); err != nil {
		return err
	}
	b := fl.pages.Begin(fl.marks.applied.Load() + 1)
	if err := fl.pressure.uncounted(func() error {
		for _, id := range parents {
			if _, err := do(b, id); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	fl.tree.publishEdit()
	fl.tree.reclaim() // a fold that renames children has copied them
	fl.room.rebalance(extra)
	return nil
}

// flush writes all that is dirty now, in parts between the groups of commits; a small one in one go, so that a lone committer soon
// comes back to page groups. The caller holds keeper.mu.
func (fl *flusher) flush() error {
	return fl.tree.withBaton(func() error {
		if err := fl.log.provideFor(fl.pages.Unwritten()); err != nil { // after recovery nothing is reserved yet
			return err
		}
		if err := fl.log.writeRedo(); err != nil {
			return err
		}
		f := fl.pages.StartFlush(fl.store.CloseGroup(), fl.tree.records)
		if f == nil {
			fl.log.bytes.Base(fl.pages.Base())
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
		if err := fl.finishFlush(f, between); err != nil {
			return err
		}
		fl.allBase = f.Base()
		if again && f.Begin() != nil { // a load: parts come by what it has written last while little of that is dirty again
			fl.hand = f.Begin()
		}
		return nil
	})
}

// finishFlush carries a flush through whose base is all up to now. Baton holder; between, which may lay the baton down if the caller
// holds keeper.mu, calls what does not need it.
func (fl *flusher) finishFlush(f *override.Flush, between func(work func())) error {
	fl.log.bytes.Base(f.Base())
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

// between lays the baton down, works without it and takes it again, also after a panic.
func (fl *flusher) between(work func()) {
	fl.room.rebalance(0)
	fl.token.pass(true)
	defer fl.token.take()
	work()
	fl.checkpoints.pace()
}

// checkpoint writes the table and the space map, and moves the scan start. It follows a flush; the caller holds keeper.mu.
func (k *checkpointer) checkpoint() (err error) {
	begin := time.Now()
	defer k.protect(&err)
	thaw, err := k.freeze(k.log.writeRedo)
	defer thaw()
	if err != nil {
		return err
	}
	c := k.store.BeginCheckpoint(k.pages.EncodeTable())
	if n := k.opts.StepPages; n > 0 {
		c.LimitPart(n)
	}
	k.step(StepBetween)
	pages := c.Pages()
	if err := k.writeCheckpoint(c); err != nil {
		return err
	}
	if err := c.Finish(); err != nil {
		return err
	}
	k.marks.publishDurable()
	k.done.Add(1)
	k.post(event.Event{Kind: event.Checkpoint, Took: time.Since(begin), Bytes: pages * logstore.PageSize})
	return k.log.withLog(func() error {
		k.pressure.atCheckpoint = k.store.SinceCheckpoint()
		return nil
	})
}

// freeze calls fn with the baton, and keeps the installed state as it is then until thaw.
func (k *checkpointer) freeze(fn func() error) (thaw func(), err error) {
	err = k.tree.withTree(func() error {
		k.pages.Freeze()
		return fn()
	})
	return func() {
		k.token.take()
		defer k.token.pass(true)
		k.tree.settleMerge()
		k.pages.Thaw()
		k.tree.reclaim()
	}, err
}

// writeCheckpoint appends a checkpoint, in parts between the groups of commits.
func (k *checkpointer) writeCheckpoint(c *logstore.Checkpoint) error {
	pages := c.Pages()
	if err := k.store.Reserve(pages, true); err != nil {
		return err
	}
	defer func() { k.store.Release(pages) }()
	for done := false; !done; {
		err := k.log.withLog(func() (err error) {
			before := c.Pages()
			done, err = c.WritePart()
			k.store.Release(before - c.Pages())
			pages -= before - c.Pages()
			return err
		})
		if err != nil {
			return err
		}
		k.pace()
	}
	return nil
}
