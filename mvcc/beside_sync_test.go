package mvcc

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// besideEngine returns an engine that syncs each group while it makes the next one, and a gate for these syncs.
func besideEngine(t *testing.T, o Options) (*Engine, *syncGate) {
	o.Manual, o.SyncBeside = true, true
	mem := vfs.NewMem(0)
	t.Cleanup(mem.Release)
	return gatedEngine(t, mem, o)
}

// gatedEngine returns an engine on mem with a closed gate for its syncs. The engine has the record k and needs no sync
// to grow.
func gatedEngine(t *testing.T, mem *vfs.Mem, o Options) (*Engine, *syncGate) {
	e := openOn(t, mem, o)
	put(t, e, "k", "0")
	require.NoError(t, e.store.Reserve(1000, false)) // growing would sync too
	e.store.Release(1000)
	gate := &syncGate{open: make(chan struct{})}
	gate.shut.Store(true)
	mem.OnOp(gate.hook)
	return e, gate
}

// commitTogether lets n commits wait for the token together, then releases the token, so that one of them leads.
func commitTogether(t *testing.T, e *Engine, n int, key, value string, done chan<- error) {
	release := e.HoldToken()
	before := e.Pushed()
	for i := range n {
		commitBehind(e, fmt.Sprint(key, i), value, done)
		require.Eventually(t, func() bool { return e.Pushed() == before+i+1 }, patience, 100*time.Microsecond)
	}
	release()
}

func commitBehind(e *Engine, key, value string, done chan<- error) {
	go func() { done <- e.WriteOne([]byte(key), []byte(value), false) }()
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, patience, 100*time.Microsecond, what)
}

const aWhile = 20 * time.Millisecond // how long a test waits to see that something does not happen

// TestBesideSync: while a group is synced, the next one is logged and published, and no third one. None of these
// commits returns, and no View sees them.
func TestBesideSync(t *testing.T) {
	e, gate := besideEngine(t, Options{})
	first, second, third := make(chan error, 2), make(chan error, 1), make(chan error, 1)
	applied := e.marks.applied.Load()
	commitTogether(t, e, 2, "first", "v", first)
	eventually(t, "the first group is being synced", func() bool { return gate.waiting.Load() == 1 })
	commitBehind(e, "second", "v", second)
	eventually(t, "the second one is shown", func() bool { return e.marks.applied.Load() == applied+2 })
	commitBehind(e, "third", "v", third)
	time.Sleep(aWhile)
	require.Equal(t, applied+2, e.marks.applied.Load(), "two groups at most are not synced")
	require.EqualValues(t, 1, gate.waiting.Load())
	require.Empty(t, first)
	require.Empty(t, second)
	require.Equal(t, applied, e.marks.durable.Load())
	require.LessOrEqual(t, e.readers.views.newest.Load().Base, applied, "what is merged is durable")
	var updates []*Tx
	for o, shown := range map[TxOptions]bool{{ReadOnly: true}: false, {}: true} {
		tx := begin(t, e, o)
		for _, key := range []string{"first0", "first1", "second"} {
			_, found, err := tx.Get([]byte(key))
			require.NoError(t, err)
			require.Equal(t, shown, found, key)
		}
		if o.ReadOnly {
			require.NoError(t, tx.Rollback())
		} else {
			updates = append(updates, tx) // its end would wait for the sync, so it ends later
		}
	}

	gate.shut.Store(false)
	close(gate.open)
	for _, done := range []chan error{first, first, second, third} {
		require.NoError(t, <-done)
	}
	require.NoError(t, updates[0].Rollback())
	within(t, func() { e.token.take() })
	require.Zero(t, e.token.enough.Load())
	e.token.pass(true)
	require.Equal(t, e.marks.applied.Load(), e.marks.durable.Load())
	require.NoError(t, e.Close())
}

// TestBesideSyncWaitsForEnough: the next group begins when as many commits have come as are expected back, or when the
// sync has ended. Commits that come earlier sleep, and the token is free.
func TestBesideSyncWaitsForEnough(t *testing.T) {
	for _, come := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(come), func(t *testing.T) {
			e, gate := besideEngine(t, Options{})
			done := make(chan error, 6)
			e.committer.leaving = 4 // committers of the previous group, expected back
			applied := e.marks.applied.Load()
			commitTogether(t, e, 2, "first", "v", done)
			eventually(t, "the group is being synced", func() bool { return gate.waiting.Load() == 1 })
			require.False(t, e.token.held.Load())
			for i := range come {
				commitBehind(e, fmt.Sprint("more", i), "v", done)
			}
			eventually(t, "all are pushed", func() bool {
				return e.committer.resolver.list.Head().Number() == e.token.enough.Load()-3+uint64(come)
			})
			if come == 3 { // half of the six
				eventually(t, "they are enough", func() bool { return e.marks.applied.Load() == applied+2 })
			} else {
				time.Sleep(aWhile)
				require.False(t, e.token.held.Load())
				require.Equal(t, applied+1, e.marks.applied.Load())
			}
			gate.shut.Store(false)
			close(gate.open)
			within(t, func() {
				for range come + 2 {
					require.NoError(t, <-done)
				}
			})
			require.Equal(t, applied+2, e.marks.applied.Load(), "in one group")
			require.NoError(t, e.Close())
		})
	}
}

