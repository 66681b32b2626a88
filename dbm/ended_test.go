package dbm

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestEndedTransaction: every call of a transaction that has ended, and of its cursors and iterators, returns
// ErrTxDone.
func TestEndedTransaction(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "db"), nil)
	require.NoError(t, err)
	defer db.Close()
	long := bytes.Repeat([]byte("v"), 3000)
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range 100 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "k%02d", i), long[:1+i%2*2999]))
		}
		return nil
	}))
	key := []byte("k01")
	iterators := map[string]func(tx *Tx) iter.Seq2[[]byte, []byte]{
		"All":      func(tx *Tx) iter.Seq2[[]byte, []byte] { return tx.All() },
		"Range":    func(tx *Tx) iter.Seq2[[]byte, []byte] { return tx.Range(key, nil) },
		"Backward": func(tx *Tx) iter.Seq2[[]byte, []byte] { return tx.Backward(nil, nil) },
		"before":   func(tx *Tx) iter.Seq2[[]byte, []byte] { return tx.Backward(nil, []byte("k50")) },
		"Prefix":   func(tx *Tx) iter.Seq2[[]byte, []byte] { return tx.Prefix([]byte("k")) },
	}
	for _, end := range []func(tx *Tx) error{(*Tx).Rollback, (*Tx).Commit} {
		for _, readOnly := range []bool{false, true} {
			fresh := func() *Tx {
				tx, err := db.Begin(TxOptions{ReadOnly: readOnly})
				require.NoError(t, err)
				return tx
			}
			for name, records := range iterators {
				tx := fresh()
				all := records(tx)
				require.NoError(t, end(tx))
				require.NoError(t, tx.Err())
				for range all {
					t.Fatal("a record of a transaction that has ended")
				}
				require.ErrorIs(t, tx.Err(), ErrTxDone, "%s behind the end", name)

				for at := 1; at < 4; at++ { // the transaction ends in the middle
					tx, n := fresh(), 0
					for range records(tx) {
						if n++; n == at {
							require.NoError(t, end(tx))
						}
					}
					require.Equal(t, at, n)
					require.ErrorIs(t, tx.Err(), ErrTxDone, "%s amid", name)
				}
				tx = fresh()
				for range records(tx) {
					require.NoError(t, end(tx))
					break
				}
				require.NoError(t, tx.Err(), "%s was left", name)
			}

			tx := fresh()
			c, r := tx.Cursor(), func() (r interface{ Read([]byte) (int, error) }) {
				r, _, err := tx.ValueReader(key)
				require.NoError(t, err)
				return r
			}()
			require.True(t, c.Seek(key))
			require.NoError(t, end(tx))
			require.Nil(t, c.Value())
			require.Nil(t, c.Key())
			require.ErrorIs(t, c.Err(), ErrTxDone)
			for name, move := range map[string]func(c *Cursor) bool{
				"First": (*Cursor).First, "Last": (*Cursor).Last, "Next": (*Cursor).Next, "Prev": (*Cursor).Prev,
				"Seek": func(c *Cursor) bool { return c.Seek(key) },
			} {
				c := tx.Cursor()
				require.False(t, move(c), name)
				require.ErrorIs(t, c.Err(), ErrTxDone, name)
			}
			_, err := r.Read(make([]byte, 10))
			require.ErrorIs(t, err, ErrTxDone)
			for name, call := range map[string]func() error{
				"Get":         func() error { _, err := tx.Get(key); return err },
				"Has":         func() error { _, err := tx.Has(key); return err },
				"Len":         func() error { _, err := tx.Len(); return err },
				"ValueReader": func() error { _, _, err := tx.ValueReader(key); return err },
				"Put":         func() error { return tx.Put(key, nil) },
				"Insert":      func() error { return tx.Insert(key, nil) },
				"Delete":      func() error { return tx.Delete(key) },
				"cursor":      c.Delete,
				"Commit":      tx.Commit,
			} {
				require.ErrorIs(t, call(), ErrTxDone, name)
			}
			require.NoError(t, tx.Rollback())
		}
	}
}

