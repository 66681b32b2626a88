package commit

import (
	"context"
	"sync/atomic"
	"time"
)

// Gate keeps other transactions from being resolved while one that has lost too often tries alone. A transaction
// waits at the gate for at most gateWait, and for the right to close it for at most AloneWait. So a transaction
// that runs another one inside itself cannot hang for ever.
type Gate struct {
	closed atomic.Pointer[Closed]
	alone  chan struct{} // the right to close the gate; room for one, full while somebody has it
}

// Closed is a closed gate; it belongs to the goroutine that has closed the
// gate.
type Closed struct{ open chan struct{} }

// Longer: transactions that run within one another, and wait for each other at the gate, stand still for longer. Shorter:
// others may commit while the one that has closed the gate still tries, and it may lose to them again.
const (
	gateWait  = 100 * time.Millisecond
	AloneWait = time.Second
)

// Init must be called before any other method.
func (g *Gate) Init() { g.alone = make(chan struct{}, 1) }

// Close closes the gate to others. It returns nil if others kept it closed for AloneWait, or if ctx (which may be nil)
// has ended.
func (g *Gate) Close(ctx context.Context) *Closed {
	t := time.NewTimer(AloneWait)
	defer t.Stop()
	select {
	case g.alone <- struct{}{}:
	case <-t.C:
		return nil
	case <-done(ctx):
		return nil
	}
	c := &Closed{make(chan struct{})}
	g.closed.Store(c)
	return c
}

// Reopen opens the gate that Close has closed. A nil c does nothing.
func (g *Gate) Reopen(c *Closed) {
	if c == nil {
		return
	}
	g.closed.Store(nil)
	close(c.open)
	<-g.alone
}

// Pass waits while somebody else has closed the gate, for at most gateWait, or until ctx (which may be nil) ends.
// own is the result of the caller's own Close.
func (g *Gate) Pass(ctx context.Context, own *Closed) {
	if c := g.closed.Load(); c != nil && c != own {
		c.await(ctx)
	}
}

// done returns the channel that is closed when ctx ends; nil for no context.
func done(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	return ctx.Done()
}

// await is Pass for a gate that c has closed.
func (c *Closed) await(ctx context.Context) {
	t := time.NewTimer(gateWait)
	defer t.Stop()
	select {
	case <-c.open:
	case <-t.C:
	case <-done(ctx):
	}
}
