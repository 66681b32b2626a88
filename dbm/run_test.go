package dbm

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func value(t *testing.T, db *DB, key string) string {
	t.Helper()
	v, err := db.Get([]byte(key))
	if errors.Is(err, ErrNotFound) {
		return ""
	}
	require.NoError(t, err)
	return string(v)
}

// TestFunctionFails: an error, a panic and runtime.Goexit all roll the transaction back, and leave nothing behind
// for which Close would wait.
func TestFunctionFails(t *testing.T) {
	mine := errors.New("mine")
	for name, leave := range map[string]func() error{
		"error":  func() error { return mine },
		"panic":  func() error { panic(mine) },
		"goexit": func() error { runtime.Goexit(); return nil },
		"nil dereference": func() error {
			var db *DB
			_ = db.engine
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := newDB(t, nil)
			runs := map[string]func(func(*Tx) error) error{
				"view":   db.View,
				"update": db.Update,
				"serializable": func(fn func(*Tx) error) error {
					return db.UpdateContext(t.Context(), TxOptions{Serializable: true}, fn)
				},
			}
			for kind, run := range runs {
				var got any
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() {
						if r := recover(); r != nil {
							got = r
						}
					}()
					got = run(func(tx *Tx) error {
						tx.Put([]byte("k"), []byte("v")) // fails in a View
						return leave()
					})
				})
				wg.Wait()
				switch name {
				case "goexit":
					require.Nil(t, got, kind)
				case "nil dereference":
					require.ErrorContains(t, got.(runtime.Error), "nil pointer", kind)
				default:
					require.Equal(t, mine, got, kind)
				}
			}
			require.Empty(t, value(t, db, "k"))
			require.Zero(t, db.Stats().OpenSnapshots)
			require.NoError(t, db.Put([]byte("k"), []byte("v")))
		})
	}
}

// TestGoexitWhileAlone: a function that calls Goexit while it has the gate closed opens it. On a busy machine, a
// single Put may take as long as one that waits at the gate, but not each of many.
func TestGoexitWhileAlone(t *testing.T) {
	least := time.Hour
	for i := 0; i < 50 && least > 90*time.Millisecond; i++ {
		db := newDB(t, &Options{Durability: WriteThrough}) // so that the time measured is that of the gate, and not that of a busy disk
		var wg sync.WaitGroup
		wg.Go(func() {
			tries := 0
			db.Update(func(tx *Tx) error {
				if tries++; tries > 5 {
					runtime.Goexit()
				}
				tx.Get([]byte("k"))
				require.NoError(t, db.Put([]byte("k"), []byte("theirs")))
				return tx.Put([]byte("k"), []byte("mine"))
			})
		})
		wg.Wait()
		began := time.Now()
		require.NoError(t, db.Put([]byte("k"), []byte("later")))
		least = min(least, time.Since(began))
	}
	require.Less(t, least, 90*time.Millisecond, "waited at the gate")
}

// TestManagedTransactions: only View and Update can end their transactions.
func TestManagedTransactions(t *testing.T) {
	db := newDB(t, nil)
	require.NoError(t, db.Update(func(tx *Tx) error {
		require.ErrorIs(t, tx.Commit(), errManaged)
		require.ErrorIs(t, tx.Rollback(), errManaged)
		return tx.Put([]byte("k"), []byte("v"))
	}))
	require.NoError(t, db.View(func(tx *Tx) error {
		require.ErrorIs(t, tx.Commit(), errManaged)
		require.ErrorIs(t, tx.Rollback(), errManaged)
		return nil
	}))
	require.Equal(t, "v", value(t, db, "k"))
	var leaked *Tx
	require.NoError(t, db.Update(func(tx *Tx) error {
		leaked = tx
		return nil
	}))
	_, err := leaked.Get([]byte("k"))
	require.ErrorIs(t, err, ErrTxDone)
	require.ErrorIs(t, leaked.Put([]byte("k"), nil), ErrTxDone)
}

