package mvcc

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/commit"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// loser returns a transaction function that always loses: before it ends, another transaction commits a change to a
// key that it writes.
func loser(t *testing.T, e *Engine, tries *int) func(tx *Tx) error {
	return func(tx *Tx) error {
		*tries++
		get(t, tx, "k")
		put(t, e, "k", "theirs")
		return tx.Put([]byte("k"), []byte("mine"))
	}
}

// TestRetryEnds: a transaction that always loses gets ErrConflict in the end, even if it commits other transactions
// itself while it keeps the gate closed.
func TestRetryEnds(t *testing.T) {
	t.Parallel() // it mostly waits
	e := newEngine(t, Options{})
	within(t, func() {
		tries := 0
		require.ErrorIs(t, update(e, TxOptions{}, loser(t, e, &tries)), ErrConflict)
		require.Equal(t, sharedTries+aloneTries, tries)
	})
}

// TestRetryInsideRetry: a transaction that keeps the gate closed runs another one that wants to close the gate too.
func TestRetryInsideRetry(t *testing.T) {
	t.Parallel() // it mostly waits
	e := newEngine(t, Options{})
	within(t, func() {
		outer, inner := 0, 0
		err := update(e, TxOptions{}, func(tx *Tx) error {
			outer++
			get(t, tx, "k")
			if outer == sharedTries+1 { // the gate is closed
				require.ErrorIs(t, update(e, TxOptions{}, loser(t, e, &inner)), ErrConflict)
			} else if outer <= sharedTries {
				put(t, e, "k", "theirs")
			}
			return tx.Put([]byte("k"), []byte("mine"))
		})
		require.NoError(t, err)
		require.Equal(t, sharedTries+aloneTries, inner)
		require.Equal(t, sharedTries+2, outer)
	})
}

// TestRetryAlone: while the gate is closed other commits wait, so that a long transaction wins against many short
// ones.
func TestRetryAlone(t *testing.T) {
	e := newEngine(t, Options{})
	put(t, e, "k", "0")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		together(4, func(int) {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := persist(e, TxOptions{}, func(tx *Tx) error {
					_, _, err := tx.Get([]byte("k"))
					if err != nil {
						return err
					}
					return tx.Put([]byte("k"), []byte("short"))
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}()
	tries := 0
	err := error(ErrConflict)
	for round := 0; round < 10 && errors.Is(err, ErrConflict); round++ { // on a busy machine it may take longer than others wait at the gate
		err = update(e, TxOptions{}, func(tx *Tx) error {
			tries++
			get(t, tx, "k")
			for before := e.marks.applied.Load(); tries <= sharedTries && e.marks.applied.Load() == before; { // until it has lost
				time.Sleep(time.Millisecond)
			}
			time.Sleep(20 * time.Millisecond)
			return tx.Put([]byte("k"), []byte("long"))
		})
	}
	close(stop)
	<-done
	require.NoError(t, err)
	require.Greater(t, tries, sharedTries)
}

// TestLoserWaitsForTheWinner: a transaction that loses because of an entry of the table of last writes waits until the
// winner is applied, so that its next attempt sees the winner.
func TestLoserWaitsForTheWinner(t *testing.T) {
	e := newEngine(t, Options{Manual: true})
	put(t, e, "k", "0")
	tx := begin(t, e, TxOptions{})
	get(t, tx, "k")
	require.NoError(t, tx.Put([]byte("other"), nil))
	next := e.marks.applied.Load() + 1
	w := &e.committer.resolver.writes // entered as the token holder does just before it advances applied
	w.BeginBatch(next, 1)
	w.Enter(next, writeset.HashKey([]byte("other")))
	w.EndBatch()
	lost := make(chan error, 1)
	go func() { lost <- tx.Commit() }()
	time.Sleep(30 * time.Millisecond)
	require.Empty(t, lost, "lost before the winner was applied")
	put(t, e, "k", "1") // gets the Seq next
	require.ErrorIs(t, <-lost, ErrConflict)
}

// TestWaitingHeedsTheContext: a commit that waits at the gate, or to close the gate, or for room, ends when its
// context does. It is not applied and keeps nothing reserved.
func TestWaitingHeedsTheContext(t *testing.T) {
	t.Run("gate", func(t *testing.T) {
		e := newEngine(t, Options{})
		put(t, e, "k", "0")
		own := e.committer.gate.Close(context.Background())
		defer e.committer.gate.Reopen(own)
		ctx, cancel := context.WithCancel(context.Background())
		tries := 0
		reserved := e.store.SpaceStats().ReservedBytes
		err := e.Retry(ctx, TxOptions{}, func(tx *Tx) (bool, error) {
			tries++
			cancel()
			require.NoError(t, tx.Put([]byte("k"), []byte("1")))
			err := tx.Commit()
			return errors.Is(err, ErrConflict), err
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 1, tries)
		require.Equal(t, reserved, e.store.SpaceStats().ReservedBytes)
		tx := begin(t, e, TxOptions{})
		require.Equal(t, "0", get(t, tx, "k"))
		require.NoError(t, tx.Rollback())
	})
	t.Run("closing it", func(t *testing.T) {
		e := newEngine(t, Options{})
		own := e.committer.gate.Close(context.Background())
		defer e.committer.gate.Reopen(own)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		least := commit.AloneWait
		for i := 0; i < 20 && least >= commit.AloneWait/2; i++ { // a busy machine may delay it, but not in all of 20 attempts
			began := time.Now()
			require.Nil(t, e.committer.gate.Close(ctx))
			least = min(least, time.Since(began))
		}
		require.Less(t, least, commit.AloneWait/2)
	})
	t.Run("room", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // commits wait for the reader before they are refused with ErrFull
			opts := tiny(Durable)
			opts.Manual, opts.Store.MaxFileSize = true, 1<<20
			e := newEngine(t, opts)
			held := begin(t, e, TxOptions{ReadOnly: true})
			var err error
			for i := 0; err == nil && i < 10_000; i++ {
				tx := begin(t, e, TxOptions{})
				require.NoError(t, tx.Put(fmt.Append(nil, i), make([]byte, 1000)))
				err = tx.Commit()
			}
			require.ErrorIs(t, err, logstore.ErrFull)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			reserved := e.store.SpaceStats().ReservedBytes
			err = e.Retry(ctx, TxOptions{}, func(tx *Tx) (bool, error) {
				require.NoError(t, tx.Put([]byte("k"), make([]byte, 1000)))
				return false, tx.Commit()
			})
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, reserved, e.store.SpaceStats().ReservedBytes)
			require.NoError(t, held.Rollback())
		})
	})
}
