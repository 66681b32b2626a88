package mvcc

import (
	"cmp"
	"sync/atomic"
	"time"

	"flashdbm/logstore"
)

// Backpressure: before a commit is resolved, it waits here for what background work or readers have to free:
//
//	redo     is too long: see hold
//	bound    of the file is reached: until background work has made room, or half a second (bound.go)
//	memory   is full of versions: until the flush under way has written some; without one the commit flushes itself
//	         (relieve)
//	room     is lacking in a full file: the commit makes some itself (make_room.go)
//
// A waiting commit has no lock, no reserved pages and no place in the commit list. It also gives up its snapshot,
// unless it depends on what it has read.
//
// Redo gets too long if commits write it faster than flushes make it superfluous. The file, the time to open it and
// the memory for dirty pages would grow with it. So once redo exceeds its limit, each commit waits a little: the more
// redo there is, the longer. Commits then proceed at the pace of the flushes, and none waits for a whole flush.
const (
	holdMost  = 50 * time.Millisecond // the longest of these waits
	holdShare = 2                     // it is reached when redo exceeds its limit by half of the limit
	holdLeast = time.Millisecond      // shorter waits are skipped: a sleep takes this long anyway if nothing else runs

	// toleratedShare: when readers hold too much memory, the oldest is asked to end. The next one is asked only when
	// they hold an eighth of MemoryLimit more.
	toleratedShare = 8
	worthFlushing  = 16                     // to free memory, a flush begins if a sixteenth of MemoryLimit is dirty
	relievedEvery  = 500 * time.Microsecond // a commit that waits for memory checks for it this often
)

// admission makes commits wait for memory, room in the file and flushes before they are resolved.
type admission struct {
	treeParts
	cleaner     *cleaner
	maintenance *maintenance
	spreading   spreading
	refused     atomic.Pointer[refusal]
	awaited     atomic.Uint64 // above the Seq of the oldest reader when a commit had waited for its end in vain
}

// admit waits for memory and reserves the pages that a commit may need, so that nothing after resolve fails for lack
// of room. It returns how many it has reserved.
func (a *admission) admit(tx *Tx) (held int64, err error) {
	if a.pressure.excess.past.Load() > 0 {
		if err := a.hold(tx); err != nil {
			return 0, err
		}
	}
	need, claim := a.estimate(tx), tx.claim()
	if a.tree.memory.Load() <= a.tree.ceiling.Load() {
		err := tx.cancelled()
		if err == nil {
			err = a.store.ReserveWithin(claim, need, 0)
		}
		if err == logstore.ErrBound {
			err = a.awaitBound(tx, claim, need)
		}
		if err == nil || !logstore.IsFull(err) {
			return need, err
		}
	}
	return a.admitLate(tx, need, claim)
}

// admitLate is admit for a commit that finds too many versions in memory, or no room in the file.
func (a *admission) admitLate(tx *Tx, need int64, claim logstore.Claim) (held int64, err error) {
	w := roomWanted{deletes: tx.deletesOnly(), pages: need}
	w.reserve = func(more int64) error { // called again and again while the commit waits for room
		if err := tx.cancelled(); err != nil {
			return err
		}
		return a.store.ReserveFor(claim, need, more)
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
		if logstore.IsFull(err) && !a.stillFull(&w) {
			committed := a.marks.committed.Load()
			if err = a.makeRoom(w); logstore.IsFull(err) {
				a.noteRefusal(&w, committed)
			}
		}
	}
	if w.deletes && logstore.IsFull(err) {
		err = a.store.ReserveFor(logstore.ForWant, need, 0)
	}
	return need, err
}

// hold makes a transaction wait while redo is too long, for at most holdTime. A transaction that has closed the gate
// does not wait, because other transactions wait at the gate.
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

// holdTime returns how long a commit waits when redo exceeds its limit by past bytes. The time grows with the square of
// past.
func holdTime(past, limit int64) time.Duration {
	share := min(float64(past)*holdShare/float64(limit), 1)
	return time.Duration(share * share * float64(holdMost))
}

// pause waits until moved is closed, most has passed, or the transaction's context ends. Meanwhile the transaction is
// unpinned, unless it is serializable.
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

// unpin gives up the registration of a transaction that is about to wait for background work, which could not free
// what the registration pins. The user's function has ended, so nobody reads at the snapshot any more. Close also
// looks for unpinned transactions.
func (a *admission) unpin(tx *Tx) {
	a.readers.unpinned.enter()
	if tx.single {
		a.readers.active.Add(-1)
		return
	}
	tx.slot.Release()
}

// pin registers the transaction again, at the newest Seq. The table of last writes says whether its keys were
// written in between. The table cannot say that for the reads of a serializable transaction, or for ranges that a
// transaction has cleared, so such a transaction conflicts if there was any commit in between.
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

// estimate returns an upper bound of the pages that a commit takes: its redo, its runs with what placing them may
// waste, and the leaves that the next flush will write for it, with an eighth more for inner nodes.
//
// The leaves are at most those of the tree, as far as there are keys for them, and those that they split into. A
// split makes leaves of about equal size, each with no more free than its widest record takes. So the new records
// fill a number of leaves, and the old records of the split leaves at most twice as many leaves as before. For small
// transactions the bound assumes half a page of keys and values for each new leaf. If the device has plenty of room,
// leaves are counted only up to heldForCommit.
func (a *admission) estimate(tx *Tx) int64 {
	if n := int64(tx.set.Len()); n <= fewKeys && tx.set.OnePage() && len(tx.cuts) == 0 && a.tree.leafy.Load() {
		return 2 + n + 1 + (n+1)/8 + 4
	}
	return a.estimateLarge(tx)
}

// estimateLarge is estimate for any transaction; for one of few short records it takes longer, and says the same.
func (a *admission) estimateLarge(tx *Tx) int64 {
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
	// fewKeys: keys up to which a tree that had many leaves lately is not asked for its size: that takes a twentieth
	// of a Buffered commit of one record
	fewKeys = 8
	// leafHeader is more than a leaf's header and its keys' common prefix take, in bytes. A longer prefix makes the
	// records take less.
	leafHeader = 64
	// heldForCommit is the most changed pages that a commit counts if the device has plenty of room: a flush makes
	// sure of its own room (see pressure.unwritten). With all of them counted, commits of a load were too large to
	// wait for room within the bound of the file.
	heldForCommit = 64
)

// relieve is called by a committer that finds more versions in memory than allowed. It waits for the flush in flight,
// or flushes. What is left then is held by readers. If the oldest reader is older than the previous flush, it is
// asked to end. The next one is asked when readers hold toleratedShare more than now.
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

// lockUnlessRelieved takes checkpoints.mu, or returns false if memory came free before: background work under way may
// write a checkpoint after its flush, and more. After the flush in flight, or the next one, it waits for the lock
// itself: a committer that still finds too much memory in use then does the work.
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

// flushToRelieve flushes until versions take no more memory than allowed, or everything is written. The caller holds
// checkpoints.mu.
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
