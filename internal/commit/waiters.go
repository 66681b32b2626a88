package commit

import (
	"sync"
	"sync/atomic"
	"time"
)

// Waiters lets goroutines wait for a watermark to move. Broadcasting costs one load while nobody waits.
type Waiters struct {
	count atomic.Int32
	mu    sync.Mutex
	ch    chan struct{} // closed by the next broadcast
}

// Init comes before anything else.
func (w *Waiters) Init() { w.ch = make(chan struct{}) }

// Broadcast wakes all who wait. The watermark has moved before.
func (w *Waiters) Broadcast() {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	close(w.ch)
	w.ch = make(chan struct{})
	w.mu.Unlock()
}

// Until waits until done is true, which a broadcast follows. It looks again at least every 10 ms.
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

// Join returns what the next broadcast closes, and what ends the waiting for it. The watermark is looked at in between.
func (w *Waiters) Join() (moved <-chan struct{}, leave func()) {
	w.count.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ch, w.leave
}

func (w *Waiters) leave() { w.count.Add(-1) }

// Any reports whether somebody waits.
func (w *Waiters) Any() bool { return w.count.Load() > 0 }
