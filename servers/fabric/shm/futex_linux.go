package shm

import (
	"context"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"flashdbm/servers/fabric/words"
)

// The offsets of a bell's page.
const (
	bellNotified = 0 * words.Size // 1 if a peer has notified the queue
	// bellSleeping: 1 if a goroutine sleeps or is about to; on a cache line of its own, because peers write
	// bellNotified
	bellSleeping = 8 * words.Size
	bellFutex    = 16 * words.Size
	bellSize     = 4096
)

// longestSleep bounds the harm of a peer that disturbs a bell: a wake-up is delayed by at most this.
const longestSleep = 100 * time.Millisecond

// A bell is a ledger.Bell that peers in other processes can ring.
type bell struct {
	mem memfd
}

func newBell() (*bell, error) {
	mem, err := newMemfd("bell", bellSize)
	if err != nil {
		return nil, err
	}
	b := &bell{mem}
	// A goroutine may still be in Wait when the queue is closed, so the page is freed with the last reference.
	runtime.AddCleanup(b, func(m memfd) { m.free() }, mem)
	return b, nil
}

func (b *bell) Wake()   { wake(b.mem.b) }
func (b *bell) Notify() { notify(b.mem.b) }

func (b *bell) TakeNotified() bool {
	return words.Load(b.mem.b, bellNotified) != 0 && words.Swap(b.mem.b, bellNotified, 0) != 0
}

func (b *bell) Sleep(ctx context.Context, idle func() bool) {
	words.Store(b.mem.b, bellSleeping, 1)
	defer words.Store(b.mem.b, bellSleeping, 0)
	// Sleep reads the number before its last check. A goroutine that makes that check outdated increments the number,
	// so the sleep ends at once.
	n := atomic.LoadUint32(futex(b.mem.b))
	if words.Load(b.mem.b, bellNotified) != 0 || !idle() {
		return
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, b.ringOnce)()
	}
	limit := unix.NsecToTimespec(longestSleep.Nanoseconds())
	const wait = 0 // FUTEX_WAIT, between processes
	syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(futex(b.mem.b))), wait, uintptr(n), uintptr(unsafe.Pointer(&limit)), 0, 0)
	runtime.KeepAlive(b)
}

// ringOnce ends a sleep even if bellSleeping is not set.
func (b *bell) ringOnce() { ring(b.mem.b) }

// notify marks the queue of a bell's page as notified, and wakes its goroutine.
func notify(page []byte) {
	words.Store(page, bellNotified, 1) // before the load of bellSleeping
	wake(page)
}

func wake(page []byte) {
	if words.Load(page, bellSleeping) != 0 {
		ring(page)
	}
}

func ring(page []byte) {
	atomic.AddUint32(futex(page), 1)
	const futexWake, one = 1, 1
	syscall.Syscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(futex(page))), futexWake, one)
}

func futex(page []byte) *uint32 { return (*uint32)(unsafe.Pointer(&page[bellFutex])) }
