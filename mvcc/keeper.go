package mvcc

import (
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/logstore"
	"flashdbm/override"
)

// keeper does the housekeeping: flushes, folds, checkpoints, and in Buffered mode the writing of what commits have left in memory. It
// decides when; package override plans what. Its own goroutine does the work that is due; a committer that finds no memory or no room
// does it itself, under the same lock.
type keeper struct {
	e       *Engine
	mu      sync.Mutex // one flush or checkpoint at a time; taken before the baton
	wake    chan struct{}
	quit    chan struct{}
	done    chan struct{}
	due     atomic.Bool // the goroutine was nudged
	written time.Time   // Buffered: when redo was written last; owned by the goroutine

	checkpoints, flushes atomic.Uint64
}

// Thresholds of the housekeeping.
const (
	flushRatioNum  = 6        // a flush is due when record bytes reach 6/10 of dirty bytes,
	flushRatioDen  = 10       //
	flushLoneBytes = 1 << 20  // while so few are dirty that a lone committer comes back to page groups soon
	minLogBytes    = 4 << 20  // of log since the scan start, below which no checkpoint is due
	tableBudget    = 64 << 10 // entries of the table from which folding is due with every flush
	foldShare      = 16       // a parent is folded when a 16th of a full node's children are overridden
	flushAtOnce    = 16       // pages up to which a flush is written without laying the baton down
	pauseBetween   = 200 * time.Microsecond
)

func (k *keeper) start(e *Engine) {
	k.e, k.quit, k.done = e, make(chan struct{}), make(chan struct{})
	go k.run()
}

func (k *keeper) stop() {
	if k.quit != nil {
		close(k.quit)
		<-k.done
		k.quit = nil
	}
}

// nudge wakes the goroutine if work is due. Baton holder.
func (k *keeper) nudge() {
	if k.e == nil || k.due.Load() || !(k.e.flushDue() || k.e.zeroDue()) {
		return
	}
	k.due.Store(true)
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
	for {
		select {
		case <-k.quit:
			return
		case <-k.wake:
		case <-tick.C:
			if k.e.opts.Durability == Buffered {
				k.log("write", k.e.Sync())
			}
		}
		k.due.Store(false)
		k.log("housekeeping", k.e.Housekeep())
		if k.e.zeroDue() {
			k.log("zeroing", k.e.store.ZeroAhead())
		}
	}
}

func (k *keeper) log(what string, err error) {
	if err != nil && !errors.Is(err, logstore.ErrFailed) {
		k.e.opts.Logger.Warn("flashdbm: "+what, "path", k.e.Path(), "error", err)
	}
}

// zeroDue reports whether segments should be written ahead of the log: it pays for syncs only.
func (e *Engine) zeroDue() bool { return e.opts.Durability == Durable && e.store.ZeroDue() }

// flushDue reports whether the dirty pages should be written. Baton holder.
func (e *Engine) flushDue() bool {
	dirty := e.pages.DirtyBytes()
	if e.opts.Durability == Buffered {
		return e.pages.MemoryBytes() >= e.opts.MemoryLimit/2 || e.recBytes+int64(len(e.redo)) >= e.opts.RedoLimit || e.checkpointDue()
	}
	lone := dirty <= flushLoneBytes && e.recBytes*flushRatioDen >= dirty*flushRatioNum
	return (dirty > 0 && lone) || e.pages.MemoryBytes() >= e.opts.MemoryLimit/2 || e.recBytes >= e.opts.RedoLimit || e.checkpointDue()
}

// checkpointDue reports whether the log since the last checkpoint is long enough. RedoLimit is; less is when the flush that has to
// come first is cheap, so that a small database does not keep a long log. Baton holder.
func (e *Engine) checkpointDue() bool {
	since := e.store.SinceCheckpoint() - e.atCheckpoint
	if since >= e.opts.RedoLimit {
		return true
	}
	return since >= max(e.store.SpaceStats().LiveBytes/8, minLogBytes) && e.pages.DirtyBytes() <= since/2
}

