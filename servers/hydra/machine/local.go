package machine

import (
	"errors"
	"fmt"

	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/shard"
	"flashdbm/servers/wire"
)

// A goroutine of the node's own process calls a shard without a message, by a line of package hydra. If the shard's thread sleeps, the goroutine serves the
// shard itself: that spares the wake-up of the thread, and its own. If somebody serves the shard already, he serves the goroutine's
// request too.
//
// Invariants:
//
//  1. Who holds runner.own serves the shard, and nobody else touches it, its groups or the far ends of its lines. The thread holds own except
//     while it sleeps. So a shard is served by one at a time, and whoever it is does what the thread does: sweep, the clock read behind
//     the poll, answers in order.
//  2. No request is left in a line. A caller sets called when its request is there, and then tries own. If that fails, the holder looks at
//     called when it has let go, which is after that: either it sees called set, or its last sweep began after called was set, and
//     that sweep looked at the line.
//  3. The thread is asleep in the state in which it went to sleep: each peer has an armed number and notifies the thread of what it sends.
//     A borrower takes messages and completions but changes no armed number, so the thread wakes for everything that it would have woken
//     for. That it finds nothing left to do is the worst.
//  4. A borrower bounds its work, and wakes the thread for what is left: more than so many sweeps, requests that the shard does not take at
//     present (quiet time, backlog), and what time brings before the thread would wake by itself.
//  5. Close ends the thread, which never lets go of own again; only then the shard and its lines are closed. So nobody borrows a
//     shard whose memory is given back.
//
// A borrower that panics ends the process, as the thread does: nobody recovers, and own stays held.

// borrowSweeps is how many sweeps a borrower makes at most before it leaves the shard to its thread, of up to 16 requests of each line: some 10 ms.
// With fewer the thread is woken where many goroutines call at the same time, and wakes each of them; with more one caller may serve
// others for longer.
const borrowSweeps = 512

// storeSweeps is the same for a thread of the store: some 0.2 ms, by which the next sync is late at most.
const storeSweeps = 16

var errClosed = errors.New("machine: node is closed")

// Map returns how keys are hashed, and which shards there are. It does not change.
func (n *Node) Map() protocol.Map { return n.places }

// Join gives a shard a line; see hydra.Host. The line is closed with the node.
func (n *Node) Join(number uint32, l wire.Line) (serve func(), err error) {
	r := n.runner(number)
	if r == nil {
		return nil, fmt.Errorf("%w: %d", errNoSuchShard, number)
	}
	select {
	case r.attach <- attachment{line: l, greeting: shard.Greeting{Once: true}}:
		r.groups[0].Wake()
	case <-n.ctx.Done():
	}
	if n.ctx.Err() != nil { // perhaps nobody has taken it out
		return nil, errors.Join(errClosed, l.Close())
	}
	return r.call, nil
}

// call is called behind leaving requests in a line. When it returns they have been served, or somebody is going to serve them.
func (r *runner) call() { r.look(borrowSweeps) }

// stored is called when the store has something for the shard. The store's thread serves the shard itself, as a caller does: between the end
// of a sync and the answers that waited for it there is no wake-up.
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

// borrow does the work of the thread, which sleeps. It returns true if it has woken the thread for what is left.
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
		r.groups[0].Wake()
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
