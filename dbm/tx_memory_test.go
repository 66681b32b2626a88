package dbm

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/mvcc"
)

// reused calls update until two calls in a row have used the same memory for the state of their transactions. The pool
// may have dropped the memory, or keep it for another processor.
func reused(t *testing.T, update func() *txShared) {
	t.Helper()
	var last *txShared
	require.Eventually(t, func() bool {
		state := update()
		same := state == last
		last = state
		return same
	}, time.Minute, time.Microsecond)
}

// TestUpdatesAreAsIfNew: an Update that reuses the memory of an earlier one finds none of its state there, whatever
// the earlier one did.
func TestUpdatesAreAsIfNew(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "db"), &Options{Durability: Buffered})
	require.NoError(t, err)
	defer db.Close()
	errFn := errors.New("no")
	require.NoError(t, db.EnableExpiry())
	require.NoError(t, db.CreateKeyspace("other"))
	for name, fn := range map[string]func(tx *Tx) error{
		"nothing":   func(tx *Tx) error { return nil },
		"reads":     func(tx *Tx) error { _, err := tx.Has([]byte("k")); return err },
		"puts":      func(tx *Tx) error { return tx.Put([]byte("k"), nil) },
		"shifted":   func(tx *Tx) error { return tx.Put([]byte{spaceByte, 1}, nil) },
		"expires":   func(tx *Tx) error { return tx.PutTTL([]byte("k"), nil, time.Hour) },
		"fails":     func(tx *Tx) error { return errFn },
		"is quiet":  func(tx *Tx) error { tx.quiet = true; return nil },
		"is broken": func(tx *Tx) error { tx.err = errFn; return nil },
		"drops": func(tx *Tx) error {
			if err := tx.DropKeyspace("other"); err != nil {
				return err
			}
			_, err := tx.CreateKeyspace("other")
			return err
		},
	} {
		state := func(fn func(tx *Tx) error) (state *txShared) {
			err := db.Update(func(tx *Tx) error {
				state = tx.txShared
				return fn(tx)
			})
			if err != nil {
				require.ErrorIs(t, err, errFn, name)
			}
			return state
		}
		require.Eventually(t, func() bool { // as in reused
			before, again := state(fn), false
			state(func(tx *Tx) error {
				if again = tx.txShared == before; !again {
					return nil
				}
				now := *tx.txShared
				require.Equal(t, db, now.db)
				require.True(t, now.managed && now.spaced && now.times && now.stamp != 0)
				now.inner, now.db, now.ctx, now.now, now.stamp, now.room = nil, nil, nil, 0, 0, nil
				require.Equal(t, txShared{managed: true, spaced: true, times: true}, now, name)
				require.Empty(t, tx.room)
				return nil
			})
			return again
		}, time.Minute, time.Microsecond)
	}
}

// TestErrorsOfEndedUpdates: the memory of an ended transaction is used by another one. Err of the ended transaction
// still returns what it returned at the end. Once an iteration has begun after that, and if there was no error, it returns ErrTxDone, for this
// transaction alone.
func TestErrorsOfEndedUpdates(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "db"), &Options{Durability: Buffered})
	require.NoError(t, err)
	defer db.Close()
	ended := func(err error) (old *Tx) {
		reused(t, func() *txShared {
			var state *txShared
			got := db.Update(func(tx *Tx) error {
				old, state = tx, tx.txShared
				tx.err = err
				return nil
			})
			require.Equal(t, err, got)
			return state
		})
		return old
	}
	mine := errors.New("mine")
	none, other, failed := ended(nil), ended(nil), ended(mine)
	require.NoError(t, db.Update(func(tx *Tx) error {
		for range none.All() {
			t.Error("a record of a transaction that has ended")
		}
		for range failed.All() {
			t.Error("a record of a transaction that has ended")
		}
		return tx.Err()
	}))
	require.Equal(t, ErrTxDone, none.Err())
	require.NoError(t, other.Err())
	require.Equal(t, mine, failed.Err())
	for _, tx := range []*Tx{none, other, failed} {
		require.Equal(t, errManaged, tx.Commit())
		require.Equal(t, errManaged, tx.Rollback())
		require.Equal(t, errManaged, tx.CommitAsync(nil))
		_, err := tx.CreateKeyspace("k")
		require.ErrorIs(t, err, ErrTxDone)
		require.ErrorIs(t, tx.DropKeyspace("k"), ErrTxDone)
		require.ErrorIs(t, tx.RenameKeyspace("k", "l"), ErrTxDone)
	}
	require.Equal(t, txShared{managed: true, done: true}, endedTx)
}

// TestKeptTransactions: goroutines keep the Tx of their Updates and use them while other Updates, of their own and of
// other goroutines, use the same memory. None of the ended transactions reads or writes anything, and the race
// detector reports nothing.
func TestKeptTransactions(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "db"), &Options{Durability: Buffered})
	require.NoError(t, err)
	defer db.Close()
	key, stray := []byte("k"), []byte("stray")
	const goroutines, updates = 4, 300
	handed := make(chan *Tx, goroutines*updates)
	refuses := func(tx *Tx) {
		if _, err := tx.Get(key); err != ErrTxDone {
			t.Errorf("Get: %v", err)
		}
		if err := tx.Put(stray, nil); err != ErrTxDone {
			t.Errorf("Put: %v", err)
		}
	}
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			var kept []*Tx
			for i := range updates {
				if err := db.Update(func(tx *Tx) error {
					kept = append(kept, tx)
					for _, old := range kept[max(0, i-20):i] {
						refuses(old)
					}
					select {
					case old := <-handed:
						refuses(old)
					default:
					}
					return tx.Put(key, nil)
				}); err != nil {
					t.Error(err)
				}
				handed <- kept[i]
			}
		})
	}
	all.Wait()
	_, err = db.Get(stray)
	require.ErrorIs(t, err, ErrNotFound)
}

// TestUpdateAllocates: an Update of one record allocates its handle, its node in the commit list and its part of a
// memtable. Each of these is at most a sixteenth of an allocation.
func TestUpdateAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools drop what they have")
	}
	db, err := Open(filepath.Join(t.TempDir(), "db"), &Options{Durability: Buffered})
	require.NoError(t, err)
	defer db.Close()
	key := []byte("k")
	require.Eventually(t, func() bool { // background work allocates too
		return testing.AllocsPerRun(1000, func() {
			if err := db.Update(func(tx *Tx) error { return tx.Put(key, key) }); err != nil {
				t.Error(err)
			}
		}) < 1
	}, time.Minute, time.Millisecond)
	require.Nil(t, mvcc.CallersMemory(&mvcc.Tx{}))
}
