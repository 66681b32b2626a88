package dbm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKeysReadNoValue: iteration over keys passes records with damaged values, in runs or where they were logged,
// for which other iterators report an error.
func TestKeysReadNoValue(t *testing.T) {
	for _, size := range []int{400, 20_000, 2 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.fdbm")
			db, err := Open(path, &Options{Durability: Buffered})
			require.NoError(t, err)
			for i := range 8 { // each in a batch of its own, as small values of a single commit are stored in the leaf
				require.NoError(t, db.Update(func(tx *Tx) error {
					for j := range 40 {
						if err := tx.Put(fmt.Appendf(nil, "%d.%02d", i, j), sized(400, byte(i+j))); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			damaged := bytes.Repeat([]byte("damaged! "), size/9)
			require.NoError(t, db.Put([]byte("4.50"), damaged))
			require.NoError(t, db.Close())
			file, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Contains(t, string(file), "damaged! damaged! ")
			file = bytes.ReplaceAll(file, []byte("damaged! "), []byte("Damaged! "))
			require.NoError(t, os.WriteFile(path, file, 0o600))
			db, err = Open(path, nil)
			require.NoError(t, err)
			defer db.Close()
			n := 0
			require.NoError(t, db.View(func(tx *Tx) error {
				for range tx.Keys(nil, nil) {
					n++
				}
				return nil
			}))
			require.Equal(t, 321, n)
			require.ErrorIs(t, db.View(func(tx *Tx) error {
				for range tx.All() {
				}
				return nil
			}), ErrCorrupt)
		})
	}
}

// TestKeys: Keys returns the same keys as Range, in every kind of transaction and with its own writes.
func TestKeys(t *testing.T) {
	for _, opts := range []*Options{nil, {MaxSnapshotAge: patience}} {
		db := newDB(t, opts)
		check := func(tx *Tx) error {
			for _, b := range [][2][]byte{{nil, nil}, {[]byte("b"), nil}, {nil, []byte("k2")}, {[]byte("k1"), []byte("k15")}, {[]byte("z"), []byte("a")}} {
				var want, got []string
				for k := range tx.Range(b[0], b[1]) {
					want = append(want, string(k))
				}
				for k := range tx.Keys(b[0], b[1]) {
					got = append(got, string(k))
				}
				require.Equal(t, want, got)
			}
			return tx.Err()
		}
		require.NoError(t, db.Update(func(tx *Tx) error {
			for i := range 300 {
				require.NoError(t, tx.Put(fmt.Appendf(nil, "k%d", i), sized(i*7, 1)))
			}
			require.NoError(t, tx.Put(sized(3000, 'k'), nil))
			return check(tx)
		}))
		require.NoError(t, db.View(check))
		require.NoError(t, db.Update(func(tx *Tx) error {
			require.NoError(t, tx.Delete([]byte("k12")))
			require.NoError(t, tx.Put([]byte("k121212"), nil))
			return check(tx)
		}))
	}
}

// TestKeysAreReads: a range over which a serializable transaction has iterated by key is protected against inserts.
func TestKeysAreReads(t *testing.T) {
	db := newDB(t, nil)
	tx, err := db.Begin(TxOptions{Serializable: true})
	require.NoError(t, err)
	for range tx.Keys([]byte("a"), []byte("b")) {
	}
	require.NoError(t, tx.Put([]byte("mine"), nil))
	require.NoError(t, db.Put([]byte("a1"), nil))
	require.ErrorIs(t, tx.Commit(), ErrConflict)
}

func TestPrefixEnd(t *testing.T) {
	for p, want := range map[string]string{"a": "b", "ab": "ac", "a\xff": "b", "a\xff\xff": "b", "\xfe\xff": "\xff", "\x00": "\x01"} {
		require.Equal(t, want, string(PrefixEnd([]byte(p))))
	}
	require.Nil(t, PrefixEnd(nil))
	require.Nil(t, PrefixEnd([]byte("\xff\xff")))
	db := newDB(t, nil)
	require.NoError(t, db.Update(func(tx *Tx) error {
		for _, k := range []string{"a", "b1", "b2", "b\xff", "b\xff\xff9", "c", "\xff1", "\xff\xff"} {
			require.NoError(t, tx.Put([]byte(k), nil))
		}
		for p, last := range map[string]string{"b": "b\xff\xff9", "b\xff": "b\xff\xff9", "\xff": "\xff\xff", "": "\xff\xff", "d": ""} {
			newest := ""
			for k := range tx.Backward([]byte(p), PrefixEnd([]byte(p))) {
				newest = string(k)
				break
			}
			require.Equal(t, last, newest, "%q", p)
		}
		return nil
	}))
}

// TestIterationEndsWithItsContext: the iteration stops soon, View and Update return the reason, and nothing is
// committed.
func TestIterationEndsWithItsContext(t *testing.T) {
	db := newDB(t, nil)
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range 5000 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%04d", i), nil))
		}
		return nil
	}))
	for name, iterate := range map[string]func(tx *Tx, each func()){
		"All": func(tx *Tx, each func()) {
			for range tx.All() {
				each()
			}
		},
		"Backward": func(tx *Tx, each func()) {
			for range tx.Backward(nil, nil) {
				each()
			}
		},
		"Keys": func(tx *Tx, each func()) {
			for range tx.Keys(nil, nil) {
				each()
			}
		},
	} {
		for _, update := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			fn := func(tx *Tx) error {
				iterate(tx, func() {
					if n++; n == 10 {
						cancel()
					}
				})
				require.ErrorIs(t, tx.Err(), context.Canceled)
				if update {
					require.NoError(t, tx.Put([]byte("late"), nil))
				}
				return nil
			}
			if update {
				require.ErrorIs(t, db.UpdateContext(ctx, TxOptions{}, fn), context.Canceled, name)
			} else {
				require.ErrorIs(t, db.ViewContext(ctx, fn), context.Canceled, name)
			}
			require.Less(t, n, 1000, name)
			cancel()
		}
	}
	ok, err := db.Has([]byte("late"))
	require.NoError(t, err)
	require.False(t, ok)
}