// TestContext: if a context ends before the commit is decided, the commit is not made.
func TestContext(t *testing.T) {
	db := newDB(t, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	never := func(*Tx) error {
		t.Error("function called")
		return nil
	}
	require.ErrorIs(t, db.ViewContext(ended, never), context.Canceled)
	require.ErrorIs(t, db.UpdateContext(ended, TxOptions{}, never), context.Canceled)

	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, db.UpdateContext(ctx, TxOptions{}, func(tx *Tx) error {
		cancel()
		return tx.Put([]byte("k"), []byte("v"))
	}), context.Canceled)
	require.Empty(t, value(t, db, "k"))

	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	tries := 0
	require.ErrorIs(t, db.UpdateContext(ctx, TxOptions{}, func(tx *Tx) error { // it loses conflicts until the context ends
		tries++
		tx.Get([]byte("k"))
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, db.Put([]byte("k"), []byte("theirs")))
		return tx.Put([]byte("k"), []byte("mine"))
	}), context.DeadlineExceeded)
	require.Less(t, tries, 5)

	//lint:ignore SA1012 what happens is the subject
	require.Panics(t, func() { db.UpdateContext(nil, TxOptions{}, never) })
	require.NoError(t, db.Check(t.Context()))
	require.ErrorIs(t, db.Check(ended), context.Canceled)
}

// TestTransactionsInside: other transactions may begin and end inside one. Each sees what was committed when it
// began.
func TestTransactionsInside(t *testing.T) {
	db := newDB(t, nil)
	require.NoError(t, db.Put([]byte("k"), []byte("0")))
	require.NoError(t, db.Update(func(outer *Tx) error {
		require.NoError(t, outer.Put([]byte("mine"), []byte("1")))
		require.NoError(t, db.Put([]byte("k"), []byte("1")))
		require.Equal(t, "1", value(t, db, "k"))
		require.Empty(t, value(t, db, "mine"))
		v, err := outer.Get([]byte("k"))
		require.Equal(t, "0", string(v))
		require.NoError(t, err)
		require.NoError(t, db.Update(func(inner *Tx) error {
			require.NoError(t, db.View(func(tx *Tx) error {
				v, err := tx.Get([]byte("k"))
				require.Equal(t, "1", string(v))
				return err
			}))
			return inner.Put([]byte("other"), []byte("1"))
		}))
		return nil
	}))
	require.Equal(t, "1", value(t, db, "mine"))
	require.Equal(t, "1", value(t, db, "other"))
}

// TestPutInsideUpdateThatNeedsIt: the transaction conflicts with its own Put each time, even when it has the gate
// closed. It gets an error in reasonable time.
func TestPutInsideUpdateThatNeedsIt(t *testing.T) {
	t.Parallel()
	db := newDB(t, &Options{Durability: WriteThrough}) // so that the time measured is that of the gate, and not that of a busy disk
	began := time.Now()
	require.ErrorIs(t, db.Update(func(tx *Tx) error {
		tx.Get([]byte("k"))
		require.NoError(t, db.Put([]byte("k"), []byte("theirs")))
		return tx.Put([]byte("k"), []byte("mine"))
	}), ErrConflict)
	require.Less(t, time.Since(began), patience)
	require.Equal(t, "theirs", value(t, db, "k"))
}

// TestBegin: transactions that the caller ends.
func TestBegin(t *testing.T) {
	db := newDB(t, nil)
	first, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	second, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	for _, tx := range []*Tx{first, second} {
		require.ErrorIs(t, tx.Insert([]byte("k"), nil), nil)
	}
	require.NoError(t, first.Commit())
	require.ErrorIs(t, second.Commit(), ErrConflict)
	require.ErrorIs(t, second.Commit(), ErrTxDone)
	require.NoError(t, second.Rollback())
	third, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, third.Insert([]byte("k"), nil), ErrExists)
	require.NoError(t, third.Commit())
}

// TestOwnCommitsAreSeen: what a goroutine begins after its commit has returned sees the commit.
func TestOwnCommitsAreSeen(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		db := newDB(t, &Options{Durability: d})
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				key := []byte{byte(g)}
				for i := range 100 {
					if db.Put(key, []byte{byte(i)}) != nil {
						t.Error("put")
					}
					see := func(tx *Tx) error {
						if v, err := tx.Get(key); err != nil || v[0] != byte(i) {
							t.Errorf("%v %v instead of %d", v, err, i)
						}
						return nil
					}
					switch i % 3 {
					case 0:
						db.View(see)
					case 1:
						db.Update(see)
					default:
						if v, err := db.Get(key); err != nil || v[0] != byte(i) {
							t.Errorf("%v %v instead of %d", v, err, i)
						}
					}
				}
			})
		}
		wg.Wait()
	}
}
