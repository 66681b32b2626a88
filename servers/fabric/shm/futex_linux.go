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

// The places of a bell's page.
const (
	bellNotified = 0 * words.Size // 1 if a peer has notified the queue
	bellSleeping = 8 * words.Size // 1 if somebody is about to sleep, or does; on another cache line, as others write there
	bellFutex    = 16 * words.Size
	bellSize     = 4096
)

// longestSleep bounds what a peer that disturbs a bell can do: it delays a wake by so much.
const longestSleep = 100 * time.Millisecond

// A bell is a ledger.Bell that peers of other processes ring.
type bell struct {
	mem memfd
}

func newBell() (*bell, error) {
	mem, err := newMemfd("bell", bellSize)
	if err != nil {
		return nil, err
	}
	b := &bell{mem}
	// A goroutine may still be in Wait when the queue is closed, so the page goes with the last reference.
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
	// The number is read before the last look: who makes that look out of date changes the number, and the sleep ends at once.
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

// ringOnce ends a sleep whether anybody has announced it or not.
func (b *bell) ringOnce() { ring(b.mem.b) }

// notify has the queue of a bell's page notified.
func notify(page []byte) {
	words.Store(page, bellNotified, 1) // before the look at bellSleeping
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