// TestEndedUpdate: the same holds for the transaction of an Update that has ended, even while another Update uses
// the memory that it had in the engine. The other one is not affected.
func TestEndedUpdate(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "db"), &Options{Durability: Buffered})
	require.NoError(t, err)
	defer db.Close()
	key, value := []byte("k"), bytes.Repeat([]byte("v"), 3000)
	require.NoError(t, db.Put(key, value))
	none := func(*Tx) func() error { return func() error { return nil } }
	for name, keep := range map[string]func(tx *Tx) func() error{
		"nothing": none,
		"cursor": func(tx *Tx) func() error {
			c := tx.Cursor()
			require.True(t, c.Seek(key))
			return func() error { c.Next(); return c.Err() }
		},
		"reader": func(tx *Tx) func() error {
			r, _, err := tx.ValueReader(key)
			require.NoError(t, err)
			return func() error { _, err := r.Read(make([]byte, 1)); return err }
		},
		"iterator": func(tx *Tx) func() error {
			all := tx.All()
			return func() error {
				for range all {
					t.Error("a record of a transaction that has ended")
				}
				return tx.Err()
			}
		},
		"keyspaces": func(tx *Tx) func() error { // there are none
			return func() error {
				for range tx.Keyspaces() {
					t.Error("a keyspace")
				}
				return tx.Err()
			}
		},
		"keyspace": func(tx *Tx) func() error {
			return func() error { _, err := tx.Keyspace("other"); return err }
		},
		"copy": func(tx *Tx) func() error {
			copied := *tx
			return func() error { return copied.Put([]byte("stray"), nil) }
		},
		"whole": func(tx *Tx) func() error {
			whole := tx.whole()
			return func() error { return whole.Put([]byte("stray"), nil) }
		},
		"pulled": func(tx *Tx) func() error {
			next, stop := iter.Pull2(tx.All())
			_, _, ok := next()
			require.True(t, ok)
			return func() error {
				if _, _, ok := next(); ok {
					t.Error("a record of a transaction that has ended")
				}
				stop()
				return tx.Err()
			}
		},
	} {
		for _, write := range []bool{false, true} {
			var old *Tx
			var use func() error
			require.NoError(t, db.Update(func(tx *Tx) error {
				old, use = tx, keep(tx)
				if write {
					return tx.Put([]byte("old"), value)
				}
				return nil
			}))
			require.NoError(t, db.Delete([]byte("old")))
			require.NoError(t, db.Update(func(tx *Tx) error {
				require.NotSame(t, old, tx)
				_, err := tx.Get([]byte("old"))
				require.ErrorIs(t, err, ErrNotFound)
				_, err = old.Get(key)
				require.ErrorIs(t, err, ErrTxDone, name)
				require.ErrorIs(t, old.Put([]byte("stray"), nil), ErrTxDone, name)
				require.ErrorIs(t, old.Delete(key), ErrTxDone, name)
				require.ErrorIs(t, old.DeleteRange(nil, nil), ErrTxDone, name)
				if err := use(); name != "nothing" {
					require.ErrorIs(t, err, ErrTxDone, name)
				}
				return tx.Put([]byte("new"), nil)
			}))
			_, err := db.Get([]byte("stray"))
			require.ErrorIs(t, err, ErrNotFound, name)
			got, err := db.Get(key)
			require.NoError(t, err)
			require.Equal(t, value, got, name)
		}
	}
}

// TestClosedDatabase: every call of a closed database returns ErrClosed.
func TestClosedDatabase(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "db")
		db, err := Open(path, nil)
		require.NoError(t, err)
		require.NoError(t, db.Put([]byte("k"), []byte("v")))
		require.NoError(t, db.Close())
		db, err = Open(path, &Options{ReadOnly: readOnly})
		require.NoError(t, err)
		require.NoError(t, db.Close())
		key, ctx := []byte("k"), context.Background()
		for name, call := range map[string]func() error{
			"Get":   func() error { _, err := db.Get(key); return err },
			"Has":   func() error { _, err := db.Has(key); return err },
			"Len":   func() error { _, err := db.Len(); return err },
			"View":  func() error { return db.View(func(*Tx) error { return nil }) },
			"Begin": func() error { _, err := db.Begin(TxOptions{ReadOnly: true}); return err },
			"Check": func() error { return db.Check(ctx) },
		} {
			require.ErrorIs(t, call(), ErrClosed, name)
		}
		for name, call := range map[string]func() error{
			"Put":     func() error { return db.Put(key, key) },
			"large":   func() error { return db.Put(key, make([]byte, 2<<20)) },
			"Delete":  func() error { return db.Delete(key) },
			"Update":  func() error { return db.Update(func(*Tx) error { return nil }) },
			"Begin":   func() error { _, err := db.Begin(TxOptions{}); return err },
			"Compact": func() error { return db.Compact(ctx, nil) },
		} {
			if err := call(); readOnly {
				require.ErrorIs(t, err, ErrReadOnly, name)
			} else {
				require.ErrorIs(t, err, ErrClosed, name)
			}
		}
		for name, call := range map[string]func() error{"Sync": db.Sync, "Checkpoint": db.Checkpoint} {
			if err := call(); !readOnly || err != nil {
				require.ErrorIs(t, err, ErrClosed, name)
			}
		}
		require.NoError(t, db.Close())
		require.Equal(t, path, db.Path())
		db.Stats()
	}
}

// TestTxReadOnly: the error of a write in View says that the transaction is read-only, and not the database.
func TestTxReadOnly(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "db"), nil)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.View(func(tx *Tx) error {
		for _, err := range []error{tx.Put(nil, nil), tx.Insert(nil, nil), tx.Delete(nil), tx.Cursor().Delete()} {
			require.ErrorIs(t, err, ErrTxReadOnly)
			require.ErrorIs(t, err, ErrReadOnly, "as before")
			require.EqualError(t, err, "flashdbm: transaction is read-only")
			require.NotErrorIs(t, ErrReadOnly, ErrTxReadOnly)
		}
		return nil
	}))
}

// TestValueChangedMeanwhile: if the caller changes a large value while Put writes it, some mixture is stored, and
// it is intact.
func TestValueChangedMeanwhile(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	db, err := openEngine(mem, "db", (&load{segmentPages: 64, memoryLimit: 1 << 20, redoLimit: 1 << 20}).options(rand.New(rand.NewPCG(1, 1))))
	require.NoError(t, err)
	defer db.Close()
	value := make([]byte, 3<<20)
	writes := 0
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Len > 1<<16 {
			writes++
			for i := range value {
				value[i]++
			}
		}
		return nil
	})
	require.NoError(t, db.Put([]byte("k"), value))
	mem.OnOp(nil)
	require.Greater(t, writes, 3)
	got, err := db.Get([]byte("k"))
	require.NoError(t, err)
	require.Len(t, got, len(value))
	require.NoError(t, db.Check(context.Background()))
}