// Housekeep does what is due: a flush, and a checkpoint behind it.
func (e *Engine) Housekeep() error {
	e.keeper.mu.Lock()
	defer e.keeper.mu.Unlock()
	e.takeBaton()
	flush, checkpoint := e.flushDue(), e.checkpointDue()
	e.putBaton(true)
	if err := e.Failed(); err != nil {
		return err
	}
	if flush || checkpoint {
		if checkpoint {
			if err := e.fold(); err != nil {
				return err
			}
		}
		if err := e.flush(); err != nil {
			return err
		}
	}
	if checkpoint {
		return e.checkpoint()
	}
	return nil
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

func (e *Engine) flushAndCheckpoint() error {
	if err := e.fold(); err != nil {
		return err
	}
	if err := e.flush(); err != nil {
		return err
	}
	return e.checkpoint()
}

// fold rewrites inner nodes that lead to many children through the table.
func (e *Engine) fold() (err error) {
	defer guard(&err)
	slot := e.registry.Acquire(&e.applied)
	plan, err := e.pages.FoldPlan(e.pages.At(slot.Seq()), 1)
	slot.Release()
	if err != nil {
		return e.store.Fail(err)
	}
	for len(plan) > 0 {
		n := min(len(plan), foldsAtOnce)
		if err := e.foldSome(plan[:n]); err != nil {
			return e.store.Fail(err)
		}
		plan = plan[n:]
		e.step(StepBetween)
	}
	return nil
}

const foldsAtOnce = 8 // inner nodes folded under one baton

func (e *Engine) foldSome(parents []logstore.PageID) (err error) {
	defer guard(&err)
	e.takeBaton()
	defer e.putBaton(true)
	if err := e.Failed(); err != nil {
		return err
	}
	b := e.pages.Begin(e.applied.Load() + 1)
	for _, id := range parents {
		if _, err := b.Fold(id); err != nil {
			return err
		}
	}
	e.publish(e.pages.Seq(), e.records)
	if len(e.redo) == 0 {
		e.note(e.store.LastGroup(), e.pages.Seq())
	}
	e.publishDurable()
	e.rebalance(0)
	return nil
}

// flush writes all that is dirty now, in parts between the groups of commits; a small one in one go, so that a lone committer soon
// comes back to page groups. The caller holds keeper.mu.
func (e *Engine) flush() (err error) {
	defer guard(&err)
	e.takeBaton()
	if err = e.provide(); err == nil { // after recovery nothing is reserved yet
		err = e.writeRedo()
	}
	if err != nil {
		e.putBaton(true)
		return err
	}
	f := e.pages.StartFlush(e.store.LastGroup(), e.records)
	if f == nil {
		e.putBaton(true)
		return nil
	}
	recBytes := e.recBytes
	err = e.writeFlush(f)
	if err != nil {
		f.Abandon()
		err = e.store.Fail(err)
	} else {
		e.recBytes -= recBytes
		e.reuse(e.pages.Reclaim(e.view))
		e.memory.Store(e.pages.MemoryBytes())
		e.rebalance(0)
		e.keeper.flushes.Add(1)
	}
	e.putBaton(true)
	return err
}

// writeFlush steps a flush to its end, laying the baton down between the steps and while it prepares the images of the next.
func (e *Engine) writeFlush(f *override.Flush) error {
	between := e.between
	if n := e.opts.StepPages; n > 0 {
		f.LimitPart(n)
	} else if f.Pages() <= flushAtOnce {
		between = func(work func()) { work() }
	}
	between(f.Sort)
	for {
		between(f.Encode)
		if done, err := f.Write(); err != nil {
			return err
		} else if done {
			break
		}
	}
	for !f.Install() {
		between(func() {})
	}
	return nil
}

// between lays the baton down, works without it and takes it again.
func (e *Engine) between(work func()) {
	e.rebalance(0)
	e.putBaton(true)
	work()
	e.pace()
	e.takeBaton()
}

// pace lets commits through between the parts of background work, so that a sync has few pages of it to wait for.
func (e *Engine) pace() {
	e.step(StepBetween)
	if e.opts.Durability == Durable && e.active.Load() > 0 {
		time.Sleep(pauseBetween)
	}
}

// checkpoint writes the table and the space map, and moves the scan start. It follows a flush; the caller holds keeper.mu.
func (e *Engine) checkpoint() (err error) {
	defer guard(&err)
	e.takeBaton()
	err = e.writeRedo()
	e.pages.Freeze()
	e.putBaton(true)
	defer func() {
		e.takeBaton()
		e.pages.Thaw()
		e.reuse(e.pages.Reclaim(e.view))
		e.putBaton(true)
	}()
	if err != nil {
		return err
	}
	c := e.store.BeginCheckpoint(e.pages.EncodeTable())
	if n := e.opts.StepPages; n > 0 {
		c.LimitPart(n)
	}
	pages := c.Pages()
	if err := e.store.Reserve(pages, true); err != nil {
		return err
	}
	defer func() { e.store.Release(pages) }()
	for done := false; !done; {
		e.takeBaton()
		before := c.Pages()
		done, err = c.WritePart()
		e.store.Release(before - c.Pages())
		pages -= before - c.Pages()
		e.putBaton(true)
		if err != nil {
			return err
		}
		e.pace()
	}
	if err := c.Finish(); err != nil {
		return err
	}
	e.publishDurable()
	e.takeBaton()
	e.atCheckpoint = e.store.SinceCheckpoint()
	e.putBaton(true)
	e.keeper.checkpoints.Add(1)
	return nil
}

// relieve is called by a committer that finds more versions in memory than the limit allows: it waits for the flush in flight, or
// flushes. What held readers need stays; past the limit the oldest of them is asked to end.
func (k *keeper) relieve(e *Engine) error {
	e.step(StepWait)
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.memory.Load() <= e.opts.MemoryLimit {
		return nil
	}
	if err := e.flush(); err != nil {
		return err
	}
	if e.memory.Load() > e.opts.MemoryLimit {
		if oldest, ok := e.registry.Oldest(); ok && oldest.Seq() < e.view.Load() {
			oldest.Expire()
		}
	}
	return nil
}

// makeRoom is called by a committer that finds the file full: what is dead becomes reusable by a flush and two checkpoints.
func (k *keeper) makeRoom(e *Engine) error {
	e.step(StepWait)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := e.flushAndCheckpoint(); err != nil {
		return err
	}
	return e.checkpoint()
}
