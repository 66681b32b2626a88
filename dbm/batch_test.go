package dbm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBatch compares a database that is written by one reused batch with a map.
func TestBatch(t *testing.T) {
	allDurabilities(t, func(t *testing.T, db *DB) {
		model := map[string]string{}
		rng := rand.New(rand.NewPCG(1, 2))
		b := db.Batch()
		for i := range scaled(100) {
			next, size := map[string]string{}, 0
			n := rng.IntN(30)
			for j := range n {
				k := fmt.Sprintf("key-%03d", rng.IntN(200))
				size += len(k)
				if rng.IntN(4) == 0 {
					require.NoError(t, b.Delete([]byte(k)))
					next[k] = "\x00deleted"
					continue
				}
				v := fmt.Sprint(i, j) + string(make([]byte, rng.IntN(300)))
				if rng.IntN(100) == 0 {
					v += string(make([]byte, 2<<20))
				}
				size += len(v)
				require.NoError(t, b.Put([]byte(k), []byte(v)))
				next[k] = v
			}
			require.Equal(t, n, b.Len())
			require.EqualValues(t, size, b.Size())
			if rng.IntN(4) == 0 {
				b.Reset()
			} else {
				require.NoError(t, b.Commit())
				for k, v := range next {
					if v == "\x00deleted" {
						delete(model, k)
					} else {
						model[k] = v
					}
				}
			}
			require.Zero(t, b.Len())
			require.Zero(t, b.Size())
		}
		require.NoError(t, db.Sync()) // View sees only what is durable
		compare(t, db, model)
		require.NoError(t, db.Check(t.Context()))
	})
}

// TestBatchDoesNothingYet: before Commit, nobody sees a batch, it holds no snapshot and blocks nobody, and what
// others write meanwhile is not a conflict.
func TestBatchDoesNothingYet(t *testing.T) {
	db := newDB(t, nil)
	key, value := []byte("k"), []byte("batch")
	b := db.Batch()
	require.NoError(t, b.Put(key, value))
	clear(key)
	clear(value) // they were copied
	require.NoError(t, b.Delete([]byte("other")))
	require.Zero(t, db.Stats().OpenSnapshots)
	require.Zero(t, db.Stats().Commits)
	require.NoError(t, db.Put([]byte("k"), []byte("put")))
	require.NoError(t, db.Put([]byte("other"), nil))
	got, err := db.Get([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, "put", string(got))
	commits := db.Stats().Commits
	require.NoError(t, b.Commit())
	require.EqualValues(t, 1, db.Stats().Commits-commits)
	got, err = db.Get([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, "batch", string(got))
	ok, err := db.Has([]byte("other"))
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, b.Put([]byte("after"), nil))
	b.Reset()
	require.NoError(t, b.Commit(), "of an empty batch")
	ok, err = db.Has([]byte("after"))
	require.NoError(t, err)
	require.False(t, ok)
}

// TestBatchIsSeenWhole: concurrent readers see all of a batch or nothing.
func TestBatchIsSeenWhole(t *testing.T) {
	allDurabilities(t, func(t *testing.T, db *DB) {
		const keys = 40
		stop := make(chan struct{})
		var readers sync.WaitGroup
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := db.View(func(tx *Tx) error {
					first, n := "", 0
					for _, v := range tx.All() {
						if n++; n == 1 {
							first = string(v)
						} else if first != string(v) {
							return fmt.Errorf("%q and %q at once", first, v)
						}
					}
					if n != 0 && n != keys {
						return fmt.Errorf("%d records", n)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
		b := db.Batch()
		for i := range scaled(200) {
			for k := range keys {
				require.NoError(t, b.Put(fmt.Appendf(nil, "%02d", k), fmt.Appendf(nil, "%d", i)))
			}
			require.NoError(t, b.Commit())
		}
		close(stop)
		readers.Wait()
	})
}

// TestBatchAfterAnError: after a failed Commit, the operations are still in the batch and can be committed once the
// reason is gone.
func TestBatchAfterAnError(t *testing.T) {
	db := newDB(t, &Options{MaxFileSize: 4 << 20})
	full := 0
	for ; ; full++ {
		if err := db.Put(fmt.Appendf(nil, "a-%03d", full), sized(10_000, byte(full))); err != nil {
			require.ErrorIs(t, err, ErrFull)
			break
		}
	}
	b := db.Batch()
	const records = 30
	for i := range records {
		require.NoError(t, b.Put(fmt.Appendf(nil, "b-%02d", i), sized(10_000, byte(i))))
	}
	size := b.Size()
	require.ErrorIs(t, b.Commit(), ErrFull)
	require.Equal(t, records, b.Len())
	require.Equal(t, size, b.Size())
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, full, n, "nothing was applied")
	for i := range full {
		require.NoError(t, db.Delete(fmt.Appendf(nil, "a-%03d", i)))
	}
	require.NoError(t, b.Commit())
	require.Zero(t, b.Len())
	for i := range records {
		got, err := db.Get(fmt.Appendf(nil, "b-%02d", i))
		require.NoError(t, err)
		require.True(t, bytes.Equal(sized(10_000, byte(i)), got))
	}
	require.NoError(t, db.Check(t.Context()))
}

// TestBatchGivesMemoryBack: a batch does not keep its memory after it was large once.
func TestBatchGivesMemoryBack(t *testing.T) {
	b := newDB(t, nil).Batch()
	require.NoError(t, b.Put(nil, make([]byte, batchKept/2)))
	b.Reset()
	require.Positive(t, cap(b.bytes))
	require.NoError(t, b.Put(nil, make([]byte, batchKept+1)))
	b.Reset()
	require.Zero(t, cap(b.bytes))
	for range batchKept/batchOpBytes + 1 {
		require.NoError(t, b.Delete(nil))
	}
	b.Reset()
	require.Zero(t, cap(b.ops))
}

// TestBatchRefused: a batch that cannot be written returns an error.
func TestBatchRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := Open(path, nil)
	require.NoError(t, err)
	b := db.Batch()
	require.ErrorIs(t, b.Put(make([]byte, maxKey+1), nil), ErrKeyTooLarge)
	require.ErrorIs(t, b.Delete(make([]byte, maxKey+1)), ErrKeyTooLarge)
	require.Zero(t, b.Len())
	require.NoError(t, b.Put([]byte("k"), nil))
	require.NoError(t, db.Close())
	require.ErrorIs(t, b.Commit(), ErrClosed)
	require.Equal(t, 1, b.Len())
	for _, opts := range []*Options{{ReadOnly: true}, {Beside: true}} {
		db, err := Open(path, opts)
		require.NoError(t, err)
		b := db.Batch()
		require.NoError(t, b.Put([]byte("k"), nil))
		err = b.Commit()
		require.ErrorIs(t, err, ErrReadOnly)
		require.False(t, errors.Is(err, ErrTxReadOnly))
		require.NoError(t, db.Close())
	}
}

// TestBatchRangeToTheEmptyKey: a batch of nothing but a range that ends at the empty key deletes nothing.
func TestBatchRangeToTheEmptyKey(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	b := db.Batch()
	require.NoError(t, b.DeleteRange(nil, []byte{}))
	require.NoError(t, b.Commit())
	has, err := db.Has([]byte("k"))
	require.NoError(t, err)
	require.True(t, has)
}
