package mvcc

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// holdUp starts the commit of tx, which has to wait for background work because memory is full, and stops the commit
// just before it waits. letGo lets the commit continue and returns its error.
func holdUp(t *testing.T, e *Engine, tx *Tx) (letGo func() error) {
	t.Helper()
	waits, goOn := make(chan struct{}), make(chan struct{})
	e.opts.Step = func(p StepPoint) {
		if p == StepWait {
			waits <- struct{}{}
			<-goOn
		}
	}
	e.tree.ceiling.Store(-1)
	done := make(chan error, 1)
	go func() { done <- tx.Commit() }()
	<-waits
	require.True(t, e.readers.unpinned.any())
	e.tree.ceiling.Store(e.opts.MemoryLimit)
	return func() error {
		close(goOn)
		return <-done
	}
}

// TestCommitWaitsForMemoryOnly: a commit that waits for memory goes on as soon as memory is free, even if the
// background work that has freed it still runs. If no memory is free after the next flush, the commit does background
// work itself.
func TestCommitWaitsForMemoryOnly(t *testing.T) {
	for _, freed := range []bool{true, false} {
		t.Run(fmt.Sprint("freed ", freed), func(t *testing.T) {
			e := newEngine(t, Options{Durability: Buffered, Manual: true})
			tx := begin(t, e, TxOptions{})
			require.NoError(t, tx.Put([]byte("k"), []byte("v")))
			e.checkpoints.mu.Lock()
			letGo := holdUp(t, e, tx)
			e.tree.ceiling.Store(-1)
			done := make(chan error, 1)
			go func() { done <- letGo() }()
			time.Sleep(20 * relievedEvery)
			require.Empty(t, done)
			if freed {
				e.tree.ceiling.Store(e.opts.MemoryLimit)
				require.NoError(t, <-done)
				e.checkpoints.mu.Unlock()
				return
			}
			e.flusher.flushes.Add(1)
			time.Sleep(20 * relievedEvery)
			require.Empty(t, done)
			e.tree.ceiling.Store(e.opts.MemoryLimit)
			time.Sleep(20 * relievedEvery)
			require.Empty(t, done)
			e.checkpoints.mu.Unlock()
			require.NoError(t, <-done)
		})
	}
}

// TestCommitThatWaits: a commit that waits for background work gives up its snapshot, so that what the snapshot pins
// can be freed. It still loses if another transaction has changed what it depends on; a serializable one loses if
// anything was committed.
func TestCommitThatWaits(t *testing.T) {
	for _, c := range []struct {
		name         string
		serializable bool
		meanwhile    string // key that another transaction writes
		lost         bool
	}{
		{"nothing changed", false, "", false},
		{"nothing changed, serializable", true, "", false},
		{"something else changed", false, "other", false},
		{"something else changed, serializable", true, "other", true},
		{"what it writes changed", false, "w", true},
		{"what it has read changed", false, "r", false},
		{"what it has read changed, serializable", true, "r", true},
	} {
		for _, unrelated := range []int{0, 40} { // after 40 commits the other one is found only in the table of last writes
			t.Run(fmt.Sprint(c.name, " ", unrelated), func(t *testing.T) {
				e := newEngine(t, Options{Durability: Buffered, Manual: true})
				put(t, e, "r", "0")
				tx := begin(t, e, TxOptions{Serializable: c.serializable})
				require.Equal(t, "0", get(t, tx, "r"))
				require.NoError(t, tx.Put([]byte("w"), []byte("mine")))
				letGo := holdUp(t, e, tx)
				if c.meanwhile != "" {
					put(t, e, c.meanwhile, "theirs")
					for i := range unrelated {
						put(t, e, fmt.Sprint("unrelated ", i), "")
					}
				}
				require.NoError(t, e.tree.withMerged(func() error {
					e.tree.reclaim()
					return nil
				}))
				require.Equal(t, e.marks.applied.Load(), e.tree.horizon.Load())
				if err := letGo(); c.lost {
					require.ErrorIs(t, err, ErrConflict)
				} else {
					require.NoError(t, err)
				}
				require.False(t, e.readers.unpinned.any())
				require.Zero(t, e.readers.registry.Count())
			})
		}
	}
}

// TestCloseWaitsForTheUnpinned: a commit that waits for background work is not in the registry. Close waits for it
// nevertheless.
func TestCloseWaitsForTheUnpinned(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Durability: Buffered, Manual: true})
	tx := begin(t, e, TxOptions{})
	require.NoError(t, tx.Put([]byte("k"), []byte("v")))
	letGo := holdUp(t, e, tx)
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	time.Sleep(20 * time.Millisecond)
	require.Empty(t, closed)
	require.NoError(t, letGo())
	require.NoError(t, <-closed)
	e = openOn(t, mem, Options{})
	v, _, err := e.GetCopy([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	require.NoError(t, e.Close())
}

// TestCloseSeesWhoMoves: Close does not miss a transaction that leaves the registry and enters it again while Close
// scans the registry.
func TestCloseSeesWhoMoves(t *testing.T) {
	for _, single := range []bool{false, true} {
		t.Run(fmt.Sprint("single ", single), func(t *testing.T) {
			e := newEngine(t, Options{Durability: Buffered, Manual: true})
			tx := &Tx{pinned: pinned{e: e}, single: true}
			if single {
				e.readers.active.Add(1)
			} else {
				tx = begin(t, e, TxOptions{})
			}
			var stop atomic.Bool
			done := make(chan error, 1)
			go func() {
				var err error
				for !stop.Load() && err == nil {
					e.admission.unpin(tx)
					err = e.admission.pin(tx)
				}
				done <- err
			}()
			for range 200_000 {
				if !e.readers.used() {
					t.Error("nobody seen")
					break
				}
			}
			stop.Store(true)
			require.NoError(t, <-done)
			if single {
				e.readers.active.Add(-1)
			} else {
				require.NoError(t, tx.Rollback())
			}
			require.False(t, e.readers.used())
		})
	}
}

// TestEstimateOfFew: the estimate for a transaction of few records does not look at their sizes, and equals the
// estimate that does.
func TestEstimateOfFew(t *testing.T) {
	e := newEngine(t, tiny(Buffered))
	e.tree.leafy.Store(true)
	short := 0
	for _, n := range []int{1, 2, 7, fewKeys, fewKeys + 1} {
		for _, size := range []int{0, 8, 300, 1000, 2000, 5000} {
			tx, err := e.Begin(TxOptions{})
			require.NoError(t, err)
			for i := range n {
				require.NoError(t, tx.Put(fmt.Appendf(nil, "key %d", i), make([]byte, size)))
			}
			if n <= fewKeys && tx.set.OnePage() {
				short++
			}
			require.Equal(t, e.admission.estimateLarge(tx), e.admission.estimate(tx), "%d records of %d bytes", n, size)
			require.NoError(t, tx.Rollback())
		}
	}
	require.Equal(t, 15, short)
}
