package mvcc

import "sync/atomic"

// The baton is the right to append to the log and to change the tree. It is a lock that is handed over: whoever gives it up passes it
// to background work that waits, else to the newest committer that waits, else lays it down.
//
// held is the lock. A committer that has pushed its node either takes the baton or is woken: by the holder that settles its commit, or
// with the baton in hand. No wake is lost: the holder looks for waiters after laying the baton down and takes it up again if there are
// any, and a waiter looks for the baton after it has made itself known (a committer by its push, background work by waiting). Which node was
// drained last only the holder knows. Who has laid the baton down goes by what it was then: if another holder has drained more since, it may
// take the baton up for nothing.
type baton struct {
	held    atomic.Bool
	waiting atomic.Int32  // background goroutines that wait or are about to
	handed  chan struct{} // the baton, to background work; room for one

	logWanted atomic.Bool // a sync waits for the holder to log what is in memory; set by the sync, taken back by a holder. See logBuffered
}

// takeBaton takes the baton for background work.
func (e *Engine) takeBaton() {
	b := &e.baton
	if b.held.CompareAndSwap(false, true) {
		return
	}
	b.waiting.Add(1)
	if b.held.CompareAndSwap(false, true) {
		b.waiting.Add(-1)
		return
	}
	<-b.handed
}

// putBaton passes the baton on. Background work and committers take turns when both wait.
func (e *Engine) putBaton(background bool) {
	b := &e.baton
	e.logIfWanted()
	for {
		drained := e.list.Drained()
		undrained := func() bool { return e.list.Head() != drained } // commits wait that nobody has drained
		if n := b.waiting.Load(); n > 0 && !(background && undrained()) && b.waiting.CompareAndSwap(n, n-1) {
			b.handed <- struct{}{}
			return
		}
		if undrained() {
			e.list.Head().Value.tx.kept.wake <- lead
			return
		}
		b.held.Store(false)
		if (b.waiting.Load() == 0 && !undrained()) || !b.held.CompareAndSwap(false, true) {
			return
		}
	}
}
