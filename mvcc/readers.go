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

// readers are those who use the engine.
type readers struct {
	*file
	registry  lockfree.Registry
	views     views
	leases    lease.Table
	unpinned  unpinned     // transactions that wait for admission, or write to the file, and may not be in the registry meanwhile
	active    atomic.Int32 // commits that were admitted and are not settled, and those of WriteOne from their beginning to their end
	calls     atomic.Int32 // commits that have ceased to be active and are to be called back for: see async.go
	closed    atomic.Bool  // Close was called,
	ending    atomic.Bool  // and nobody uses the engine any more
	expired   atomic.Int64 // when a reader was last asked to end for want of room
	conflicts atomic.Uint64
}

// unpinned counts those that use the engine and are not in the registry: how many they are, in the lower half, and in the upper one how many
// ever were.
type unpinned struct{ counts atomic.Uint64 }

const oneUnpinned = 1<<32 + 1

func (u *unpinned) enter() { u.counts.Add(oneUnpinned) }

func (u *unpinned) leave() { u.counts.Add(^uint64(0)) }

func (u *unpinned) any() bool { return uint32(u.counts.Load()) > 0 }

// register registers a reader, in the place that was used for last, and returns what there is to read up to a watermark.
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

// look is register unless the engine is closed.
func (r *readers) look(last lockfree.Slot, upto *atomic.Uint64) (lockfree.Slot, snapshot, error) {
	slot, s := r.register(last, upto)
	if r.closed.Load() {
		slot.Release()
		return slot, s, ErrClosed
	}
	return slot, s, nil
}

// enter registers a user of the engine at the newest version of the tree, unless it is closed.
func (r *readers) enter() (lockfree.Slot, error) {
	slot := r.registry.Acquire(&r.views)
	if r.closed.Load() {
		slot.Release()
		return slot, ErrClosed
	}
	return slot, nil
}

// collectAfter is how long Close waits before it has the collector look for transactions that were dropped without being ended.
const collectAfter = 100 * time.Millisecond

// awaitUsers returns when nobody uses the engine but maintenance.
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

// used reports whether anybody but maintenance uses the engine. Who goes to the unpinned from the registry, or from the active, while both are
// looked at is in one of them all the time, and could be missed in both: so it counts how many ever went. Who goes from the active to the calls is
// among these first, and they are looked at behind the active.
func (r *readers) used() bool {
	counts := r.unpinned.counts.Load()
	return r.unpinned.any() || r.active.Load() > 0 || r.calls.Load() > 0 || r.registry.Count() > 0 || r.unpinned.counts.Load() != counts
}

// expireBelow asks the oldest reader to end if it is below the given Seq. The next one is asked when it has, or has not for a while.
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
