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
//
// A leader may pass the token on before it syncs its group, see beside_sync.go. Until that sync has ended, committers below enough sleep and are
// not handed the token. None of them sleeps for ever: a committer pushes, then looks at enough; who syncs sets enough to 0, then takes up the
// token, if it lies there, and passes it on as any holder does. One of them sees the other.
type token struct {
	held    atomic.Bool
	waiting atomic.Int32                 // background goroutines that wait or are about to
	handed  chan struct{}                // the token, to background work; room for one
	commits *lockfree.List[pushedCommit] // that wait for a leader
	before  func()                       // what a holder does before it gives the token up

	enough  atomic.Uint64 // number of the commit with which the next group is large enough; 0 while no leader syncs without the token
	syncing chan struct{} // full while a leader syncs without the token, who has filled it with the token in hand; who has it waits for no token
}

func (t *token) init(commits *lockfree.List[pushedCommit], before func()) {
	t.handed, t.commits, t.before, t.syncing = make(chan struct{}, 1), commits, before, make(chan struct{}, 1)
}

// take takes the token for background work, and waits for the sync under way: where commits are synced, all that are in the log are durable.
func (t *token) take() {
	defer t.awaitSync()
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

// tryFor is try for a committer that has pushed its node, unless it is to wait for more to come: then the sync under way, at its end, or who
// comes after it sees to it.
func (t *token) tryFor(n *commitNode) bool { return n.Number() >= t.enough.Load() && t.try() }

// awaitSync waits until no leader syncs without the token. Token held.
func (t *token) awaitSync() {
	if t.enough.Load() != 0 {
		t.syncing <- struct{}{}
		<-t.syncing
	}
}

// pass gives the token up. Background work and committers take turns when both wait.
func (t *token) pass(background bool) {
	t.before()
	for {
		drained := t.commits.Drained()
		undrained := func() bool { // commits wait that nobody has drained, and are enough
			head := t.commits.Head()
			return head != drained && head.Number() >= t.enough.Load()
		}
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
