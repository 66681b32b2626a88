package mvcc

import (
	"sync/atomic"
	"time"

	"flashdbm/logstore"
)

const (
	toleratedShare = 8                      // readers may hold an eighth of MemoryLimit more before the next one is asked to end
	worthFlushing  = 16                     // a flush frees memory if a sixteenth of MemoryLimit is dirty
	relievedEvery  = 500 * time.Microsecond // between two looks of a commit that waits for memory
)

// admit waits for memory and reserves the pages that a commit may take, so that nothing after Resolve fails for lack of room.
func (e *Engine) admit(tx *Tx) (held int64, err error) {
	if err := e.hold(tx); err != nil {
		return 0, err
	}
	need, claim := tx.estimate(), tx.claim()
	w := roomWanted{deletes: tx.deletesOnly(), pages: need}
	w.reserve = func(more int64) error { // again and again while it waits for room
		if err := tx.cancelled(); err != nil {
			return err
		}
		return e.store.ReserveFor(claim, need, more)
	}
	if e.memory.Load() <= e.ceiling.Load() {
		err := tx.cancelled()
		if err == nil {
			err = e.store.ReserveWithin(claim, need, 0)
		}
		if err == logstore.ErrBound {
			err = e.awaitBound(tx, claim, need)
		}
		if !logstore.IsFull(err) {
			return need, err
		}
	}
	tx.unpin()
	defer func() {
		if perr := tx.pin(); perr != nil && err == nil {
			e.store.Release(held)
			err = perr
		}
	}()
	if e.memory.Load() > e.ceiling.Load() {
		if err := e.keeper.relieve(e); err != nil {
			return 0, err
		}
	}
	err = w.reserve(0)
	if logstore.IsFull(err) {
		e.full.Store(true)
		err = e.keeper.makeRoom(e, w)
	}
	if logstore.IsFull(err) && !w.deletes {
		var same bool
		if same, err = e.replacesOnly(tx); err == nil && same {
			claim, w.full = logstore.ForDeletes, true
			if err = w.reserve(0); logstore.IsFull(err) {
				err = e.keeper.makeRoom(e, w)
			}
		} else if err == nil {
			err = w.reserve(0)
		}
	}
	if w.deletes && logstore.IsFull(err) {
		err = e.store.ReserveFor(logstore.ForWant, need, 0)
	}
	return need, err
}

// unpinned counts those that use the engine and are not in the registry: how many they are, in the lower half, and in the upper one how many
// ever were.
type unpinned struct{ counts atomic.Uint64 }

const oneUnpinned = 1<<32 + 1

func (u *unpinned) enter()    { u.counts.Add(oneUnpinned) }
func (u *unpinned) leave()    { u.counts.Add(^uint64(0)) }
func (u *unpinned) any() bool { return uint32(u.counts.Load()) > 0 }

// unpin gives up the registration of a transaction that is about to wait for housekeeping, which could not free what it pins. Its
// function has ended, so nobody reads at its snapshot any more. Close looks for such transactions too.
func (tx *Tx) unpin() {
	e := tx.e
	e.unpinned.enter()
	if tx.single {
		e.active.Add(-1)
		return
	}
	tx.slot.Release()
}

// pin registers the transaction again, at the newest Seq. What was committed in between, the table of last writes tells; not so whether
// that touched what a serializable transaction has read, which therefore has lost if there was anything.
func (tx *Tx) pin() error {
	e := tx.e
	defer e.unpinned.leave()
	if tx.single {
		e.active.Add(1)
		return nil
	}
	slot, now := e.register(tx.slot, &e.applied)
	tx.slot = slot
	if tx.reads == nil {
		return nil
	}
	if e.committed.Load() > tx.Snapshot() {
		e.conflicts.Add(1)
		return ErrConflict
	}
	tx.snap = now
	return nil
}

// estimate returns an upper bound of the pages that a commit takes: its redo, its runs with what their placing may waste, and the
// leaves that the next flush will write for it with an eighth for inner nodes.
//
// Those are the leaves that there are, as far as there are keys for them, and what they split into. A split makes leaves of about equal
// size, each with no more free than its widest record takes: the new records fill so many, and what was in the leaves before no more
// than as many again as it filled. For small transactions half a page of keys and values for each new leaf is the lower bound.
func (tx *Tx) estimate() int64 {
	e := tx.e
	set := tx.set.Size()
	pages := set.Keys + set.RedoPages/2
	if set.Keys > fewKeys || !e.leafy.Load() {
		live := e.livePages()
		pages = min(pages, live+set.Bytes/splitBytes+set.RedoPages/2)
		if room := int64(logstore.BodySize - leafHeader - set.Widest); room >= logstore.BodySize/2 {
			pages = min(pages, set.InLeaves/room+2*min(set.Keys, live+1))
		}
	}
	return set.RedoPages + set.RunPages + pages + pages/8 + 4
}

