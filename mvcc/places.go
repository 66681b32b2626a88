package mvcc

import (
	"context"
	"sync/atomic"
)

// places counts the asynchronous commits under way: those that have entered and whose callbacks have not been called.
// They are two counters, each written by one side, because a word that callers and the callback goroutine both write
// goes from processor to processor twice with each commit: with a channel as the semaphore, a goroutine with 5,000
// Buffered commits under way made a 20th fewer.
//
// Invariants:
//
//  1. At most asyncBacklog commits are under way. seen is never above left, so at worst it shows too many, and enter
//     then looks at left itself.
//  2. Nobody waits for ever. A caller counts itself in waiting before it looks at left, and leave looks at waiting after
//     it has counted, so at least one of the two sees the other. freed may tell fewer than have left, but while callers
//     wait, commits are under way that will leave.
type places struct {
	entered atomic.Int64
	seen    atomic.Int64 // left when a caller last looked
	_       [64]byte     // what follows is on another cache line
	left    atomic.Int64
	waiting atomic.Int32  // callers of await
	freed   chan struct{} // tells one of them that a commit has left; room for one
	_       [64]byte      // likewise: callers read what follows in readers
}

// any reports whether commits are under way.
func (p *places) any() bool { return p.left.Load() != p.entered.Load() } // in this order: left is never above entered

// enter takes a place unless all are taken.
func (p *places) enter() bool {
	for {
		n := p.entered.Load()
		if n-p.seen.Load() >= asyncBacklog {
			left := p.left.Load()
			p.seen.Store(left)
			if n-left >= asyncBacklog {
				return false
			}
		}
		if p.entered.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// await takes a place as soon as there is one. If ctx ends before, it returns the context's error.
func (p *places) await(ctx context.Context) error {
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	for !p.enter() {
		select {
		case <-p.freed:
		case <-ended(ctx):
			return ctx.Err()
		}
	}
	return nil
}

// leave gives a place back.
func (p *places) leave() {
	p.left.Add(1)
	if p.waiting.Load() > 0 {
		select {
		case p.freed <- struct{}{}:
		default:
		}
	}
}
