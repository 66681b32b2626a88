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

// loser returns a transaction function that loses each time: before it ends, it commits a change to what it writes.
func loser(t *testing.T, e *Engine, tries *int) func(tx *Tx) error {
	return func(tx *Tx) error {
		*tries++
		get(t, tx, "k")
		put(t, e, "k", "theirs")
		return tx.Put([]byte("k"), []byte("mine"))
	}
}

// TestRetryEnds: a transaction that always loses gets ErrConflict in the end, even if it commits others inside itself
// while it has the gate closed.
func TestRetryEnds(t *testing.T) {
	t.Parallel() // it mostly waits
	e := newEngine(t, Options{})
	within(t, func() {
		tries := 0
		require.ErrorIs(t, update(e, TxOptions{}, loser(t, e, &tries)), ErrConflict)
		require.Equal(t, sharedTries+aloneTries, tries)
	})
}

// TestRetryInsideRetry: one that has the gate closed runs another one that wants it closed too.
func TestRetryInsideRetry(t *testing.T) {
	t.Parallel() // it mostly waits
	e := newEngine(t, Options{})
	within(t, func() {
		outer, inner := 0, 0
		err := update(e, TxOptions{}, func(tx *Tx) error {
			outer++
			get(t, tx, "k")
			if outer == sharedTries+1 { // alone
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

// TestRetryAlone: with the gate closed others wait, so a long transaction wins against many short ones.
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
	for round := 0; round < 10 && errors.Is(err, ErrConflict); round++ { // where a busy machine holds it up for longer than others wait
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

// TestLoserWaitsForTheWinner: a transaction that loses to an entry of the table of last writes finds the winner
// applied when it tries again.
func TestLoserWaitsForTheWinner(t *testing.T) {
	e := newEngine(t, Options{Manual: true})
	put(t, e, "k", "0")
	tx := begin(t, e, TxOptions{})
	get(t, tx, "k")
	require.NoError(t, tx.Put([]byte("other"), nil))
	next := e.marks.applied.Load() + 1
	w := &e.committer.resolver.writes // entered as the token holder does just before applied moves
	w.BeginBatch(next, 1)
	w.Enter(next, writeset.HashKey([]byte("other")))
	w.EndBatch()
	lost := make(chan error, 1)
	go func() { lost <- tx.Commit() }()
	time.Sleep(30 * time.Millisecond)
	require.Empty(t, lost, "lost before the winner was applied")
	put(t, e, "k", "1") // at that Seq
	require.ErrorIs(t, <-lost, ErrConflict)
}

// TestWaitingHeedsTheContext: a commit that waits at the gate, to close the gate, or for room ends when its context
// does. Nothing of it is applied or stays reserved.
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
		for i := 0; i < 20 && least >= commit.AloneWait/2; i++ { // a busy machine may hold it up, but not each of so many
			began := time.Now()
			require.Nil(t, e.committer.gate.Close(ctx))
			least = min(least, time.Since(began))
		}
		require.Less(t, least, commit.AloneWait/2)
	})
	t.Run("room", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // commits wait for the reader before they find the file full
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
