package commit

import (
	"sync"
	"sync/atomic"
	"time"
)

// Waiters lets goroutines wait until a watermark moves. Broadcast costs one load while nobody waits.
type Waiters struct {
	count atomic.Int32
	mu    sync.Mutex
	ch    chan struct{} // the next broadcast closes it
}

// Init must be called before any other method.
func (w *Waiters) Init() { w.ch = make(chan struct{}) }

// Broadcast wakes all waiting goroutines. The caller has moved the watermark before.
func (w *Waiters) Broadcast() {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	close(w.ch)
	w.ch = make(chan struct{})
	w.mu.Unlock()
}

// Until waits until done returns true. It calls done after each broadcast, and at least every 10 ms.
func (w *Waiters) Until(done func() bool) {
	for {
		moved, leave := w.Join()
		if done() {
			leave()
			return
		}
		select {
		case <-moved:
		case <-time.After(10 * time.Millisecond):
		}
		leave()
	}
}

// Join returns a channel that the next broadcast closes, and a function that ends the waiting. The caller looks at
// the watermark after Join and before it waits.
func (w *Waiters) Join() (moved <-chan struct{}, leave func()) {
	w.count.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ch, w.leave
}

func (w *Waiters) leave() { w.count.Add(-1) }

// Any reports whether a goroutine waits.
func (w *Waiters) Any() bool { return w.count.Load() > 0 }
