package mvcc

import (
	"cmp"
	"time"

	"flashdbm/logstore"
)

// A commit waits here, before it is resolved, for what background work or readers have to set free:
//
//	redo     is too long: see hold
//	bound    of the file is reached: until background work has made room, or half a second, see bound.go
//	memory   has too many versions: until the flush under way has written some, else it flushes itself, see relieve
//	room     is lacking on a full file: it makes some itself, see make_room.go
//
// Who waits has no lock, no room and no place in the commit list, and gives up its snapshot, unless it depends on what it has read.
//
// Redo is too long where commits write it faster than flushes make it superfluous: with it the file, the time to open it and the memory for what
// is dirty would grow as long as that goes on. So each commit waits a little, the longer the more redo there is, and commits find the pace
// of the flushes: none waits for a whole one.
const (
	holdShare = 2                     // commits wait longest when redo is half of RedoLimit too long,
	holdMost  = 50 * time.Millisecond // and so long
	holdLeast = time.Millisecond      // what a shorter sleep takes too, where nothing else runs

	toleratedShare = 8                      // readers may hold an eighth of MemoryLimit more before the next one is asked to end
	worthFlushing  = 16                     // a flush frees memory if a sixteenth of MemoryLimit is dirty
	relievedEvery  = 500 * time.Microsecond // between two looks of a commit that waits for memory
)

// admission has commits wait for memory, for room in the file, and for flushes, before they are resolved.
type admission struct {
	treeParts
	cleaner     *cleaner
	maintenance *maintenance
	spreading   spreading
}

// admit waits for memory and reserves the pages that a commit may take, so that nothing after Resolve fails for lack of room.
func (a *admission) admit(tx *Tx) (held int64, err error) {
	if err := a.hold(tx); err != nil {
		return 0, err
	}
	need, claim := a.estimate(tx), tx.claim()
	w := roomWanted{deletes: tx.deletesOnly(), pages: need}
	w.reserve = func(more int64) error { // again and again while it waits for room
		if err := tx.cancelled(); err != nil {
			return err
		}
		return a.store.ReserveFor(claim, need, more)
	}
	if a.tree.memory.Load() <= a.tree.ceiling.Load() {
		err := tx.cancelled()
		if err == nil {
			err = a.store.ReserveWithin(claim, need, 0)
		}
		if err == logstore.ErrBound {
			err = a.awaitBound(tx, claim, need)
		}
		if !logstore.IsFull(err) {
			return need, err
		}
	}
	a.unpin(tx)
	defer func() {
		if perr := a.pin(tx); perr != nil && err == nil {
			a.store.Release(held)
			err = perr
		}
	}()
	if a.tree.memory.Load() > a.tree.ceiling.Load() {
		if err := a.relieve(); err != nil {
			return 0, err
		}
	}
	err = w.reserve(0)
	if logstore.IsFull(err) {
		a.room.full.Store(true)
		if !w.deletes {
			same, rerr := a.replacesOnly(tx)
			if rerr != nil {
				return need, rerr
			}
			if same {
				claim, w.full = logstore.ForDeletes, true
				err = w.reserve(0)
			}
		}
		if logstore.IsFull(err) {
			err = a.makeRoom(w)
		}
	}
	if w.deletes && logstore.IsFull(err) {
		err = a.store.ReserveFor(logstore.ForWant, need, 0)
	}
	return need, err
}

// hold makes a transaction wait if redo is too long, unless others wait for it at the gate, and no longer than it is.
func (a *admission) hold(tx *Tx) error {
	past := a.pressure.excess.past.Load()
	if past <= 0 || tx.gate != nil || a.opts.Manual || a.readers.ending.Load() {
		return nil
	}
	if holdTime(past, a.pressure.excess.limit.Load()) < holdLeast {
		return nil
	}
	moved, leave := a.pressure.excess.held.Join()
	defer leave()
	if past = a.pressure.excess.past.Load(); past <= 0 {
		return nil
	}
	a.known.delayed.Add(1)
	begin := time.Now()
	defer func() { a.known.delay.Add(int64(time.Since(begin))) }()
	return a.pause(tx, moved, holdTime(past, a.pressure.excess.limit.Load()))
}

// holdTime returns how long a commit waits that finds redo past bytes too long: it grows with the square of that.
func holdTime(past, limit int64) time.Duration {
	share := min(float64(past)*holdShare/float64(limit), 1)
	return time.Duration(share * share * float64(holdMost))
}

// pause has a commit wait until moved is closed, for the given time at most, or until its context ends.
func (a *admission) pause(tx *Tx, moved <-chan struct{}, most time.Duration) error {
	if tx.reads == nil {
		a.unpin(tx)
	}
	t := time.NewTimer(most)
	select {
	case <-t.C:
	case <-moved:
	case <-ended(tx.ctx):
	}
	t.Stop()
	if tx.reads == nil {
		if err := a.pin(tx); err != nil {
			return err
		}
	}
	return cmp.Or(tx.cancelled(), a.Failed())
}

