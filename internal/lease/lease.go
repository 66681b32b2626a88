// Package lease bounds how long transactions hold their snapshots.
package lease

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Lease is the right of a transaction to its snapshot, if that right is bounded in time. The right may be taken
// back between two calls of the transaction, never during a call, so calls must copy their results before Leave.
// If tracing is on, a Lease also records where the transaction began.
//
// The goroutine that sets state to gone releases the transaction's place in the registry. The changes of state
// are
//
//	idle -> busy -> idle    by Enter and Leave, on the transaction's own goroutine
//	idle -> gone            by TakeBack, or by Enter when the time is up
//	busy -> asked -> gone   by TakeBack, then by Leave
//	any  -> ended           by End; if it was gone, nothing is left to release
type Lease struct {
	state atomic.Uint32
	slot  Place
	began time.Time
	from  []uintptr // program counters of the beginning, if traced
}

// A Place is what a lease releases in the registry: a slot, or a share in one.
type Place interface {
	Seq() uint64
	Release()
}

const (
	idle = iota
	busy
	asked
	gone
	ended
)

// Table has the leases of all open transactions that have one. Any number of goroutines may use it.
type Table struct {
	mu   sync.Mutex // guards open; a leaf lock
	open map[*Lease]bool
}

const tracedFrames = 32

// Add returns a lease for a transaction that has the given place in the registry and began at the given time. Begin
// must call it directly: trace skips the frames of both.
func (t *Table) Add(slot Place, began time.Time, trace bool) *Lease {
	l := &Lease{slot: slot, began: began}
	if trace {
		l.from = make([]uintptr, tracedFrames)
		l.from = l.from[:runtime.Callers(3, l.from)] // without Add and Begin
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[*Lease]bool{}
	}
	t.open[l] = true
	return l
}

// Remove removes the lease. It must be called before the transaction ends.
func (t *Table) Remove(l *Lease) {
	t.mu.Lock()
	delete(t.open, l)
	t.mu.Unlock()
}

// Oldest returns the lease with the lowest Seq, and of several the one that began first; nil if there is none.
func (t *Table) Oldest() *Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	var oldest *Lease
	for l := range t.open {
		if s := l.state.Load(); s == gone || s == ended {
			continue
		}
		if oldest == nil || l.slot.Seq() < oldest.slot.Seq() || l.slot.Seq() == oldest.slot.Seq() && l.began.Before(oldest.began) {
			oldest = l
		}
	}
	return oldest
}

// Before returns the leases that began before the given time.
func (t *Table) Before(at time.Time) (old []*Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for l := range t.open {
		if l.began.Before(at) {
			old = append(old, l)
		}
	}
	return old
}

// Where returns the stack where the transaction began: for each frame a line with the function and a line with its
// place, innermost frame first.
func (l *Lease) Where() string {
	var b strings.Builder
	frames := runtime.CallersFrames(l.from)
	for more := len(l.from) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return b.String()
}

// Began returns when the transaction began.
func (l *Lease) Began() time.Time { return l.began }

// Enter begins a call of the transaction. It returns false if the lease is gone; if it is older than age, Enter
// first sets it to gone.
func (l *Lease) Enter(age time.Duration) bool {
	if time.Since(l.began) > age && l.state.CompareAndSwap(idle, gone) {
		l.slot.Release()
	}
	return l.state.CompareAndSwap(idle, busy)
}

// Leave ends a call of the transaction.
func (l *Lease) Leave() {
	if !l.state.CompareAndSwap(busy, idle) { // TakeBack has asked for it
		l.state.Store(gone)
		l.slot.Release()
	}
}

// End ends the lease. It reports whether the lease was gone; if not, the transaction has to release its place in
// the registry.
func (l *Lease) End() (lost bool) { return l.state.Swap(ended) == gone }

// Gone reports whether the lease was taken back.
func (l *Lease) Gone() bool { return l.state.Load() == gone }

// Succeed gives the lease, which belongs to a newer snapshot, the state of the old one. Both belong to one
// transaction, which is in the middle of a call.
func (l *Lease) Succeed(old *Lease) { l.state.Store(old.state.Load()) }

// TakeBack takes the snapshot from an open transaction: at once, or at the end of the present call. It returns false
// if that was done before, or the transaction has ended. If a call begins or ends between its two attempts, both fail,
// and it tries again.
func (l *Lease) TakeBack() (taken bool) {
	for {
		if l.state.CompareAndSwap(idle, gone) {
			l.slot.Release()
			return true
		}
		if l.state.CompareAndSwap(busy, asked) {
			return true
		}
		if l.state.Load() > busy {
			return false
		}
	}
}
