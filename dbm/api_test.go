package dbm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// sizes are lengths of keys and values around all limits of the layers below.
var (
	keySizes   = []int{0, 1, 3, 4, 5, 495, 496, 497, 999, 1000, 1001, 4055, 4056, 4097, maxKey - 1, maxKey}
	valueSizes = []int{0, 1, 1000, 1978, 2013, 2014, 2015, 4039, 4040, 4041, 8136, 8137, 1<<20 - 13000, 1 << 20, 1<<20 + 1, 3 << 20}
)

func sized(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i*i>>8) + byte(i)
	}
	return b
}

// TestSizes writes records of all sizes and reads them in every way: in the transaction, after it, and after the
// file was opened again.
func TestSizes(t *testing.T) {
	path := t.TempDir() + "/a.fdbm"
	db, err := Open(path, nil)
	require.NoError(t, err)
	type record struct{ key, value []byte }
	var records []record
	for i, n := range keySizes {
		records = append(records, record{sized(n, 'k'), sized(100, byte(i))})
	}
	for i, n := range valueSizes {
		records = append(records, record{fmt.Appendf(nil, "value of %d", n), sized(n, byte(i))})
	}
	records = append(records, record{sized(maxKey, 'z'), sized(1<<20, 'z')}, record{sized(maxKey, 'y'), sized(2<<20, 'y')}, record{sized(2000, 'x'), nil})
	verify := func(tx *Tx) error {
		for _, r := range records {
			v, err := tx.Get(r.key)
			require.NoError(t, err)
			require.NotNil(t, v)
			require.True(t, bytes.Equal(r.value, v), "key of %d, value of %d bytes", len(r.key), len(r.value))
			ok, err := tx.Has(r.key)
			require.NoError(t, err)
			require.True(t, ok)
			reader, n, err := tx.ValueReader(r.key)
			require.NoError(t, err)
			require.EqualValues(t, len(r.value), n)
			all, err := io.ReadAll(reader)
			require.NoError(t, err)
			require.True(t, bytes.Equal(r.value, all))
			require.NoError(t, reader.Close())
			c := tx.Cursor()
			require.True(t, c.Seek(r.key))
			require.True(t, bytes.Equal(r.key, c.Key()))
			require.NotNil(t, c.Value())
			require.True(t, bytes.Equal(r.value, c.Value()))
		}
		n, err := tx.Len()
		require.NoError(t, err)
		require.EqualValues(t, len(records), n)
		return nil
	}
	require.NoError(t, db.Update(func(tx *Tx) error {
		for _, r := range records {
			require.NoError(t, tx.Put(r.key, r.value))
		}
		return verify(tx)
	}))
	for range 2 {
		require.NoError(t, db.View(verify))
		for _, r := range records {
			v, err := db.Get(r.key)
			require.NoError(t, err)
			require.NotNil(t, v)
			require.True(t, bytes.Equal(r.value, v))
		}
		require.NoError(t, db.Check(t.Context()))
		require.NoError(t, db.Close())
		db, err = Open(path, nil)
		require.NoError(t, err)
	}
	require.NoError(t, db.Update(func(tx *Tx) error {
		for _, r := range records {
			require.NoError(t, tx.Delete(r.key))
		}
		n, err := tx.Len()
		require.Zero(t, n)
		return err
	}))
	require.NoError(t, db.Check(t.Context()))
	require.NoError(t, db.Close())
}

func TestKeyTooLarge(t *testing.T) {
	db := newDB(t, nil)
	long := make([]byte, maxKey+1)
	_, err := db.Get(long)
	require.ErrorIs(t, err, ErrKeyTooLarge)
	_, err = db.Has(long)
	require.ErrorIs(t, err, ErrKeyTooLarge)
	require.ErrorIs(t, db.Put(long, nil), ErrKeyTooLarge)
	require.ErrorIs(t, db.Delete(long), ErrKeyTooLarge)
	require.NoError(t, db.Update(func(tx *Tx) error {
		_, err := tx.Get(long)
		require.ErrorIs(t, err, ErrKeyTooLarge)
		_, err = tx.Has(long)
		require.ErrorIs(t, err, ErrKeyTooLarge)
		_, _, err = tx.ValueReader(long)
		require.ErrorIs(t, err, ErrKeyTooLarge)
		require.ErrorIs(t, tx.Put(long, nil), ErrKeyTooLarge)
		require.ErrorIs(t, tx.Insert(long, nil), ErrKeyTooLarge)
		require.ErrorIs(t, tx.Delete(long), ErrKeyTooLarge)
		require.False(t, tx.Cursor().Seek(long))
		return tx.Err()
	}))
	n, err := db.Len()
	require.NoError(t, err)
	require.Zero(t, n)
}

