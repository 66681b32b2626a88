package mvcc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// waiters lets goroutines wait for a watermark to move. Broadcasting costs one load while nobody waits.
type waiters struct {
	count atomic.Int32
	mu    sync.Mutex
	ch    chan struct{} // closed by the next broadcast
}

func (w *waiters) init() { w.ch = make(chan struct{}) }

// broadcast wakes all who wait. The watermark has moved before.
func (w *waiters) broadcast() {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	close(w.ch)
	w.ch = make(chan struct{})
	w.mu.Unlock()
}

// until waits until done is true, which a broadcast follows. It looks again at least every 10 ms.
func (w *waiters) until(done func() bool) {
	for {
		moved, leave := w.join()
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

// join returns what the next broadcast closes, and what ends the waiting for it. The watermark is looked at in between.
func (w *waiters) join() (moved <-chan struct{}, leave func()) {
	w.count.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ch, w.leave
}

func (w *waiters) leave() { w.count.Add(-1) }

// gate keeps other transactions from being resolved while one that has lost too often tries alone. Nobody waits at it longer than
// gateWait, nor longer than aloneWait to close it, so a transaction that runs another inside itself cannot hang for ever.
type gate struct {
	closed atomic.Pointer[closedGate]
	alone  chan struct{} // the right to close it; room for one, full while somebody has it
}

type closedGate struct{ open chan struct{} }

const (
	gateWait  = 100 * time.Millisecond
	aloneWait = time.Second
)

func (g *gate) init() { g.alone = make(chan struct{}, 1) }

// close closes the gate for others, or returns nil if somebody else keeps it closed for too long.
func (g *gate) close(ctx context.Context) *closedGate {
	t := time.NewTimer(aloneWait)
	defer t.Stop()
	select {
	case g.alone <- struct{}{}:
	case <-t.C:
		return nil
	case <-ctx.Done():
		return nil
	}
	c := &closedGate{make(chan struct{})}
	g.closed.Store(c)
	return c
}

// reopen takes back what close returned.
func (g *gate) reopen(c *closedGate) {
	if c == nil {
		return
	}
	g.closed.Store(nil)
	close(c.open)
	<-g.alone
}

// pass waits at a gate that is not the transaction's own. It returns the error of the context if that has ended.
func (g *gate) pass(tx *Tx) error {
	if c := g.closed.Load(); c != nil && c != tx.gate {
		t := time.NewTimer(gateWait)
		defer t.Stop()
		var over <-chan struct{}
		if tx.ctx != nil {
			over = tx.ctx.Done()
		}
		select {
		case <-c.open:
		case <-t.C:
		case <-over:
		}
	}
	return tx.cancelled()
}

// cancelled returns the error of the transaction's context if that has ended.
func (tx *Tx) cancelled() error {
	if tx.ctx == nil {
		return nil
	}
	return tx.ctx.Err()
}
