//go:build unix

package dbm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCutUnderReaders: the file is truncated while it is read and written. Readers get the data or an error,
// writers get an error eventually, nothing crashes or hangs, and a handle that has noticed it writes nothing more.
func TestCutUnderReaders(t *testing.T) {
	for _, to := range []int64{0, 4096, 100_000, 1_000_001} {
		t.Run(fmt.Sprint(to), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			db, err := Open(path, &Options{MemoryLimit: 1 << 20, RedoLimit: 1 << 20})
			require.NoError(t, err)
			value := func(i int) []byte { return fmt.Appendf(make([]byte, 300), "%d", i) }
			const records = 8000
			for i := 0; i < records; i += 100 {
				require.NoError(t, db.Update(func(tx *Tx) error {
					for j := i; j < i+100; j++ {
						if err := tx.Put(fmt.Appendf(nil, "%05d", j), value(j)); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			require.NoError(t, db.Checkpoint())
			var all sync.WaitGroup
			var failed atomic.Int32
			ctx, stop := context.WithTimeout(context.Background(), patience)
			defer stop()
			work := func(name string, fn func(n int) error) {
				all.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						if err := fn(n); err != nil {
							if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFailed) {
								t.Errorf("%s: %v", name, err)
							}
							failed.Add(1)
							return
						}
					}
				})
			}
			work("get", func(n int) error {
				v, err := db.Get(fmt.Appendf(nil, "%05d", n*7919%records))
				if err == nil && string(v) != string(value(n*7919%records)) {
					t.Errorf("record %d is wrong", n*7919%records)
				}
				return err
			})
			work("scan", func(int) error {
				return db.View(func(tx *Tx) error {
					n := 0
					for _, v := range tx.All() {
						if n++; n <= records && len(v) < 300 {
							t.Errorf("a record of %d bytes", len(v))
						}
					}
					return tx.Err()
				})
			})
			work("check", func(int) error { return db.Check(ctx) })
			work("put", func(n int) error { return db.Put(fmt.Appendf(nil, "%05d", n*7919%records), value(n*7919%records)) })
			time.Sleep(20 * time.Millisecond)
			require.NoError(t, os.Truncate(path, to))
			all.Wait()
			require.EqualValues(t, 4, failed.Load(), "all have met the cut")
			require.ErrorIs(t, db.Put([]byte("k"), nil), ErrFailed)
			require.ErrorIs(t, db.Close(), ErrFailed)
		})
	}
}

// TestCutFileStaysShort: a truncated file must not grow again with our next write, which would leave zeros between
// the remaining and the new data.
func TestCutFileStaysShort(t *testing.T) {
	for name, write := range map[string]func(db *DB) error{
		"record":      func(db *DB) error { return db.Put([]byte("k"), []byte("v")) },
		"large value": func(db *DB) error { return db.Put([]byte("k"), make([]byte, 3<<20)) },
		"checkpoint":  func(db *DB) error { return db.Checkpoint() },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			db, err := Open(path, nil)
			require.NoError(t, err)
			for i := range 100 {
				require.NoError(t, db.Put(fmt.Appendf(nil, "%05d", i), make([]byte, 1000)))
			}
			require.NoError(t, os.Truncate(path, 100_000))
			err = write(db)
			require.ErrorIs(t, err, ErrFailed)
			require.ErrorContains(t, err, "cut short")
			fi, err := os.Stat(path)
			require.NoError(t, err)
			require.EqualValues(t, 100_000, fi.Size())
			require.ErrorIs(t, db.Close(), ErrFailed)
		})
	}
}