// TestBesideSyncMerges: batches that are not durable are not merged even if the memtables are large. The leader waits
// for the sync.
func TestBesideSyncMerges(t *testing.T) {
	const commits = 64
	e, gate := besideEngine(t, Options{MemoryLimit: 64 << 10})
	done := make(chan error, commits+1)
	applied := e.marks.applied.Load()
	commitTogether(t, e, commits, "first", "v", done)
	eventually(t, "the first group is being synced", func() bool { return gate.waiting.Load() == 1 })
	require.True(t, e.tree.crowded())
	commitBehind(e, "second", "v", done)
	time.Sleep(aWhile)
	require.LessOrEqual(t, e.readers.views.newest.Load().Base, applied)
	require.Equal(t, applied, e.marks.durable.Load())
	gate.shut.Store(false)
	close(gate.open)
	within(t, func() {
		for range commits + 1 {
			require.NoError(t, <-done)
		}
		require.Greater(t, e.readers.views.newest.Load().Base, applied)
		require.NoError(t, e.Close())
	})
}

// TestBesideSyncHoldsUpBackground: background work that gets the token while a group is synced without it waits for
// the sync.
func TestBesideSyncHoldsUpBackground(t *testing.T) {
	e, gate := besideEngine(t, Options{})
	done := make(chan error, 2)
	commitTogether(t, e, 2, "first", "v", done)
	eventually(t, "the group is being synced", func() bool { return gate.waiting.Load() == 1 })
	background := make(chan bool, 1)
	go e.tree.withMerged(func() error {
		background <- e.marks.durable.Load() == e.marks.applied.Load()
		return nil
	})
	time.Sleep(aWhile)
	require.Empty(t, background)
	gate.shut.Store(false)
	close(gate.open)
	within(t, func() {
		require.True(t, <-background)
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		require.NoError(t, e.Close())
	})
}

// TestBesideSyncLeaves: commits that would not fill a page are left to the next group. If the leader's own commit is
// among them, it returns with that group.
func TestBesideSyncLeaves(t *testing.T) {
	const commits = 40 // a page has room for 35
	e, gate := besideEngine(t, Options{})
	done := make(chan error, commits)
	applied := e.marks.applied.Load()
	commitTogether(t, e, commits, "first", strings.Repeat("v", 100), done) // the newest one leads
	eventually(t, "the first group is being synced", func() bool { return gate.waiting.Load() == 1 })
	time.Sleep(aWhile)
	require.Empty(t, done)
	gate.shut.Store(false)
	close(gate.open)
	within(t, func() {
		for range commits {
			require.NoError(t, <-done)
		}
	})
	require.Equal(t, applied+2, e.marks.durable.Load())
	require.NoError(t, e.Close())
}

// TestBesideSyncFails: if the sync fails, no commit of its group is acknowledged, and none of the next group, which is
// already in the log.
func TestBesideSyncFails(t *testing.T) {
	e, gate := besideEngine(t, Options{})
	done := make(chan error, 4)
	applied := e.marks.applied.Load()
	commitTogether(t, e, 2, "first", "v", done)
	eventually(t, "the first group is being synced", func() bool { return gate.waiting.Load() == 1 })
	commitBehind(e, "second", "v", done)
	eventually(t, "the second one is shown", func() bool { return e.marks.applied.Load() == applied+2 })
	gate.fails.Store(true)
	close(gate.open)
	within(t, func() {
		for range 3 {
			require.ErrorIs(t, <-done, logstore.ErrFailed)
		}
		require.ErrorIs(t, e.Close(), logstore.ErrFailed)
	})
	require.Equal(t, applied, e.marks.durable.Load())
}

