//go:build verbs

package verbs

// #include <stdlib.h>
// #include "link.h"
import "C"

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
)

// A queue is a fabric.Queue. It is a queue of libfabric, whose completions several goroutines move into the ledger's
// queue: the user, in Poll and Wait; the watcher, a goroutine of the queue, while the user sleeps; and the timer of
// an endpoint, because a user may wait for Done only.
type queue struct {
	*ledger.Queue
	d     *Domain
	ready *descriptor

	// reading guards cq, and completions between cq and the ledger: they enter the ledger in the order in which they
	// are read. An endpoint's lock is taken while reading is held, never the other way round.
	reading sync.Mutex
	cq      *C.struct_fid_cq // nil once it is closed
	wc      *[batch]C.vf_wc  // outside the Go heap

	room   atomic.Int64  // free places of cq, beyond those of the operations in libfabric
	users  atomic.Int64  // 1 for the queue until Close, and 1 for each endpoint that has not ended
	wanted atomic.Int64  // the number of users that sleep
	bells  atomic.Bool   // a peer may sleep until an operation completes
	watch  chan struct{} // capacity 1: wanted has grown
	gone   chan struct{} // closed with cq
	closed sync.Once
}

// batch is the most completions, or work requests, that one call between Go and C passes.
const batch = 64

// NewQueue implements fabric.Domain.
func (d *Domain) NewQueue(depth int) (fabric.Queue, error) {
	inner, err := ledger.NewQueue(depth, nil)
	if err != nil {
		return nil, err
	}
	q := &queue{Queue: inner, d: d, watch: make(chan struct{}, 1), gone: make(chan struct{})}
	q.users.Store(1)
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	d.queues.Add(1)
	var fd C.int
	size := C.size_t(depth)
	if r := C.vf_queue(d.c, &size, &q.cq, &fd); r != 0 {
		d.queues.Done()
		return nil, fmt.Errorf("fabric: a queue for %d completions: %w", depth, failure("open", r))
	}
	q.room.Store(int64(size))
	q.wc = (*[batch]C.vf_wc)(C.calloc(batch, C.sizeof_vf_wc))
	if q.ready, err = watchDescriptor(int(fd), "completions"); err != nil {
		q.free()
		return nil, err
	}
	if !d.limits.OneSided {
		q.wanted.Add(1) // this provider of libfabric makes progress only while its queues are read
		q.wake()
	}
	go q.run()
	if err := d.open.Keep(q); err != nil {
		return nil, err
	}
	return q, nil
}

// take takes up to n places of libfabric's queue, and returns how many.
func (q *queue) take(n int) int {
	for room := q.room.Load(); room > 0; room = q.room.Load() {
		n = min(n, int(room))
		if q.room.CompareAndSwap(room, room-int64(n)) {
			return n
		}
	}
	return 0
}

// give gives n places back.
func (q *queue) give(n int) { q.room.Add(int64(n)) }

// Account returns the ledger's queue, for ledger.Of.
func (q *queue) Account() *ledger.Queue { return q.Queue }

// reap moves at most batch completions from libfabric's queue into the ledger, and returns their number.
func (q *queue) reap() int {
	q.reading.Lock()
	defer q.reading.Unlock()
	if q.cq == nil {
		return 0
	}
	n := int(C.vf_poll(q.cq, &q.wc[0], batch))
	for i := range max(n, 0) {
		if wc := &q.wc[i]; q.d.lose == nil || !q.d.lose(uint64(wc.context)) {
			q.d.completed(wc)
		}
	}
	return n
}

// Poll implements fabric.Queue.
func (q *queue) Poll(dst []fabric.WC) int {
	q.reap()
	return q.Queue.Poll(dst)
}

// Wait implements fabric.Queue.
func (q *queue) Wait(ctx context.Context, spin int) error {
	for range max(spin, 0) + 1 {
		q.reap()
		if q.Closed() {
			return fabric.ErrClosed
		}
		if q.TakeNotified() || q.Ready() {
			return nil
		}
	}
	q.wanted.Add(1)
	defer q.wanted.Add(-1)
	q.wake()
	return q.Queue.Wait(ctx, 0)
}

// wake makes the watcher check wanted and bells.
func (q *queue) wake() {
	select {
	case q.watch <- struct{}{}:
	default:
	}
}

// hurry makes the watcher read the queue until the next completion.
func (q *queue) hurry() {
	if q.bells.Swap(true) {
		return
	}
	q.wake()
}

// run is the watcher.
func (q *queue) run() {
	for {
		select {
		case <-q.watch:
		case <-q.gone:
			return
		}
		for q.bells.Swap(false) || q.wanted.Load() > 0 {
			if !q.sleep() {
				break
			}
			q.reap()
		}
	}
}

// sleep returns true once there may be a completion in libfabric's queue, and false once that queue is closed.
func (q *queue) sleep() bool {
	for {
		q.reap()
		q.reading.Lock()
		armed := C.int(-1)
		if q.cq != nil {
			armed = C.vf_arm(q.d.c, q.cq)
		}
		q.reading.Unlock()
		if armed != 0 {
			return armed > 0 && q.ready.wait() == nil
		}
	}
}

// Close implements fabric.Queue. libfabric's queue is closed when the last endpoint that uses it has ended.
func (q *queue) Close() error {
	q.closed.Do(func() {
		q.Queue.Close()
		q.d.open.Forget(q)
		q.release()
	})
	return nil
}

// retain begins the use of the queue by an endpoint. It returns false if the queue is closed.
func (q *queue) retain() bool {
	for n := q.users.Load(); n > 0; n = q.users.Load() {
		if q.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// release ends a use of the queue. It may be called while the queue's locks are held.
func (q *queue) release() {
	if q.users.Add(-1) == 0 {
		go q.free()
	}
}

func (q *queue) free() {
	if q.ready != nil {
		q.ready.close()
	}
	q.reading.Lock()
	C.vf_queue_close(q.cq)
	C.free(unsafe.Pointer(q.wc))
	q.cq = nil
	q.reading.Unlock()
	close(q.gone)
	q.d.queues.Done()
}