// TestValueTooLarge checks only the length: no value of such a size is ever allocated.
func TestValueTooLarge(t *testing.T) {
	require.NoError(t, checkSizesOf(maxKey, maxValue))
	require.ErrorIs(t, checkSizesOf(0, maxValue+1), ErrValueTooLarge)
	require.ErrorIs(t, checkSizesOf(0, 1<<63), ErrValueTooLarge)
	require.ErrorIs(t, checkSizesOf(maxKey+1, 0), ErrKeyTooLarge)
}

// TestNilAndEmpty: nil is the same as the empty key or the empty value.
func TestNilAndEmpty(t *testing.T) {
	db := newDB(t, nil)
	_, err := db.Get(nil)
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, db.Delete(nil))
	require.NoError(t, db.Put(nil, nil))
	for _, key := range [][]byte{nil, {}} {
		v, err := db.Get(key)
		require.NoError(t, err)
		require.Equal(t, []byte{}, v)
	}
	require.NoError(t, db.Update(func(tx *Tx) error {
		v, err := tx.Get([]byte{})
		require.NoError(t, err)
		require.Equal(t, []byte{}, v)
		require.ErrorIs(t, tx.Insert(nil, []byte("x")), ErrExists)
		require.NoError(t, tx.Put([]byte{}, nil))
		v, err = tx.Get(nil)
		require.NoError(t, err)
		require.Equal(t, []byte{}, v)
		c := tx.Cursor()
		require.True(t, c.Next())
		require.Equal(t, []byte{}, c.Key())
		require.Equal(t, []byte{}, c.Value())
		require.True(t, c.Seek(nil))
		require.NoError(t, c.Delete())
		_, err = tx.Get(nil)
		require.ErrorIs(t, err, ErrNotFound)
		return nil
	}))
	n, err := db.Len()
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestInsertAndDelete(t *testing.T) {
	db := newDB(t, nil)
	k, v := []byte("k"), []byte("v")
	require.NoError(t, db.Delete(k))
	require.NoError(t, db.Update(func(tx *Tx) error {
		require.NoError(t, tx.Delete(k))
		require.NoError(t, tx.Insert(k, v))
		require.ErrorIs(t, tx.Insert(k, []byte("w")), ErrExists)
		require.NoError(t, tx.Err(), "not an error of the media")
		require.NoError(t, tx.Delete(k))
		require.NoError(t, tx.Insert(k, v))
		return nil
	}))
	require.NoError(t, db.Update(func(tx *Tx) error {
		require.ErrorIs(t, tx.Insert(k, []byte("w")), ErrExists)
		got, err := tx.Get(k)
		require.Equal(t, v, got)
		return err
	}))
	require.NoError(t, db.Delete(k))
	ok, err := db.Has(k)
	require.NoError(t, err)
	require.False(t, ok)
}

// TestArgumentsAreCopied: the caller may change its slices after a call has returned.
func TestArgumentsAreCopied(t *testing.T) {
	db := newDB(t, nil)
	for _, n := range []int{10, 5000, 2 << 20} {
		key, value := sized(2000, byte(n)), sized(n, 'v')
		require.NoError(t, db.Update(func(tx *Tx) error {
			require.NoError(t, tx.Put(key, value))
			clear(key)
			clear(value)
			got, err := tx.Get(sized(2000, byte(n)))
			require.True(t, bytes.Equal(sized(n, 'v'), got))
			return err
		}))
		got, err := db.Get(sized(2000, byte(n)))
		require.NoError(t, err)
		require.True(t, bytes.Equal(sized(n, 'v'), got))
		clear(got) // the slice belongs to the caller
		got, err = db.Get(sized(2000, byte(n)))
		require.NoError(t, err)
		require.True(t, bytes.Equal(sized(n, 'v'), got))
	}
}

