// Package ledger keeps the accounts of posted work that every provider owes its callers: which work requests are
// under way, in which order they complete, which completions wait to be polled, and which goroutine sleeps until
// there is one.
//
// Every posted operation completes, even if the connection fails. Completions come out of the ledger's own list and
// not from the hardware, because hardware has been seen to lose completions.
package ledger

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"flashdbm/servers/fabric"
)

// A Queue is a bounded fabric.Queue. Posted work reserves a slot, so a completion always finds room.
type Queue struct {
	depth int64
	taken atomic.Int64 // slots reserved by posted work whose completion has not been polled
	bell  Bell

	// mu guards the fields below. It is taken while the lock of an endpoint is held, or while no lock is held.
	mu     sync.Mutex
	ring   []completion // grows up to depth
	head   int
	ready  atomic.Int64 // completions in the ring; changes while mu is held, is read without
	closed atomic.Bool
}

type completion struct {
	wc    fabric.WC
	side  *Side
	frees int64 // slots that become free when this completion is polled
}

// NewQueue returns a queue for depth completions, at least 1, that rings the given bell; nil stands for a bell within
// this process.
func NewQueue(depth int, bell Bell) (*Queue, error) {
	if depth < 1 {
		return nil, fmt.Errorf("fabric: a queue for %d completions: want 1 at least", depth)
	}
	if bell == nil {
		bell = &channelBell{woken: make(chan struct{}, 1)}
	}
	return &Queue{depth: int64(depth), bell: bell}, nil
}

// reserve reserves a slot, and reports whether one was free.
func (q *Queue) reserve() bool {
	if q.taken.Add(1) <= q.depth {
		return true
	}
	q.taken.Add(-1)
	return false
}

// push adds a completion whose slot was reserved.
func (q *Queue) push(c completion) {
	q.mu.Lock()
	if q.closed.Load() {
		q.mu.Unlock()
		c.side.free(c.frees)
		return
	}
	n := int(q.ready.Load())
	if n == len(q.ring) {
		q.grow()
	}
	i := q.head + n
	if i >= len(q.ring) {
		i -= len(q.ring)
	}
	q.ring[i] = c
	q.ready.Add(1)
	q.mu.Unlock()
	q.bell.Wake()
}

func (q *Queue) grow() {
	larger := make([]completion, min(max(16, 2*len(q.ring)), int(q.depth)))
	n := copy(larger, q.ring[q.head:])
	copy(larger[n:], q.ring[:q.head])
	q.ring, q.head = larger, 0
}

// Poll implements fabric.Queue.
func (q *Queue) Poll(dst []fabric.WC) (n int) {
	if q.ready.Load() == 0 {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for n < len(dst) && q.ready.Load() > 0 {
		c := &q.ring[q.head]
		dst[n] = c.wc
		n++
		c.side.free(c.frees)
		*c = completion{}
		if q.head++; q.head == len(q.ring) {
			q.head = 0
		}
		q.ready.Add(-1)
	}
	return n
}

// Wait implements fabric.Queue.
func (q *Queue) Wait(ctx context.Context, spin int) error {
	for {
		for range max(spin, 0) + 1 {
			if q.closed.Load() {
				return fabric.ErrClosed
			}
			if q.bell.TakeNotified() || q.ready.Load() > 0 {
				return nil
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		q.bell.Sleep(ctx, func() bool { return q.ready.Load() == 0 && !q.closed.Load() })
	}
}

// Ready reports whether there is a completion.
func (q *Queue) Ready() bool { return q.ready.Load() > 0 }

// Closed reports whether Close was called.
func (q *Queue) Closed() bool { return q.closed.Load() }

// Wake implements fabric.Queue.
func (q *Queue) Wake() { q.bell.Notify() }

// Notify records that a peer has notified an endpoint of the queue.
func (q *Queue) Notify() { q.bell.Notify() }

// TakeNotified reports whether a peer has notified the queue since the last TakeNotified, or since Wait last returned
// because of a notification.
func (q *Queue) TakeNotified() bool { return q.bell.TakeNotified() }

// Close implements fabric.Queue: Wait returns ErrClosed, and later completions are dropped.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Swap(true) {
		return nil
	}
	for q.ready.Load() > 0 {
		c := &q.ring[q.head]
		c.side.free(c.frees)
		*c = completion{}
		q.head = (q.head + 1) % len(q.ring)
		q.ready.Add(-1)
	}
	q.ring = nil
	q.bell.Wake()
	return nil
}
