package mvcc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHoldTime(t *testing.T) {
	const limit = 32 << 20
	require.Zero(t, holdTime(0, limit))
	require.Less(t, holdTime(limit/100, limit), holdLeast)
	require.Equal(t, holdMost/4, holdTime(limit/4, limit))
	require.Equal(t, holdMost, holdTime(limit/2, limit))
	require.Equal(t, holdMost, holdTime(100*limit, limit))
}

// TestCommitsAreHeldBack: while there is no flush, commits wait once redo has passed RedoLimit. They wait without a
// snapshot, and no longer than their context lasts. Commits that other commits wait for are not delayed. After the
// flush no commit waits.
func TestCommitsAreHeldBack(t *testing.T) {
	e := newEngine(t, Options{RedoLimit: 1 << 20, FlushInterval: time.Hour})
	var writes atomic.Int64
	write := func(tx *Tx) error {
		n := writes.Add(1)
		for i := range 100 {
			if err := tx.Put(fmt.Appendf(nil, "%d %d", n%20, i), make([]byte, 500)); err != nil {
				return err
			}
		}
		return nil
	}
	e.checkpoints.mu.Lock() // no flush
	locked := true
	defer func() {
		if locked {
			e.checkpoints.mu.Unlock()
		}
	}()
	waits := func() bool { return holdTime(e.pressure.excess.past.Load(), e.opts.RedoLimit) == holdMost }
	for n := 0; !waits(); n++ {
		require.Less(t, n, 200)
		require.NoError(t, update(e, TxOptions{}, write))
	}

	begun := time.Now()
	require.NoError(t, update(e, TxOptions{}, write))
	require.GreaterOrEqual(t, time.Since(begun), holdMost)

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		var err error
		for err == nil { // each waits only for a moment, and a busy machine may not look in time
			err = e.Retry(ctx, TxOptions{}, func(tx *Tx) (bool, error) {
				if err := write(tx); err != nil {
					return false, err
				}
				err := tx.Commit()
				return errors.Is(err, ErrConflict), err
			})
		}
		done <- err
	}()
	require.Eventually(t, func() bool { return e.readers.unpinned.any() && e.readers.registry.Count() == 0 }, patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)

	alone := begin(t, e, TxOptions{})
	alone.gate = e.committer.gate.Close(t.Context())
	least := holdMost
	for i := 0; i < 20 && least >= holdMost; i++ { // a busy machine may delay it, but not in all of 20 attempts
		begun = time.Now()
		require.NoError(t, e.admission.hold(alone))
		least = min(least, time.Since(begun))
	}
	require.Less(t, least, holdMost)
	e.committer.gate.Reopen(alone.gate)
	require.NoError(t, alone.Rollback())

	e.checkpoints.mu.Unlock()
	locked = false
	require.NoError(t, e.Checkpoint())
	require.LessOrEqual(t, e.pressure.excess.past.Load(), int64(0))
}

// TestHeldBackUntilEnough: a delayed commit continues as soon as redo is short enough. The clock of the test advances
// only while all goroutines wait.
func TestHeldBackUntilEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, Options{})
		held := begin(t, e, TxOptions{})
		e.pressure.excess.past.Store(e.opts.RedoLimit)
		done := make(chan error, 1)
		go func() { done <- e.admission.hold(held) }()
		synctest.Wait()
		require.True(t, e.pressure.excess.held.Any())
		begun := time.Now()
		require.NoError(t, e.tree.withMerged(func() error {
			e.pressure.noteRedo()
			return nil
		}))
		require.NoError(t, <-done)
		require.Zero(t, time.Since(begun))
		require.NoError(t, held.Rollback())
	})
}

// TestHeldBackBehindNothing: a flush that has nothing to write, because its parts have written everything, also ends
// the delay of commits.
func TestHeldBackBehindNothing(t *testing.T) {
	e := newEngine(t, Options{Manual: true})
	put(t, e, "key", "value")
	require.NoError(t, e.Checkpoint())
	e.pressure.excess.past.Store(e.opts.RedoLimit)
	e.checkpoints.mu.Lock()
	err := e.flusher.flush()
	e.checkpoints.mu.Unlock()
	require.NoError(t, err)
	require.LessOrEqual(t, e.pressure.excess.past.Load(), int64(0))
}
