package mvcc

import (
	"runtime"
	"sync/atomic"
	"time"

	"flashdbm/internal/lease"
	"flashdbm/lockfree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// readers knows who uses the engine.
type readers struct {
	*file
	registry  lockfree.Registry
	views     views
	leases    lease.Table
	unpinned  unpinned     // transactions that wait for admission or write to the file, and may not be in the registry meanwhile
	active    atomic.Int32 // commits that were admitted and are not completed, and those of WriteOne from beginning to end
	places    places       // of asynchronous commits
	calls     atomic.Int32 // calls of Use, and 1 while callbacks of asynchronous commits are called
	closed    atomic.Bool  // Close was called
	ending    atomic.Bool  // Close was called, and nobody uses the engine any more
	expired   atomic.Int64 // when a reader was last asked to end because there was no room
	conflicts atomic.Uint64
}

// unpinned counts users of the engine that are not in the registry: the lower half is how many there are now, the
// upper half how many there ever were.
type unpinned struct{ counts atomic.Uint64 }

const oneUnpinned = 1<<32 + 1

func (u *unpinned) enter() { u.counts.Add(oneUnpinned) }

func (u *unpinned) leave() { u.counts.Add(^uint64(0)) }

func (u *unpinned) any() bool { return uint32(u.counts.Load()) > 0 }

// register registers a reader, in the place last if that is free, and returns the snapshot of everything up to a
// watermark.
func (r *readers) register(last lockfree.Slot, upto lockfree.Watermark) (lockfree.Slot, snapshot) {
	for {
		slot := r.registry.AcquireNear(last, &r.views)
		v := r.views.newest.Load()
		at := upto.Load()
		if v.Tree == slot.Seq() && r.views.newest.Load() == v {
			return slot, snapshot{r.pages.At(v.Tree), v, max(at, v.Base)}
		}
		slot.Release()
		last = slot
	}
}

// look is register for tx, in its last place if that is free, unless the engine is closed.
func (r *readers) look(tx *pinned, upto *atomic.Uint64) error {
	tx.slot, tx.snap = r.register(tx.slot, upto)
	if r.closed.Load() {
		tx.slot.Release()
		return ErrClosed
	}
	return nil
}

// enter registers a user of the engine at the newest version of the tree, unless the engine is closed.
func (r *readers) enter() (lockfree.Slot, error) {
	slot := r.registry.Acquire(&r.views)
	if r.closed.Load() {
		slot.Release()
		return slot, ErrClosed
	}
	return slot, nil
}

// collectAfter is how long Close waits before it runs the garbage collector, to find transactions that were dropped
// without being ended.
const collectAfter = 100 * time.Millisecond

// awaitUsers returns when nobody but maintenance uses the engine.
func (r *readers) awaitUsers() {
	collect := time.Now().Add(collectAfter)
	for wait := time.Microsecond; r.used(); wait = min(2*wait, 10*time.Millisecond) {
		time.Sleep(wait)
		if time.Now().After(collect) {
			runtime.GC()
			collect = time.Now().Add(10 * collectAfter)
		}
	}
}

// used reports whether anybody but maintenance uses the engine. A user that moves from the registry, or from active,
// to unpinned is in at least one of them at any time, but used could miss it in both, since it reads one after the
// other. So it also checks that nobody was added to unpinned meanwhile. Other moves go in the order in which used
// looks: a commit from the registry to active and places, and from places to calls.
func (r *readers) used() bool {
	counts := r.unpinned.counts.Load()
	return r.unpinned.any() || r.registry.Count() > 0 || r.active.Load() > 0 || r.places.any() || r.calls.Load() > 0 || r.unpinned.counts.Load() != counts
}

// expireBelow asks the oldest reader to end if it is below the given Seq. The next reader is asked when that one has
// ended, or after roomWait.
func (r *readers) expireBelow(seq uint64) {
	now := time.Now().UnixNano()
	last := r.expired.Load()
	if now-last < int64(roomWait) && r.registry.Asked() {
		return
	}
	if oldest, ok := r.registry.Oldest(); ok && oldest.Seq() < seq && r.expired.CompareAndSwap(last, now) {
		oldest.Expire()
	}
}

// planFolds calls plan with the newest tree.
func (r *readers) planFolds(plan func(*override.Snapshot) ([]logstore.PageID, error)) ([]logstore.PageID, error) {
	slot := r.registry.Acquire(&r.views)
	defer slot.Release()
	snap := r.pages.At(slot.Seq())
	return plan(&snap)
}
