package ledger

import (
	"context"
	"sync/atomic"
)

// A Bell wakes the goroutine that waits on a queue. Any goroutine may call Wake and Notify at any time; only the
// waiting goroutine calls Sleep and TakeNotified.
type Bell interface {
	// Wake ends a Sleep under way.
	Wake()
	// Notify ends a Sleep under way, and is remembered until TakeNotified.
	Notify()
	// TakeNotified reports whether Notify was called since the last TakeNotified.
	TakeNotified() bool
	// Sleep returns once Wake or Notify is called, or the context ends. It returns at once if Notify was called
	// before or if idle returns false, and may return without any reason. No wake-up is lost: Sleep announces itself
	// before it calls idle, and a waker makes idle false before it calls Wake, which looks for sleepers. So Sleep
	// sees the change, or Wake sees the sleeper.
	Sleep(ctx context.Context, idle func() bool)
}

// channelBell is a Bell for goroutines of this process.
type channelBell struct {
	notified atomic.Bool
	sleeping atomic.Bool   // a goroutine is about to receive from woken, or does
	woken    chan struct{} // capacity 1
}

func (b *channelBell) Wake() {
	if b.sleeping.Load() {
		select {
		case b.woken <- struct{}{}:
		default:
		}
	}
}

func (b *channelBell) Notify() {
	b.notified.Store(true)
	b.Wake()
}

func (b *channelBell) TakeNotified() bool { return b.notified.Load() && b.notified.Swap(false) }

func (b *channelBell) Sleep(ctx context.Context, idle func() bool) {
	b.sleeping.Store(true)
	defer b.sleeping.Store(false)
	if b.notified.Load() || !idle() {
		return
	}
	select {
	case <-b.woken:
	case <-ctx.Done():
	}
}