const (
	fewKeys    = 8  // for so few a tree that was leafy lately is not asked: that takes a twentieth of a Buffered commit of one record
	leafHeader = 64 // more than a leaf's header and what its keys have in common, unless that is long: then the records take less
)

// relieve is called by a committer that finds more versions in memory than allowed: it waits for the flush in flight, or flushes. What
// is left then is what readers hold, and the oldest of them, if it is older than the flush before, is asked to end. The next one is
// when they hold still more.
func (k *keeper) relieve(e *Engine) error {
	e.step(StepWait)
	if !k.lockUnlessRelieved(e) {
		return nil
	}
	defer k.mu.Unlock()
	before := k.installed.Load()
	dirty, err := e.reclaimNow()
	if err != nil || e.memory.Load() <= e.ceiling.Load() {
		return err
	}
	if dirty >= e.opts.MemoryLimit/worthFlushing {
		if err := e.flushToRelieve(); err != nil {
			return err
		}
	}
	held := e.memory.Load()
	if held <= e.ceiling.Load() {
		return nil
	}
	if oldest, ok := e.registry.Oldest(); ok && oldest.Seq() < before {
		oldest.Expire()
	}
	e.ceiling.Store(held + e.opts.MemoryLimit/toleratedShare)
	return nil
}

// lockUnlessRelieved takes keeper.mu, or reports that memory came free before that: the housekeeping under way has a checkpoint to write
// behind its flush, and more to do perhaps. Each wait ends with the flush in flight, or the next one: who finds too much memory in use
// after that takes his turn.
func (k *keeper) lockUnlessRelieved(e *Engine) bool {
	for flushes := k.flushes.Load(); !k.mu.TryLock(); time.Sleep(relievedEvery) {
		if e.memory.Load() <= e.ceiling.Load() {
			return false
		}
		if k.flushes.Load() != flushes {
			k.mu.Lock()
			return true
		}
	}
	return true
}

// flushToRelieve flushes until the versions in memory are no more than allowed, or all is written. The caller holds keeper.mu.
func (e *Engine) flushToRelieve() error {
	for range mostParts {
		all, err := e.flushSome()
		if err != nil {
			return err
		}
		dirty, err := e.reclaimNow()
		if err != nil || all || dirty < e.opts.MemoryLimit/worthFlushing || e.memory.Load() <= e.ceiling.Load() {
			return err
		}
	}
	return nil
}

// reclaimNow frees what nobody can see, and returns the bytes that a flush would write. It first makes a new version of the tree, past all that was
// retired so far: new readers come at a version of the tree to which nothing has happened yet.
func (e *Engine) reclaimNow() (dirty int64, err error) {
	err = e.withTree(func() error {
		if err := e.Failed(); err != nil {
			return err
		}
		e.pages.Begin(e.applied.Load() + 1)
		e.publishEdit()
		e.reclaimAll()
		dirty = e.pages.DirtyBytes()
		return nil
	})
	return dirty, err
}

// reclaim frees what nobody can see, but for what readers that have gone held beside an older one: that may take a while. Baton holder.
func (e *Engine) reclaim() { e.reclaimed(e.pages.Reclaim(&e.views)) }

// reclaimAll frees all that nobody can see. Baton holder.
func (e *Engine) reclaimAll() { e.reclaimed(e.pages.ReclaimAll(&e.views)) }

func (e *Engine) reclaimed(horizon uint64) {
	e.horizon.Store(horizon)
	e.tables.reclaim(horizon)
	e.sets.reuse(horizon, e.tables.freed)
	e.measure()
}

// memoryBytes is what counts against MemoryLimit, beside write sets. Baton holder.
func (e *Engine) memoryBytes() int64 { return e.pages.MemoryBytes() + e.pages.BookBytes() }

// measure notes the memory that versions take. Baton holder.
func (e *Engine) measure() {
	held := e.memoryBytes()
	e.memory.Store(held)
	e.known.dirty.Store(int64(e.pages.DirtyPages()))
	if held <= e.opts.MemoryLimit {
		e.ceiling.Store(e.opts.MemoryLimit)
	}
}