// unpin gives up the registration of a transaction that is about to wait for background work, which could not free what it pins. Its
// function has ended, so nobody reads at its snapshot any more. Close looks for such transactions too.
func (a *admission) unpin(tx *Tx) {
	a.readers.unpinned.enter()
	if tx.single {
		a.readers.active.Add(-1)
		return
	}
	tx.slot.Release()
}

// pin registers the transaction again, at the newest Seq. What was committed in between, the table of last writes tells; not so whether
// that touched what a serializable transaction has read, which therefore has lost if there was anything.
func (a *admission) pin(tx *Tx) error {
	defer a.readers.unpinned.leave()
	if tx.single {
		a.readers.active.Add(1)
		return nil
	}
	slot, now := a.readers.register(tx.slot, &a.marks.applied)
	tx.slot = slot
	if tx.reads == nil && tx.cleared == nil {
		return nil
	}
	if a.marks.committed.Load() > tx.Snapshot() {
		a.readers.conflicts.Add(1)
		return ErrConflict
	}
	tx.snap = now
	return nil
}

// estimate returns an upper bound of the pages that a commit takes: its redo, its runs with what their placing may waste, and the
// leaves that the next flush will write for it with an eighth for inner nodes.
//
// Those are the leaves that there are, as far as there are keys for them, and what they split into. A split makes leaves of about equal
// size, each with no more free than its widest record takes. The new records fill a number of those, and what was in the leaves before no
// more than as many again as it filled. For small transactions half a page of keys and values for each new leaf is the lower bound.
// Where the device has plenty of room it is no bound of the leaves: see heldForCommit.
func (a *admission) estimate(tx *Tx) int64 {
	set := tx.set.Size()
	pages := set.Keys + set.RedoPages/2
	if set.Keys > fewKeys || !a.tree.leafy.Load() {
		live := a.livePages()
		pages = min(pages, live+set.Bytes/splitBytes+set.RedoPages/2)
		if room := int64(logstore.BodySize - leafHeader - set.Widest); room >= logstore.BodySize/2 {
			pages = min(pages, set.InLeaves/room+2*min(set.Keys, live+1))
		}
	}
	if pages += pages / 8; pages > heldForCommit && !a.room.scarce(pages) { // see pressure.unwritten
		pages = heldForCommit
	}
	return set.RedoPages + set.RunPages + pages + 4 + cutPages(tx)
}

const (
	fewKeys    = 8  // for so few a tree that was leafy lately is not asked: that takes a twentieth of a Buffered commit of one record
	leafHeader = 64 // more than a leaf's header and what its keys have in common, unless that is long: then the records take less
	// heldForCommit is the most pages to be changed that a commit counts where the device has plenty of room: a flush makes sure of its own, see
	// pressure.unwritten. Commits of a load, counted in full, were too large to wait for room within the bound of the file.
	heldForCommit = 64
)

// relieve is called by a committer that finds more versions in memory than allowed: it waits for the flush in flight, or flushes. What
// is left then is what readers hold, and the oldest of them, if it is older than the flush before, is asked to end. The next one is
// when they hold still more.
func (a *admission) relieve() error {
	a.step(StepWait)
	if !a.lockUnlessRelieved() {
		return nil
	}
	defer a.checkpoints.mu.Unlock()
	before := a.flusher.installed.Load()
	dirty, err := a.tree.reclaimNow()
	if err != nil || a.tree.memory.Load() <= a.tree.ceiling.Load() {
		return err
	}
	if dirty >= a.opts.MemoryLimit/worthFlushing {
		if err := a.flushToRelieve(); err != nil {
			return err
		}
	}
	held := a.tree.memory.Load()
	if held <= a.tree.ceiling.Load() {
		return nil
	}
	if oldest, ok := a.readers.registry.Oldest(); ok && oldest.Seq() < before {
		oldest.Expire()
	}
	a.tree.ceiling.Store(held + a.opts.MemoryLimit/toleratedShare)
	return nil
}

// lockUnlessRelieved takes checkpoints.mu, or reports that memory came free before that: background work under way has a checkpoint to write
// behind its flush, and more to do perhaps. Each wait ends with the flush in flight, or the next one: who finds too much memory in use
// after that takes his turn.
func (a *admission) lockUnlessRelieved() bool {
	for flushes := a.flusher.flushes.Load(); !a.checkpoints.mu.TryLock(); time.Sleep(relievedEvery) {
		if a.tree.memory.Load() <= a.tree.ceiling.Load() {
			return false
		}
		if a.flusher.flushes.Load() != flushes {
			a.checkpoints.mu.Lock()
			return true
		}
	}
	return true
}

// flushToRelieve flushes until the versions in memory are no more than allowed, or all is written. The caller holds checkpoints.mu.
func (a *admission) flushToRelieve() error {
	for range mostParts {
		all, err := a.flusher.flushSome()
		if err != nil {
			return err
		}
		dirty, err := a.tree.reclaimNow()
		if err != nil || all || dirty < a.opts.MemoryLimit/worthFlushing || a.tree.memory.Load() <= a.tree.ceiling.Load() {
			return err
		}
	}
	return nil
}
