package ledger

import (
	"context"
	"sync/atomic"
)

// A Bell wakes the goroutine that waits on a queue. All methods may be called at any time; Sleep and TakeNotified by that goroutine only.
type Bell interface {
	// Wake ends a Sleep under way.
	Wake()
	// Notify does the same, and is remembered until TakeNotified.
	Notify()
	// TakeNotified reports whether there was a Notify since it was asked last.
	TakeNotified() bool
	// Sleep returns once Wake or Notify is called, or the context ends; at once if there was a Notify, or idle is false. It may return
	// without any reason. Sleep announces itself before it asks idle, and Wake looks for sleepers after whatever makes idle false: one of
	// the two sees the other.
	Sleep(ctx context.Context, idle func() bool)
}

// channelBell is a bell for the goroutines of this process.
type channelBell struct {
	notified atomic.Bool
	sleeping atomic.Bool   // somebody is about to receive from woken, or does
	woken    chan struct{} // of capacity 1
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