// TestBesideSyncCalls: callbacks come in the order of commits, whichever of two groups is woken first.
func TestBesideSyncCalls(t *testing.T) {
	e := newEngine(t, Options{Thresholds: Thresholds{SyncBeside: true}})
	const n = 20_000
	var at []int // by key
	var called atomic.Int64
	order := make([]int, 0, n)
	for i := range n {
		at = append(at, i)
		require.NoError(t, e.WriteOneAsync(fmt.Append(nil, i%100), nil, false, true, func(err error) {
			if err == nil {
				order = append(order, i)
			}
			called.Add(1)
		}))
	}
	eventually(t, "all are called back", func() bool { return called.Load() == n })
	require.Equal(t, at, order)
}

// TestBesideSyncCrash: the power is cut at a random time while committers take turns and background work runs. Every
// acknowledged transaction is there, each transaction is there as a whole, and nothing is there that was not issued.
func TestBesideSyncCrash(t *testing.T) {
	const committers, images = 8, 40
	mem := vfs.NewMem(0)
	t.Cleanup(mem.Release)
	e := openOn(t, mem, tiny(Durable))
	type counts [committers]atomic.Int64
	var issued, acknowledged counts
	snap := func(c *counts) (s [committers]int64) {
		for i := range c {
			s[i] = c[i].Load()
		}
		return s
	}
	type image struct {
		mem      *vfs.Mem
		from, to [committers]int64
	}
	var mu sync.Mutex
	var cuts []image
	var ops atomic.Int64
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind != vfs.OpDatasync && op.Kind != vfs.OpWrite || ops.Add(1)%5 != 0 {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if len(cuts) < images {
			c := image{from: snap(&acknowledged)}
			c.mem = mem.Crash(vfs.Policies()[len(cuts)%len(vfs.Policies())], uint64(len(cuts)))
			c.to = snap(&issued)
			cuts = append(cuts, c)
		}
		return nil
	})
	within(t, func() {
		together(committers, func(c int) {
			for n := int64(1); n < 100; n++ {
				issued[c].Store(n)
				if !assert.NoError(t, update(e, TxOptions{}, func(tx *Tx) error {
					value := fmt.Append(nil, n)
					return errors.Join(tx.Put(fmt.Append(nil, "a", c), value), tx.Put(fmt.Append(nil, "b", c), value))
				})) {
					return
				}
				acknowledged[c].Store(n)
			}
		})
	})
	mem.OnOp(nil)
	require.NoError(t, e.Close())
	require.Len(t, cuts, images)
	for i, cut := range cuts {
		e := openOn(t, cut.mem, tiny(Durable))
		tx := begin(t, e, TxOptions{ReadOnly: true})
		for c := range committers {
			a, b := get(t, tx, fmt.Sprint("a", c)), get(t, tx, fmt.Sprint("b", c))
			require.Equal(t, a, b, "image %d", i)
			n, _ := strconv.ParseInt(cmp.Or(a, "0"), 10, 64)
			require.GreaterOrEqual(t, n, cut.from[c], "image %d: acknowledged", i)
			require.LessOrEqual(t, n, cut.to[c], "image %d", i)
		}
		require.NoError(t, tx.Rollback())
		require.NoError(t, e.Close())
		cut.mem.Release()
	}
}

// TestDeviceSyncsBeside: groups are synced while the next one is made if making a group takes longer than syncing it,
// until a finished group waits for the device in half of the cases.
func TestDeviceSyncsBeside(t *testing.T) {
	var d device
	now := time.Now()
	batches := func(n int, sync, all, waited time.Duration) {
		for range n {
			now = now.Add(all)
			d.turnAt(now)
			d.took.Add(int64(sync))
			d.waited += waited - d.waited/deviceBatches
		}
	}
	require.False(t, d.syncsBeside(), "nothing is known")
	batches(4*deviceBatches, 5*time.Millisecond, 8*time.Millisecond, 0)
	require.False(t, d.syncsBeside())
	batches(4*deviceBatches, time.Millisecond, 3*time.Millisecond, 0)
	require.True(t, d.syncsBeside())
	batches(4*deviceBatches, time.Millisecond, time.Millisecond, 300*time.Microsecond)
	require.True(t, d.syncsBeside(), "the device has no pause, and that is well")
	batches(4*deviceBatches, time.Millisecond, time.Millisecond, 700*time.Microsecond)
	require.False(t, d.syncsBeside())
	require.False(t, d.syncsBeside(), "the device is slow")
	batches(8*deviceBatches, time.Millisecond, 3*time.Millisecond, 0)
	require.True(t, d.syncsBeside())
	batches(8*deviceBatches, time.Microsecond, 3*time.Millisecond, 0)
	require.False(t, d.syncsBeside(), "nothing is gained")
}
