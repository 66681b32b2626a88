package mvcc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// muchUnmerged returns a Buffered engine with many entries in random order that are not in the tree. The next
// goroutine that needs the tree merges them and holds the token meanwhile.
func muchUnmerged(t *testing.T, ops int) *Engine {
	mem := vfs.NewMem(0)
	o := Options{Durability: Buffered, FlushInterval: time.Hour, MemoryLimit: 512 << 20, RedoLimit: 512 << 20}
	o.BackgroundOps = 1 << 30
	e := openOn(t, mem, o)
	t.Cleanup(func() {
		require.NoError(t, e.Check(context.Background()))
		require.NoError(t, e.Close())
		mem.Release()
	})
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < ops; i += 200 {
		tx := begin(t, e, TxOptions{})
		for range 200 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%016x", r.Uint64()), []byte("value")))
		}
		require.NoError(t, tx.Commit())
	}
	e.token.take()
	defer e.token.pass(true)
	require.GreaterOrEqual(t, e.tree.tables.rest(), ops, "the tree has them")
	return e
}

// TestCommitsGoOnDuringMerges: when a compaction or a checkpoint needs the tree, entries are merged in stints. Commits
// get the token in between, so that none waits for the whole merge.
func TestCommitsGoOnDuringMerges(t *testing.T) {
	ops := 160_000
	if testing.Short() {
		ops /= 4
	}
	for name, work := range map[string]func(e *Engine) error{
		"compact":    func(e *Engine) error { return e.Compact(context.Background(), nil) },
		"checkpoint": (*Engine).Checkpoint,
	} {
		t.Run(name, func(t *testing.T) {
			e := muchUnmerged(t, ops)
			last := e.marks.applied.Load()
			e.token.take()
			done := make(chan error, 1)
			go func() { done <- work(e) }()
			require.Eventually(t, func() bool { return e.token.waiting.Load() > 0 }, patience, time.Millisecond)
			e.token.pass(false)
			commits := 0
			for ; e.readers.views.Load() < last; commits++ {
				put(t, e, "k", fmt.Sprint(commits))
			}
			require.NoError(t, <-done)
			t.Logf("%d commits while %d ops were merged", commits, ops)
			require.Greater(t, commits, ops/stintOps/3)
		})
	}
}

// TestSyncDuringLongMerges: while a token holder merges for long, the Buffered commits in memory can be synced. A sync
// that began before the merge does not wait for the token either. It waits only until the holder has logged the
// commits, before the holder passes the token.
func TestSyncDuringLongMerges(t *testing.T) {
	e := muchUnmerged(t, 2*stintOps)
	syncing := func() <-chan error { // when it returns, it has asked the token holder to log
		done := make(chan error, 1)
		go func() { done <- e.Sync() }()
		require.Eventually(t, e.log.wanted.Load, patience, time.Millisecond)
		return done
	}
	t.Run("logged first", func(t *testing.T) {
		put(t, e, "k", "v")
		seq := e.marks.applied.Load()
		require.Less(t, e.marks.durable.Load(), seq)
		e.token.take()
		defer e.token.pass(true)
		e.tree.logFirst() // as merge does
		within(t, func() { require.NoError(t, e.Sync()) })
		require.GreaterOrEqual(t, e.marks.durable.Load(), seq)
	})
	t.Run("there first", func(t *testing.T) {
		put(t, e, "k", "w")
		seq := e.marks.applied.Load()
		e.token.take()
		defer e.token.pass(true)
		done := syncing()
		e.log.logIfWanted() // as pass does
		within(t, func() { require.NoError(t, <-done) })
		require.GreaterOrEqual(t, e.marks.durable.Load(), seq)
	})
	t.Run("commits go on", func(t *testing.T) {
		put(t, e, "k", "x")
		seq := e.marks.applied.Load()
		e.token.take()
		defer e.token.pass(true)
		done := syncing()
		e.log.logIfWanted()
		e.log.unlogged.Store(true) // as the next commit does
		defer e.log.unlogged.Store(false)
		within(t, func() { require.NoError(t, <-done) })
		require.GreaterOrEqual(t, e.marks.durable.Load(), seq)
	})
}

// TestMergeLogsFirst: a token holder that has much to merge first logs the Buffered commits in memory.
func TestMergeLogsFirst(t *testing.T) {
	e := muchUnmerged(t, 2*stintOps)
	put(t, e, "k", "v")
	require.True(t, e.log.unlogged.Load())
	e.token.take()
	defer e.token.pass(true)
	require.NoError(t, e.tree.merge())
	require.False(t, e.log.unlogged.Load())
	require.Zero(t, e.log.waiting())
}

// TestLargeValueBehindMuchPending: before a batch, a merge of earlier entries begins, and therefore the Buffered
// commits in memory are logged. The large values of the batch stay: they belong to its own group, which comes later.
func TestLargeValueBehindMuchPending(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	opts := Options{Durability: Buffered, Manual: true, Thresholds: Thresholds{BackgroundOps: 10}}
	e := openOn(t, mem, opts)
	putScattered(t, e, 0, 10)
	require.Positive(t, e.log.waiting())
	want, before := map[string]string{}, e.store.LastGroup()
	for i := range 4 { // each may take segments that were wrongly freed before
		key := fmt.Sprint("large", i)
		want[key] = strings.Repeat(key, 1<<18)
		put(t, e, key, want[key])
		require.Less(t, before+1, e.store.LastGroup(), "what waited is in a group of its own, before that of the first of them")
	}
	for range 2 {
		view := begin(t, e, TxOptions{ReadOnly: true})
		for key, value := range want {
			require.True(t, get(t, view, key) == value, key)
		}
		require.NoError(t, view.Rollback())
		require.NoError(t, e.Check(context.Background()))
		require.NoError(t, e.Close())
		e = openOn(t, mem, opts)
	}
	require.NoError(t, e.Close())
}
