package machine

import (
	"errors"
	"fmt"

	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/shard"
	"flashdbm/servers/wire"
)

// A goroutine of the node's own process calls a shard without a message, through a line of package hydra. If the
// shard's thread sleeps, the goroutine serves the shard itself: that saves the wake-up of the thread, and its own. If
// another goroutine or the thread is serving the shard, that one serves the request too.
//
// Invariants:
//
//  1. The holder of runner.own serves the shard, and nobody else touches the shard, its groups or the far ends of its
//     lines. The thread holds own except while it sleeps. So one goroutine at a time serves a shard, and it does what
//     the thread does: it sweeps, reads the clock after the poll, and answers in order.
//  2. No request is left in a line. A caller sets called when its request is in the line, and then tries own. If that
//     fails, the holder reads called after it has released own, which is later: either it sees called set, or its
//     last sweep began after called was set, and that sweep checked the line.
//  3. The thread stays in the state in which it went to sleep: each peer has an armed number and notifies the thread
//     of what it sends. A borrower (a goroutine that serves the shard while the thread sleeps) takes messages and
//     completions but changes no armed number, so the thread wakes for everything for which it would have woken. At
//     worst it finds nothing left to do.
//  4. A borrower bounds its work, and wakes the thread for the remainder: more than the given number of sweeps,
//     requests that the shard does not take at present (quiet time, backlog), and work that is due before the thread
//     would wake by itself.
//  5. Close ends the thread, which never releases own again; only then are the shard and its lines closed. So no
//     goroutine borrows a shard whose memory is freed.
//
// A borrower that panics ends the process, as the thread does: nothing recovers, and own stays held.

// borrowSweeps is the most sweeps of a borrower before it leaves the shard to its thread, each of up to 16 requests
// per line: some 10 ms. Smaller: when many goroutines call at the same time, the thread is woken, and wakes each of
// them. Larger: one caller may serve others for longer.
const borrowSweeps = 512

// storeSweeps is the same for a thread of the store: some 0.2 ms, for which the next sync may be
// delayed.
const storeSweeps = 16

var errClosed = errors.New("machine: node is closed")

// Map returns the map of shards. It is immutable.
func (n *Node) Map() protocol.Map { return n.places }

// Join gives a shard a line; see hydra.Host. The line is closed with the node.
func (n *Node) Join(number uint32, l wire.Line) (serve func(), err error) {
	r := n.runner(number)
	if r == nil {
		return nil, fmt.Errorf("%w: %d", errNoSuchShard, number)
	}
	select {
	case r.attach <- attachment{line: l, greeting: shard.Greeting{Once: true}}:
		r.groups.Wake()
	case <-n.ctx.Done():
	}
	if n.ctx.Err() != nil { // run may not have taken the line
		return nil, errors.Join(errClosed, l.Close())
	}
	return r.call, nil
}

// call is called after requests were put into a line. When it returns they have been served, or the thread or another
// goroutine will serve them.
func (r *runner) call() { r.look(borrowSweeps) }

// stored is called when the store has something for the shard. The store's thread serves the shard itself, as a
// caller does, so there is no wake-up between the end of a sync and the answers that waited for it.
func (r *runner) stored() { r.look(storeSweeps) }

func (r *runner) look(sweeps int) {
	r.called.Store(true)
	for r.called.Load() && r.own.TryLock() {
		rest := r.borrow(sweeps)
		r.own.Unlock()
		if rest {
			return // the thread was woken
		}
	}
}

// borrow does the work of the sleeping thread. It returns true if it has woken the thread for the remainder.
func (r *runner) borrow(sweeps int) (rest bool) {
	for i := 1; !rest; i++ {
		worked := r.sweep()
		if !r.waiting() {
			break
		}
		rest = !worked || i == sweeps
	}
	if rest || r.read.Add(r.shard.IdleFor()).Before(r.wakes) {
		rest, r.wakes = true, r.read
		r.groups.Wake()
	}
	return rest
}

// waiting reports whether a line has requests that the shard has not taken.
func (r *runner) waiting() bool {
	for _, l := range r.lines {
		if l.Waiting() {
			return true
		}
	}
	return false
}
