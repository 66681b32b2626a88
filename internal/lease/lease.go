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

// A Lease is what a transaction has of its snapshot where that is bounded in time. It may be taken back between two calls of the transaction,
// never during one, so what calls return must be copies, made before Leave. Where beginnings are traced it says where that was, too.
//
// state decides who releases the transaction's place in the registry: whoever sets it to gone. It moves
//
//	idle -> busy -> idle    by Enter and Leave, the transaction's own goroutine
//	idle -> gone            by TakeBack, or by Enter when the time is up
//	busy -> asked -> gone   by TakeBack, then by Leave
//	any  -> ended           by End; from gone, nothing is left to release
type Lease struct {
	state atomic.Uint32
	slot  Place
	began time.Time
	from  []uintptr // program counters, if traced
}

// A Place is what the lease of a transaction gives up in the registry: a slot, or a part in one.
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

// Table has the leases of all open transactions that have one. Any goroutine may use it.
type Table struct {
	mu   sync.Mutex // guards open; nothing else is locked under it
	open map[*Lease]bool
}

const tracedFrames = 32

// Add returns the lease of a transaction that has the place in the registry and began at a time. Its Begin calls it.
func (t *Table) Add(slot Place, began time.Time, trace bool) *Lease {
	l := &Lease{slot: slot, began: began}
	if trace {
		l.from = make([]uintptr, tracedFrames)
		l.from = l.from[:runtime.Callers(3, l.from)] // without this, and Begin
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[*Lease]bool{}
	}
	t.open[l] = true
	return l
}

// Remove comes before the transaction ends.
func (t *Table) Remove(l *Lease) {
	t.mu.Lock()
	delete(t.open, l)
	t.mu.Unlock()
}

// Oldest returns the lease at the least Seq, and of those at the same the first; nil if there is none.
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

// Before returns the leases that began before a time.
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

// Where says where a transaction began: a function and its place on two lines each, innermost first.
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

// Enter begins a call of the transaction, unless the lease is gone, or is older than its age and goes now.
func (l *Lease) Enter(age time.Duration) bool {
	if time.Since(l.began) > age && l.state.CompareAndSwap(idle, gone) {
		l.slot.Release()
	}
	return l.state.CompareAndSwap(idle, busy)
}

// Leave ends a call of the transaction.
func (l *Lease) Leave() {
	if !l.state.CompareAndSwap(busy, idle) { // asked for
		l.state.Store(gone)
		l.slot.Release()
	}
}

// End ends the lease, and reports whether it was gone: else the transaction has its place in the registry to release.
func (l *Lease) End() (lost bool) { return l.state.Swap(ended) == gone }

// Gone reports whether the lease was taken back.
func (l *Lease) Gone() bool { return l.state.Load() == gone }

// Succeed makes the lease, of a newer snapshot, that of the call which the transaction of another one is in.
func (l *Lease) Succeed(old *Lease) { l.state.Store(old.state.Load()) }

// TakeBack ends the snapshot of an open transaction, at the latest when the call that it is in ends.
func (l *Lease) TakeBack() (taken bool) {
	if l.state.CompareAndSwap(idle, gone) {
		l.slot.Release()
		return true
	}
	return l.state.CompareAndSwap(busy, asked)
}
