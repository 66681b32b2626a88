package mvcc

import (
	"sync/atomic"

	"flashdbm/lockfree"
)

// token is the right to append to the log and to change the tree. It is a lock that is handed over: whoever gives it up passes it to
// background work that waits, else to the newest committer that waits, else lays it down.
//
// held is the lock. A committer that has pushed its node either takes the token or is woken: by the leader that settles its commit, or with
// the token in hand. No wake is lost: the holder looks for waiters after laying the token down and takes it up again if there are any, and a
// waiter looks for the token after it has made itself known (a committer by its push, background work by waiting). Which node was drained
// last only the holder knows. Who has laid the token down goes by what it was then: if another holder has drained more since, it may take
// the token up for nothing.
type token struct {
	held    atomic.Bool
	waiting atomic.Int32                 // background goroutines that wait or are about to
	handed  chan struct{}                // the token, to background work; room for one
	commits *lockfree.List[pushedCommit] // that wait for a leader
	before  func()                       // what a holder does before it gives the token up
}

func (t *token) init(commits *lockfree.List[pushedCommit], before func()) {
	t.handed, t.commits, t.before = make(chan struct{}, 1), commits, before
}

// take takes the token for background work.
func (t *token) take() {
	if t.try() {
		return
	}
	t.waiting.Add(1)
	if t.try() {
		t.waiting.Add(-1)
		return
	}
	<-t.handed
}

// try takes the token if nobody has it.
func (t *token) try() bool { return t.held.CompareAndSwap(false, true) }

// pass gives the token up. Background work and committers take turns when both wait.
func (t *token) pass(background bool) {
	t.before()
	for {
		drained := t.commits.Drained()
		undrained := func() bool { return t.commits.Head() != drained } // commits wait that nobody has drained
		if n := t.waiting.Load(); n > 0 && !(background && undrained()) && t.waiting.CompareAndSwap(n, n-1) {
			t.handed <- struct{}{}
			return
		}
		if undrained() {
			t.commits.Head().Value.tx.kept.wake <- lead
			return
		}
		t.held.Store(false)
		if (t.waiting.Load() == 0 && !undrained()) || !t.try() {
			return
		}
	}
}
