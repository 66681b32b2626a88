package dbm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestUseAfterClose: everything is refused, nothing panics.
func TestUseAfterClose(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "a.fdbm"), nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("k"), nil))
	require.NoError(t, db.Close())
	require.NoError(t, db.Close())
	k := []byte("k")
	_, err = db.Get(k)
	require.ErrorIs(t, err, ErrClosed)
	_, err = db.Has(k)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, db.Put(k, k), ErrClosed)
	require.ErrorIs(t, db.Delete(k), ErrClosed)
	fn := func(*Tx) error {
		t.Error("function called")
		return nil
	}
	require.ErrorIs(t, db.View(fn), ErrClosed)
	require.ErrorIs(t, db.Update(fn), ErrClosed)
	require.ErrorIs(t, db.ViewContext(t.Context(), fn), ErrClosed)
	require.ErrorIs(t, db.UpdateContext(t.Context(), TxOptions{}, fn), ErrClosed)
	_, err = db.Begin(TxOptions{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = db.Begin(TxOptions{ReadOnly: true})
	require.ErrorIs(t, err, ErrClosed)
	_, err = db.Len()
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, db.Sync(), ErrClosed)
	require.ErrorIs(t, db.Checkpoint(), ErrClosed)
	require.ErrorIs(t, db.Check(context.Background()), ErrClosed)
	require.Zero(t, db.Stats())
	require.NotEmpty(t, db.Path())
}

// TestDroppedTransaction: a transaction that was neither ended nor is referenced any more is rolled back, and Close
// does not wait for it for long.
func TestDroppedTransaction(t *testing.T) {
	for _, o := range []TxOptions{{}, {ReadOnly: true}} {
		db, err := Open(filepath.Join(t.TempDir(), "a.fdbm"), nil)
		require.NoError(t, err)
		func() {
			tx, err := db.Begin(o)
			require.NoError(t, err)
			if !o.ReadOnly {
				require.NoError(t, tx.Put([]byte("k"), sized(3<<20, 'v')))
			}
			for range tx.All() {
				break
			}
		}()
		began := time.Now()
		require.NoError(t, db.Close())
		require.Less(t, time.Since(began), patience)
	}
}

// TestCloseWhileBusy closes the database while many goroutines use it. Each call succeeds completely or is refused,
// and what succeeded is there when the file is opened again.
func TestCloseWhileBusy(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		path := filepath.Join(t.TempDir(), "a.fdbm")
		db, err := Open(path, &Options{Durability: d, MemoryLimit: 1 << 20, RedoLimit: 1 << 20})
		require.NoError(t, err)
		var last [8]atomic.Int32
		var wg sync.WaitGroup
		for g := range last {
			wg.Go(func() {
				key := []byte{byte(g)}
				for i := 1; ; i++ {
					err := db.Update(func(tx *Tx) error { return tx.Put(key, []byte{byte(i), byte(i >> 8)}) })
					if err == nil {
						last[g].Store(int32(i))
						_, err = db.Get(key)
					}
					if err == nil && i%10 == 0 {
						err = db.Checkpoint()
					}
					if err == nil && i%7 == 0 {
						err = db.Check(context.Background())
					}
					if err != nil {
						if err != ErrClosed {
							t.Errorf("%v", err)
						}
						return
					}
					db.Stats()
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		require.NoError(t, db.Close())
		wg.Wait()
		db, err = Open(path, nil)
		require.NoError(t, err)
		for g := range last {
			v, err := db.Get([]byte{byte(g)})
			if last[g].Load() == 0 { // on a busy machine it may not have run yet
				require.ErrorIs(t, err, ErrNotFound)
				continue
			}
			require.NoError(t, err)
			require.EqualValues(t, last[g].Load(), int32(v[0])|int32(v[1])<<8)
		}
		require.NoError(t, db.Check(context.Background()))
		require.NoError(t, db.Close())
	}
}

// TestNothingLeftRunning: a closed database has no goroutines.
func TestNothingLeftRunning(t *testing.T) {
	for range 3 {
		db, err := Open(filepath.Join(t.TempDir(), "a.fdbm"), &Options{Durability: Buffered, FlushInterval: time.Millisecond})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range 50 {
					if err := db.Put([]byte{byte(g), byte(i)}, make([]byte, 1000)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, db.Close())
	}
	require.Eventually(t, func() bool { return !strings.Contains(stacks(), "mvcc.") }, patience, time.Millisecond, stacks())
}

// stacks returns the stacks of all goroutines except those of unrelated tests that run in parallel.
func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

// TestSmallFilesStaySmall: no segment is allocated ahead for a few records that are not synced one by one.
func TestSmallFilesStaySmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := Open(path, &Options{Durability: WriteThrough})
	require.NoError(t, err)
	for i := range 200 {
		require.NoError(t, db.Put(fmt.Appendf(nil, "%d", i), []byte("v")))
	}
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, db.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(128<<10))
}

// TestCloseMovesOnce: when Close has moved data together, the next Close does not move the same data again for a
// single commit, even with values that stay in place.
func TestCloseMovesOnce(t *testing.T) {
	mem := vfs.NewMem(2 << 30)
	defer mem.Release()
	open := func() *DB {
		db, err := openEngine(mem, "db", (&Options{}).engine())
		require.NoError(t, err)
		return db
	}
	db := open()
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 4 {
		require.NoError(t, db.Put(fmt.Appendf(nil, "long/%d", i), make([]byte, 1<<20+rng.IntN(1<<19))))
	}
	for range 200 {
		require.NoError(t, db.Update(func(tx *Tx) error {
			for range 100 {
				if err := tx.Put(fmt.Appendf(nil, "%05d", rng.IntN(10_000)), make([]byte, 300)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for i := range 4 {
		require.NoError(t, db.Delete(fmt.Appendf(nil, "long/%d", i%2)))
		require.NoError(t, db.Close())
		db = open()
		require.NoError(t, db.Put([]byte("k"), fmt.Append(nil, i)))
		written := int64(0)
		mem.OnOp(func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite {
				written += op.Len
			}
			return nil
		})
		require.NoError(t, db.Close())
		mem.OnOp(nil)
		require.Less(t, written, int64(2<<20), "3 MiB live in pages")
		db = open()
	}
	require.NoError(t, db.Close())
}
