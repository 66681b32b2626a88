package mvcc

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/lockfree"
)

// LeaseOptions say how transactions hold their snapshots.
type LeaseOptions struct {
	MaxAge time.Duration // from which on a transaction is told ErrSnapshotTooOld; 0 = none
	Trace  bool          // remember where transactions began
}

// A lease is what a transaction has of its snapshot where that is bounded in time (LeaseOptions.MaxAge). It may be taken back between two
// calls of the transaction, never during one, so what calls return must be copies, made before Leave. Where beginnings are traced it
// says where that was, too.
//
// state decides who releases the transaction's place in the registry: whoever sets it to leaseGone. It moves
//
//	idle -> busy -> idle    by Enter and Leave, the transaction's own goroutine
//	idle -> gone            by the keeper, or by Enter when the time is up
//	busy -> asked -> gone   by the keeper, then by Leave
//	any  -> ended           by Commit or Rollback; from gone, nothing is left to release
type lease struct {
	state atomic.Uint32
	slot  lockfree.Slot
	began time.Time
	from  []uintptr // program counters, if traced
}

const (
	leaseIdle = iota
	leaseBusy
	leaseAsked
	leaseGone
	leaseEnded
)

// leases are those of all open transactions that have one.
type leases struct {
	mu   sync.Mutex // guards open; nothing else is locked under it
	open map[*lease]bool
}

const tracedFrames = 32

func (ls *leases) add(slot lockfree.Slot, now time.Time, trace bool) *lease {
	l := &lease{slot: slot, began: now}
	if trace {
		l.from = make([]uintptr, tracedFrames)
		l.from = l.from[:runtime.Callers(3, l.from)] // without this, and Begin
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.open == nil {
		ls.open = map[*lease]bool{}
	}
	ls.open[l] = true
	return l
}

func (ls *leases) remove(l *lease) {
	ls.mu.Lock()
	delete(ls.open, l)
	ls.mu.Unlock()
}

// oldest returns the lease at the least Seq, and of those at the same the first; nil if there is none.
func (ls *leases) oldest() *lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var oldest *lease
	for l := range ls.open {
		if s := l.state.Load(); s == leaseGone || s == leaseEnded {
			continue
		}
		if oldest == nil || l.slot.Seq() < oldest.slot.Seq() || l.slot.Seq() == oldest.slot.Seq() && l.began.Before(oldest.began) {
			oldest = l
		}
	}
	return oldest
}

// before returns the leases that began before a time.
func (ls *leases) before(t time.Time) (old []*lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.open {
		if l.began.Before(t) {
			old = append(old, l)
		}
	}
	return old
}

// where says where a transaction began: a function and its place on two lines each, innermost first.
func (l *lease) where() string {
	var b strings.Builder
	frames := runtime.CallersFrames(l.from)
	for more := len(l.from) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return b.String()
}

// Aging reports whether the age of the transaction is bounded: its reads are to be between Enter and Leave.
func (tx *Tx) Aging() bool { return tx.lease != nil && tx.e.opts.Leases.MaxAge > 0 }

// Enter begins a call of a transaction whose age is bounded; Leave ends it. ErrSnapshotTooOld: the snapshot has been given up.
func (tx *Tx) Enter() error {
	l := tx.lease
	if time.Since(l.began) > tx.e.opts.Leases.MaxAge && l.state.CompareAndSwap(leaseIdle, leaseGone) {
		tx.slot.Release()
	}
	if !l.state.CompareAndSwap(leaseIdle, leaseBusy) {
		return ErrSnapshotTooOld
	}
	return nil
}

// Leave: see Enter.
func (tx *Tx) Leave() {
	if l := tx.lease; !l.state.CompareAndSwap(leaseBusy, leaseIdle) { // asked for
		l.state.Store(leaseGone)
		tx.slot.Release()
	}
}

// endLease comes before a transaction ends. If that has lost its snapshot it is over: lost, and ErrSnapshotTooOld or what went wrong. One
// that has read nothing depends on no snapshot, and goes on with a new place in the registry.
func (tx *Tx) endLease() (lost bool, err error) {
	l, e := tx.lease, tx.e
	if l == nil {
		return false, nil
	}
	e.leases.remove(l)
	if l.state.Swap(leaseEnded) != leaseGone {
		return false, nil
	}
	if tx.slot, err = e.enter(&e.applied); err != nil { // closed: all that it saw is on the disk
		tx.forget()
		return true, err
	}
	if tx.blind() && !tx.readOnly {
		return false, nil
	}
	err = tx.settleSnapshot(nil)
	tx.end()
	if err == nil {
		err = ErrSnapshotTooOld
	}
	return true, err
}

// toFile comes before a transaction writes to the file by itself. Where its place in the registry may be taken back meanwhile, or is lost
// already, Close would not see it there: until it has left the unpinned it is one of them. ErrClosed if Close may have looked already.
func (tx *Tx) toFile() error {
	e := tx.e
	e.unpinned.enter()
	if l := tx.lease; l != nil && l.state.Load() == leaseGone && e.closed.Load() {
		e.unpinned.leave()
		return ErrClosed
	}
	return nil
}

// takeBack ends the snapshot of an open transaction, at the latest when the call that it is in ends.
func (l *lease) takeBack() (taken bool) {
	if l.state.CompareAndSwap(leaseIdle, leaseGone) {
		l.slot.Release()
		return true
	}
	return l.state.CompareAndSwap(leaseBusy, leaseAsked)
}

// endOldSnapshots takes back what is older than allowed, and frees what was kept for it.
func (e *Engine) endOldSnapshots() error {
	now := time.Now()
	taken := false
	for _, l := range e.leases.before(now.Add(-e.opts.Leases.MaxAge)) {
		if l.takeBack() {
			taken = true
			e.opts.Logger.Warn("flashdbm: a transaction was open longer than allowed and has lost its snapshot", "path", e.Path(),
				"age", now.Sub(l.began), "held_bytes", e.store.HeldBytes(), "began", l.where())
		}
	}
	if !taken {
		return nil
	}
	return e.withBaton(func() error {
		if err := e.Failed(); err != nil {
			return err
		}
		e.reclaim()
		return nil
	})
}

// warnAge is the age from which the log says that a snapshot holds back space, and how often.
const warnAge = time.Minute

// warnOfOldSnapshot writes into the log what an old snapshot holds back; last is when it did so.
func (e *Engine) warnOfOldSnapshot(now, last time.Time) time.Time {
	oldest, ok := e.registry.Oldest()
	if !ok || oldest.Since() == 0 || now.Sub(last) < warnAge {
		return last
	}
	age, held := now.Sub(time.Unix(0, oldest.Since())), e.store.HeldBytes()
	if age < warnAge || held == 0 {
		return last
	}
	began := ""
	if l := e.leases.oldest(); l != nil {
		began = l.where()
	}
	e.opts.Logger.Warn("flashdbm: an old transaction holds back space", "path", e.Path(), "age", age, "held_bytes", held, "began", began)
	return now
}
