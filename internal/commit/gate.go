package commit

import (
	"context"
	"sync/atomic"
	"time"
)

// Gate keeps other transactions from being resolved while one that has lost too often tries alone. Nobody waits at it longer than
// gateWait, nor longer than AloneWait to close it, so a transaction that runs another inside itself cannot hang for ever.
type Gate struct {
	closed atomic.Pointer[Closed]
	alone  chan struct{} // the right to close it; room for one, full while somebody has it
}

// Closed is the gate while somebody has it closed.
type Closed struct{ open chan struct{} }

const (
	gateWait  = 100 * time.Millisecond
	AloneWait = time.Second
)

// Init comes before anything else.
func (g *Gate) Init() { g.alone = make(chan struct{}, 1) }

// Close closes the gate for others, or returns nil if somebody else keeps it closed for too long.
func (g *Gate) Close(ctx context.Context) *Closed {
	t := time.NewTimer(AloneWait)
	defer t.Stop()
	select {
	case g.alone <- struct{}{}:
	case <-t.C:
		return nil
	case <-ctx.Done():
		return nil
	}
	c := &Closed{make(chan struct{})}
	g.closed.Store(c)
	return c
}

// Reopen takes back what Close returned.
func (g *Gate) Reopen(c *Closed) {
	if c == nil {
		return
	}
	g.closed.Store(nil)
	close(c.open)
	<-g.alone
}

// Pass waits at a gate that is not one's own, no longer than the context lasts, if there is any.
func (g *Gate) Pass(ctx context.Context, own *Closed) {
	if c := g.closed.Load(); c != nil && c != own {
		t := time.NewTimer(gateWait)
		defer t.Stop()
		var over <-chan struct{}
		if ctx != nil {
			over = ctx.Done()
		}
		select {
		case <-c.open:
		case <-t.C:
		case <-over:
		}
	}
}
