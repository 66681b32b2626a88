package mvcc

import (
	"runtime"
	"sync/atomic"

	"flashdbm/internal/invariants"
	"flashdbm/lockfree"
)

// token is the right to append to the log and to change the tree. It is a lock that its holder hands over: to background
// work that waits, else to the committer of the newest waiting commit. If nobody waits, the holder releases it.
//
// held is the lock. A committer that has pushed its node either takes the token, or is woken by a signal: completed
// from the leader of its batch, or lead together with the token. No wakeup is lost. A holder looks for waiters after it
// has released the token, and takes it again if there are any. A waiter first makes itself known, a committer by its
// push and background work by the counter waiting, and then tries to take the token. Only the holder knows which node
// was drained last; after releasing the token it compares with the node it knew. If another holder has drained more in
// between, it may take the token again for nothing.
//
// A leader may pass the token on before it syncs its group: see beside_sync.go. Until that sync has ended, committers
// whose number is below enough sleep, and are not handed the token. None sleeps for ever: a committer pushes and then
// reads enough; the syncing leader sets enough to 0, then takes the token if it is free and passes it on as any
// holder does. At least one of the two sees the other.
type token struct {
	held    atomic.Bool
	waiting atomic.Int32                 // background goroutines that wait for the token, or are about to
	handed  chan struct{}                // hands the token to background work; room for one
	commits *lockfree.List[pushedCommit] // the commit list
	before  func()                       // called by a holder before it gives the token up

	enough atomic.Uint64 // number of the commit with which the next group is large enough; 0 while no leader syncs without the token
	// syncing is full while a leader syncs without the token. The leader fills it while it holds the token. Whoever
	// has filled it does not wait for the token.
	syncing chan struct{}

	shared bool // more than one goroutine may want the token: from the end of Open to Close, not with Options.Manual; for mustBeHeld
}

// mustBeHeld checks, in builds with the tag invariants, that somebody holds the token: the caller, if all is well.
func (t *token) mustBeHeld() {
	if invariants.Enabled {
		invariants.Check(!t.shared || t.held.Load(), "nobody holds the token")
	}
}

func (t *token) init(commits *lockfree.List[pushedCommit], before func()) {
	t.handed, t.commits, t.before, t.syncing = make(chan struct{}, 1), commits, before, make(chan struct{}, 1)
}

// take takes the token for background work and waits for a sync that is under way: in Durable mode, everything in the
// log is durable then.
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

// try takes the token if it is free.
func (t *token) try() bool { return t.held.CompareAndSwap(false, true) }

// tryFor is try for a committer that has pushed n. It does not take the token while n is below enough: the leader
// whose sync is under way, or a later committer, starts the next group.
func (t *token) tryFor(n *commitNode) bool { return n.Number() >= t.enough.Load() && t.try() }

// awaitSync waits until no leader syncs without the token. Token held.
func (t *token) awaitSync() {
	if t.enough.Load() != 0 {
		t.syncing <- struct{}{}
		<-t.syncing
	}
}

// pass gives the token up. If both background work and committers wait, they take turns: background says that the
// caller is background work.
//
// A committer that hands the token to background work also gives its processor up. Otherwise, if all processors are
// busy, the new holder waits for its turn while the committer's goroutine goes on, for up to 10 ms, and all other
// commits wait for the token meanwhile. With two goroutines that scan and commit beside a mover of values, background
// work waited longer for a processor than it computed.
func (t *token) pass(background bool) {
	t.before()
	for {
		drained := t.commits.Drained()
		undrained := func() bool { // commits wait that were not drained, and are enough for a group
			head := t.commits.Head()
			return head != drained && head.Number() >= t.enough.Load()
		}
		if n := t.waiting.Load(); n > 0 && !(background && undrained()) && t.waiting.CompareAndSwap(n, n-1) {
			t.handed <- struct{}{}
			if !background {
				runtime.Gosched()
			}
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