// TestSlicesStay: what a transaction has returned stays valid until the transaction ends, whatever it or others
// write.
func TestSlicesStay(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			db := newDB(t, &Options{Durability: d, MemoryLimit: 1 << 20, RedoLimit: 1 << 20})
			key := func(i int) []byte { return fmt.Appendf(nil, "key-%04d", i) }
			value := func(i, round int) []byte {
				return bytes.Repeat(fmt.Appendf(nil, "%d.%d,", i, round), []int{5, 50, 1000}[i%3])
			}
			writeAll := func(tx *Tx, round int) error {
				for i := range 200 {
					if err := tx.Put(key(i), value(i, round)); err != nil {
						return err
					}
				}
				return nil
			}
			require.NoError(t, db.Update(func(tx *Tx) error { return writeAll(tx, 0) }))
			var given, want [][]byte
			note := func(tx *Tx) {
				for k, v := range tx.All() {
					given = append(given, k, v)
					want = append(want, bytes.Clone(k), bytes.Clone(v))
				}
				for i := range 200 {
					v, err := tx.Get(key(i))
					require.NoError(t, err)
					given, want = append(given, v), append(want, bytes.Clone(v))
				}
			}
			try := 0
			err := db.Update(func(tx *Tx) error {
				given, want = nil, nil // slices from an earlier try are no longer valid; keys that share a slot conflict,
				try++                  // so each try uses other keys
				note(tx)
				for round := 1; round < 10; round++ {
					require.NoError(t, writeAll(tx, round))
					note(tx)
					require.NoError(t, db.Put(fmt.Appendf(nil, "%d.%d", try, round), nil))
					require.NoError(t, db.View(func(*Tx) error { return nil }))
				}
				for i := range 200 {
					require.NoError(t, tx.Delete(key(i)))
				}
				for round := range 10 {
					require.NoError(t, db.Put(fmt.Appendf(nil, "other%d", try), sized(100_000, byte(round))))
					require.NoError(t, db.Checkpoint())
				}
				for i := range given {
					require.True(t, bytes.Equal(want[i], given[i]))
				}
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, db.Check(t.Context()))
		})
	}
}

// TestEnded: an ended transaction and its cursors, iterators and readers return ErrTxDone.
func TestEnded(t *testing.T) {
	db := newDB(t, nil)
	require.NoError(t, db.Put([]byte("k"), sized(2<<20, 'v')))
	ends := map[string]func(tx *Tx) error{"commit": (*Tx).Commit, "rollback": (*Tx).Rollback}
	for name, end := range ends {
		for _, o := range []TxOptions{{}, {ReadOnly: true}, {Serializable: true}} {
			t.Run(fmt.Sprint(name, o), func(t *testing.T) {
				tx, err := db.Begin(o)
				require.NoError(t, err)
				c := tx.Cursor()
				require.True(t, c.First())
				r, _, err := tx.ValueReader([]byte("k"))
				require.NoError(t, err)
				for range tx.All() {
					require.NoError(t, end(tx)) // while iterating
				}
				k := []byte("k")
				_, err = tx.Get(k)
				require.ErrorIs(t, err, ErrTxDone)
				_, err = tx.Has(k)
				require.ErrorIs(t, err, ErrTxDone)
				require.ErrorIs(t, tx.Put(k, k), ErrTxDone)
				require.ErrorIs(t, tx.Insert(k, k), ErrTxDone)
				require.ErrorIs(t, tx.Delete(k), ErrTxDone)
				_, err = tx.Len()
				require.ErrorIs(t, err, ErrTxDone)
				_, _, err = tx.ValueReader(k)
				require.ErrorIs(t, err, ErrTxDone)
				_, err = r.Read(make([]byte, 1))
				require.ErrorIs(t, err, ErrTxDone)
				require.NoError(t, r.Close())
				require.Nil(t, c.Key())
				require.Nil(t, c.Value())
				require.False(t, c.Next())
				require.ErrorIs(t, c.Err(), ErrTxDone)
				require.ErrorIs(t, c.Delete(), ErrTxDone)
				late := tx.Cursor()
				require.False(t, late.First())
				require.ErrorIs(t, late.Err(), ErrTxDone)
				for range tx.All() {
					t.Fatal("a record of an ended transaction")
				}
				require.ErrorIs(t, tx.Err(), ErrTxDone)
				require.ErrorIs(t, tx.Commit(), ErrTxDone)
				require.NoError(t, tx.Rollback())
			})
		}
	}
}

// TestEndedInLoop: a loop over short records processes whole leaves at once. It must not yield any more records
// after its body has ended the transaction, because the pages may have been reused.
func TestEndedInLoop(t *testing.T) {
	db := newDB(t, nil)
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range 100 {
			if err := tx.Put(fmt.Appendf(nil, "%03d", i), []byte("v")); err != nil {
				return err
			}
		}
		return nil
	}))
	for name, end := range map[string]func(tx *Tx) error{"commit": (*Tx).Commit, "rollback": (*Tx).Rollback} {
		for _, o := range []TxOptions{{}, {ReadOnly: true}, {Serializable: true}} {
			for _, writes := range []bool{false, true} {
				if writes && o.ReadOnly {
					continue
				}
				t.Run(fmt.Sprint(name, o, writes), func(t *testing.T) {
					tx, err := db.Begin(o)
					require.NoError(t, err)
					n := 0
					for key := range tx.All() {
						if n++; n == 3 {
							if writes {
								require.NoError(t, tx.Put(key, []byte("w")))
							}
							require.NoError(t, end(tx))
						}
					}
					require.Equal(t, 3, n)
				})
			}
		}
	}
}

