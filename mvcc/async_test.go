package mvcc

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestCallsAreNotActive: a Buffered commit whose callback has not returned yet does not count as a concurrent
// committer. Close waits for its callback.
func TestCallsAreNotActive(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	called, release := make(chan error), make(chan struct{})
	for _, commit := range []func(done func(error)) error{
		func(done func(error)) error { return e.WriteOneAsync([]byte("k"), []byte("v"), false, true, done) },
		func(done func(error)) error {
			tx := begin(t, e, TxOptions{})
			require.NoError(t, tx.Put([]byte("k"), []byte("v")))
			return tx.CommitAsync(true, done)
		},
	} {
		require.NoError(t, commit(func(err error) {
			called <- err
			<-release
		}))
		require.NoError(t, <-called)
		require.Zero(t, e.readers.active.Load())
		require.True(t, e.readers.used(), "the call has not returned")
		release <- struct{}{}
		require.Eventually(t, func() bool { return !e.readers.used() }, patience, 100*time.Microsecond)
	}
}

// TestQueuedAreWaitedFor: Close waits for a Buffered commit that is completed and whose callback has not been called,
// because the sync before it hangs.
func TestQueuedAreWaitedFor(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e, gate := gatedEngine(t, mem, Options{Durability: Buffered, Manual: true})
	called := make(chan error, 1)
	require.NoError(t, e.WriteOneAsync([]byte("k"), []byte("v"), false, true, func(err error) { called <- err }))
	eventually(t, "it is being synced", func() bool { return gate.waiting.Load() == 1 })
	require.Zero(t, e.readers.active.Load())
	used := e.readers.used()
	gate.shut.Store(false)
	close(gate.open)
	require.True(t, used)
	require.NoError(t, <-called)
	require.NoError(t, e.Close())
}

// TestAwaitMore: the sync before callbacks covers the commits that are queued during a short wait. The wait is not
// longer than it gains, and ends when no commit comes.
func TestAwaitMore(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	a := &async{committer: &e.committer}
	commits := func(n int) (all []asyncCommit) {
		for range n {
			all = append(all, asyncCommit{tx: &Tx{}})
		}
		return all
	}
	a.synced, a.back = 100*time.Millisecond, 10
	for _, c := range commits(9) {
		a.add(c)
	}
	require.Len(t, a.awaitMore(commits(1)), 10, "all that were expected")
	require.Len(t, a.awaitMore(commits(1)), 1, "nobody comes")
	a.add(commits(1)[0])
	require.Len(t, a.awaitMore(commits(1)), 2)

	a.synced, a.back = time.Millisecond, 10_000 // longer than a sync
	a.add(commits(1)[0])
	require.Len(t, a.awaitMore(commits(1)), 1)
	require.EqualValues(t, 1, a.waiting.Load())
}

// TestQueueKeepsNothing: the queue keeps no commit in memory after its callback, even if no later commit overwrites
// its slot in the queue.
func TestQueueKeepsNothing(t *testing.T) {
	a := &async{}
	var late weak.Pointer[Tx]
	var queue []asyncCommit
	func() {
		a.add(asyncCommit{})
		queue = a.more(nil)
		tx := &Tx{}
		late = weak.Make(tx)
		a.add(asyncCommit{tx: tx})
		queue = a.more(queue)
		require.Same(t, tx, queue[1].tx)
	}()
	clear(queue)
	runtime.GC()
	require.Nil(t, late.Value())
	runtime.KeepAlive(a)
}

// TestTokenIsPassedToAsync: a goroutine that gives up the token passes it to asynchronous commits that have been
// queued, although their callers have returned.
func TestTokenIsPassedToAsync(t *testing.T) {
	e := newEngine(t, Options{Durability: Durable, Manual: true})
	e.committer.token.take()
	called := make(chan error, 1)
	require.NoError(t, e.WriteOneAsync([]byte("k"), []byte("v"), false, true, func(err error) { called <- err }))
	e.committer.token.pass(false)
	select {
	case err := <-called:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("nobody completes the commit")
	}
}