func TestReadOnlyTransaction(t *testing.T) {
	db := newDB(t, nil)
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	check := func(tx *Tx) error {
		require.ErrorIs(t, tx.Put([]byte("k"), nil), ErrReadOnly)
		require.ErrorIs(t, tx.Insert([]byte("l"), nil), ErrReadOnly)
		require.ErrorIs(t, tx.Delete([]byte("k")), ErrReadOnly)
		c := tx.Cursor()
		require.True(t, c.First())
		require.ErrorIs(t, c.Delete(), ErrReadOnly)
		require.Equal(t, "k", string(c.Key()))
		return tx.Err()
	}
	require.NoError(t, db.View(check))
	require.NoError(t, db.UpdateContext(t.Context(), TxOptions{ReadOnly: true}, check))
	tx, err := db.Begin(TxOptions{ReadOnly: true, Serializable: true})
	require.NoError(t, err)
	require.NoError(t, check(tx))
	require.NoError(t, tx.Commit())
}

// TestErrorsOfTheMediaStay: View, Update and Commit return an I/O error or damage even if the function ignores it.
func TestErrorsOfTheMediaStay(t *testing.T) {
	db := newDB(t, nil)
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	broken := fmt.Errorf("%w: page 7", ErrCorrupt)
	swallow := func(tx *Tx) error {
		require.NoError(t, tx.Put([]byte("k"), []byte("w")))
		tx.note(broken)
		tx.note(syscall.EIO)
		return nil
	}
	require.Equal(t, broken, db.Update(swallow))
	require.Equal(t, broken, db.View(func(tx *Tx) error {
		tx.note(broken)
		return nil
	}))
	mine := errors.New("mine")
	require.Equal(t, mine, db.Update(func(tx *Tx) error {
		tx.note(broken)
		return mine
	}))
	tx, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	require.NoError(t, swallow(tx))
	require.Equal(t, broken, tx.Err())
	require.Equal(t, broken, tx.Commit())
	require.ErrorIs(t, tx.Commit(), ErrTxDone)
	v, err := db.Get([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	for _, err := range []error{ErrNotFound, ErrExists, ErrKeyTooLarge, ErrValueTooLarge, ErrTxDone, ErrReadOnly} {
		require.False(t, lasting(fmt.Errorf("wrapped: %w", err)))
	}
	require.True(t, lasting(ErrSnapshotTooOld))
}

// TestOverwrittenLargeValues: of the values written to segments of their own, only those that a commit keeps take
// space afterwards.
func TestOverwrittenLargeValues(t *testing.T) {
	db := newDB(t, nil)
	live := func() int64 {
		require.NoError(t, db.Checkpoint())
		return db.Stats().LiveBytes
	}
	k := []byte("k")
	before := live()
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range 3 {
			require.NoError(t, tx.Put(k, sized(3<<20, byte(i))))
		}
		return tx.Delete(k)
	}))
	require.Equal(t, before, live())
	require.NoError(t, db.Update(func(tx *Tx) error {
		require.NoError(t, tx.Put(k, sized(3<<20, 1)))
		return tx.Put(k, sized(2<<20, 2))
	}))
	require.Less(t, live(), before+2<<20+1<<16)
	v, err := db.Get(k)
	require.NoError(t, err)
	require.True(t, bytes.Equal(sized(2<<20, 2), v))
	require.Error(t, db.Update(func(tx *Tx) error {
		require.NoError(t, tx.Put(k, sized(3<<20, 1)))
		return errors.New("no")
	}))
	require.Less(t, live(), before+2<<20+1<<16)
	require.NoError(t, db.Delete(k))
	require.Equal(t, before, live())
	require.NoError(t, db.Check(t.Context()))
}

// TestStats checks the statistics that a program can read.
func TestStats(t *testing.T) {
	db := newDB(t, nil)
	require.True(t, db.Stats().Recovery.Created)
	require.LessOrEqual(t, db.Stats().FileBytes, int64(128<<10))
	tx, err := db.Begin(TxOptions{ReadOnly: true})
	require.NoError(t, err)
	for i := range 10 {
		require.NoError(t, db.Put(fmt.Append(nil, i), nil))
	}
	s := db.Stats()
	require.EqualValues(t, 10, s.Records)
	require.EqualValues(t, 10, s.Commits)
	require.Equal(t, 1, s.OpenSnapshots)
	require.Positive(t, s.OldestSnapshotAge)
	require.NoError(t, tx.Rollback())
	require.Zero(t, db.Stats().OpenSnapshots)
	require.True(t, strings.HasSuffix(db.Path(), "a.fdbm"))
}
