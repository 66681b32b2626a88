package dbm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIncrement(t *testing.T) {
	db := newDB(t, nil)
	key := []byte("k")
	for _, c := range []struct {
		value string // "none" for no record
		delta int64
		want  int64
		err   error
	}{
		{"none", 5, 5, nil},
		{"none", 0, 0, nil},
		{"none", math.MinInt64, math.MinInt64, nil},
		{"0", 1, 1, nil},
		{"41", 1, 42, nil},
		{"-3", 2, -1, nil},
		{"1", -2, -1, nil},
		{"9223372036854775806", 1, math.MaxInt64, nil},
		{"9223372036854775807", 0, math.MaxInt64, nil},
		{"9223372036854775807", math.MinInt64, -1, nil},
		{"-9223372036854775808", 0, math.MinInt64, nil},
		{"-9223372036854775808", math.MaxInt64, -1, nil},
		{"9223372036854775807", 1, 0, ErrOverflow},
		{"1", math.MaxInt64, 0, ErrOverflow},
		{"-9223372036854775808", -1, 0, ErrOverflow},
		{"-1", math.MinInt64, 0, ErrOverflow},
		{"9223372036854775808", 0, 0, ErrNotNumber},
		{"-9223372036854775809", 0, 0, ErrNotNumber},
		{"", 1, 0, ErrNotNumber},
		{"+1", 1, 0, ErrNotNumber},
		{"-", 1, 0, ErrNotNumber},
		{"--1", 1, 0, ErrNotNumber},
		{"-0", 1, 0, ErrNotNumber},
		{"007", 1, 0, ErrNotNumber},
		{" 1", 1, 0, ErrNotNumber},
		{"1 ", 1, 0, ErrNotNumber},
		{"1_0", 1, 0, ErrNotNumber},
		{"0x10", 1, 0, ErrNotNumber},
		{"1.5", 1, 0, ErrNotNumber},
		{"\x00\x00\x00\x00\x00\x00\x00\x01", 1, 0, ErrNotNumber},
		{string(sized(mostDigits, '1')), 1, 0, ErrNotNumber},
		{string(bytes.Repeat([]byte("1"), 3<<20)), 1, 0, ErrNotNumber},
	} {
		put := func() {
			if c.value == "none" {
				require.NoError(t, db.Delete(key))
			} else {
				require.NoError(t, db.Put(key, []byte(c.value)))
			}
		}
		check := func(n int64, err error) {
			require.ErrorIs(t, err, c.err, "%.30q", c.value)
			require.Equal(t, c.want, n, "%.30q", c.value)
		}
		stored := func(got []byte, err error) {
			require.NoError(t, err)
			want := c.value
			if c.err == nil {
				want = strconv.FormatInt(c.want, 10)
			}
			require.True(t, want == string(got), "%.30q", c.value)
		}
		put()
		check(db.Increment(key, c.delta))
		stored(db.Get(key))
		put()
		require.NoError(t, db.Update(func(tx *Tx) error { // the transaction can be used after the error
			check(tx.Increment(key, c.delta))
			require.NoError(t, tx.Err())
			stored(tx.Get(key))
			return nil
		}))
		stored(db.Get(key))
	}
	require.NoError(t, db.Put(key, []byte("text")))
	_, err := db.Increment(key, 1)
	require.EqualError(t, err, `flashdbm: value is not a decimal number of 64 bits: the value of 4 bytes at key "k"; put a number there, or delete the record, first`)
}

func TestCompareAndSwap(t *testing.T) {
	db := newDB(t, nil)
	key := []byte("k")
	long := sized(3<<20, 'l')
	for _, c := range []struct{ value, old, new []byte }{
		{nil, nil, []byte("new")},
		{nil, nil, nil},
		{nil, []byte{}, []byte("new")},
		{nil, []byte("old"), []byte("new")},
		{[]byte{}, nil, []byte("new")},
		{[]byte{}, []byte{}, []byte("new")},
		{[]byte{}, []byte("old"), []byte("new")},
		{[]byte("old"), nil, []byte("new")},
		{[]byte("old"), []byte{}, []byte("new")},
		{[]byte("old"), []byte("old"), []byte("new")},
		{[]byte("old"), []byte("old"), []byte("old")},
		{[]byte("old"), []byte("old"), nil},
		{[]byte("old"), []byte("olD"), []byte("new")},
		{[]byte("old"), []byte("ol"), []byte("new")},
		{[]byte("old"), []byte("old "), []byte("new")},
		{long, long, []byte("new")},
		{long, long[1:], []byte("new")},
		{long, append(bytes.Clone(long[:len(long)-1]), 0), []byte("new")},
		{[]byte("old"), []byte("old"), long},
	} {
		want := (c.value == nil) == (c.old == nil) && bytes.Equal(c.value, c.old)
		put := func() {
			require.NoError(t, db.Delete(key))
			if c.value != nil {
				require.NoError(t, db.Put(key, c.value))
			}
		}
		check := func(swapped bool, err error) {
			require.NoError(t, err)
			require.Equal(t, want, swapped, "%.10q %.10q", c.value, c.old)
		}
		stored := func(got []byte, err error) {
			switch {
			case want:
				require.NoError(t, err)
				require.True(t, bytes.Equal(c.new, got))
			case c.value == nil:
				require.ErrorIs(t, err, ErrNotFound)
			default:
				require.NoError(t, err)
				require.True(t, bytes.Equal(c.value, got))
			}
		}
		put()
		check(db.CompareAndSwap(key, c.old, c.new))
		stored(db.Get(key))
		put()
		require.NoError(t, db.Update(func(tx *Tx) error {
			check(tx.CompareAndSwap(key, c.old, c.new))
			stored(tx.Get(key))
			return nil
		}))
		stored(db.Get(key))
	}
	require.NoError(t, db.Update(func(tx *Tx) error { // the result of Get can be passed as old, whether or not there is a record
		for range 2 {
			old, _ := tx.Get([]byte("l"))
			swapped, err := tx.CompareAndSwap([]byte("l"), old, nil)
			require.NoError(t, err)
			require.True(t, swapped)
		}
		return nil
	}))
}

// TestAppendValues appends to values of all lengths around the limits of the layers below, of the tree and of the
// transaction.
func TestAppendValues(t *testing.T) {
	inTurn(t)
	db := newDB(t, nil)
	key := []byte("k")
	sizes := append([]int{appendInMemory - 1, appendInMemory, appendInMemory + 1}, valueSizes...)
	for _, size := range sizes {
		for _, more := range []int{0, 1, 700, 2 << 20} {
			whole := append(sized(size, 'a'), sized(more, 'b')...)
			twice := append(bytes.Clone(whole), sized(more, 'b')...)
			require.NoError(t, db.Put(key, sized(size, 'a')))
			require.NoError(t, db.Append(key, sized(more, 'b')))
			got, err := db.Get(key)
			require.NoError(t, err)
			require.True(t, bytes.Equal(whole, got), "%d + %d", size, more)
			require.NoError(t, db.Update(func(tx *Tx) error {
				require.NoError(t, tx.Append(key, sized(more, 'b')))
				got, err := tx.Get(key)
				require.NoError(t, err)
				require.True(t, bytes.Equal(twice, got), "%d + %d twice", size, more)
				require.NoError(t, tx.Put(key, sized(size, 'a')))
				require.NoError(t, tx.Append(key, sized(more, 'b')))
				return tx.Append(key, sized(more, 'b'))
			}))
			got, err = db.Get(key)
			require.NoError(t, err)
			require.True(t, bytes.Equal(twice, got), "%d + %d twice", size, more)
		}
	}
	require.NoError(t, db.Update(func(tx *Tx) error {
		require.NoError(t, tx.Append([]byte("none"), nil))
		got, err := tx.Get([]byte("none"))
		require.NotNil(t, got)
		require.NoError(t, tx.Append([]byte("new"), []byte("text")))
		require.NoError(t, tx.Append([]byte("new"), []byte(", more")))
		return err
	}))
	got, err := db.Get([]byte("new"))
	require.NoError(t, err)
	require.Equal(t, "text, more", string(got))
	require.NoError(t, db.Check(t.Context()))
}

// TestModifiedOverAndOver: values that a transaction has overwritten by appending, comparing and swapping take no
// space, even if they are too long for a run in a segment.
func TestModifiedOverAndOver(t *testing.T) {
	for name, modify := range map[string]func(tx *Tx, key, piece []byte) error{
		"append":  func(tx *Tx, key, piece []byte) error { return tx.Append(key, piece) },
		"replace": func(tx *Tx, key, piece []byte) error { _, err := tx.GetAndPut(key, bytes.Repeat(piece, 9)); return err },
		"swap": func(tx *Tx, key, piece []byte) error {
			if _, err := tx.CompareAndSwap(key, piece[:9], piece); err != nil {
				return err
			}
			return tx.Put(key, bytes.Repeat(piece, 9))
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := newWith(t, openUnsynced, &Options{MaxFileSize: 16 << 20})
			key, piece := []byte("k"), bytes.Repeat([]byte("piece"), 8000)
			require.NoError(t, db.Update(func(tx *Tx) error {
				for i := range 200 {
					if i%10 == 0 {
						require.NoError(t, tx.Put(key, nil))
					}
					require.NoError(t, modify(tx, key, piece), i)
				}
				return nil
			}))
			require.NoError(t, db.Check(t.Context()))
		})
	}
}

func TestGetAndPut(t *testing.T) {
	inTurn(t)
	db := newDB(t, nil)
	key := []byte("k")
	var before []byte
	for i, size := range append([]int{0}, valueSizes...) {
		value := sized(size, byte(i))
		old, err := db.GetAndPut(key, value)
		require.NoError(t, err)
		require.Equal(t, before == nil, old == nil)
		require.True(t, bytes.Equal(before, old))
		require.NoError(t, db.Update(func(tx *Tx) error {
			first, err := tx.GetAndPut(key, []byte("own"))
			require.NoError(t, err)
			second, err := tx.GetAndPut(key, value)
			require.NoError(t, err)
			for range 100 {
				require.NoError(t, tx.Put(key, sized(size, 'x')))
			}
			require.NoError(t, tx.Put(key, value))
			require.NotNil(t, first)
			require.True(t, bytes.Equal(value, first), "it stays until the transaction ends")
			require.Equal(t, "own", string(second))
			return nil
		}))
		before = value
	}
	require.NoError(t, db.Check(t.Context()))
}

// modifications are the operations that read and write a value, each with a variant that leaves the value as it is.
var modifications = map[string]func(tx *Tx, key []byte) error{
	"Increment":      func(tx *Tx, key []byte) error { _, err := tx.Increment(key, 1); return err },
	"Increment by 0": func(tx *Tx, key []byte) error { _, err := tx.Increment(key, 0); return err },
	"CompareAndSwap": func(tx *Tx, key []byte) error {
		swapped, err := tx.CompareAndSwap(key, []byte("1"), []byte("2"))
		return errors.Join(err, unless(swapped))
	},
	"CompareAndSwap to the same": func(tx *Tx, key []byte) error {
		swapped, err := tx.CompareAndSwap(key, []byte("1"), []byte("1"))
		return errors.Join(err, unless(swapped))
	},
	"Append":         func(tx *Tx, key []byte) error { return tx.Append(key, []byte("2")) },
	"Append nothing": func(tx *Tx, key []byte) error { return tx.Append(key, nil) },
	"GetAndPut":      func(tx *Tx, key []byte) error { _, err := tx.GetAndPut(key, []byte("2")); return err },
	"GetAndPut the same": func(tx *Tx, key []byte) error {
		_, err := tx.GetAndPut(key, []byte("1"))
		return err
	},
}

func unless(swapped bool) error {
	if !swapped {
		return errors.New("not swapped")
	}
	return nil
}

// TestModificationsConflict: if two transactions modify a key from the same snapshot, only one commits, at each
// isolation level and whatever the resulting value, even if the other one has only written the key.
func TestModificationsConflict(t *testing.T) {
	key := []byte("k")
	others := map[string]func(db *DB) error{
		"put":    func(db *DB) error { return db.Put(key, []byte("3")) },
		"delete": func(db *DB) error { return db.Delete(key) },
	}
	for name, modify := range modifications {
		others[name] = func(db *DB) error { return db.Update(func(tx *Tx) error { return modify(tx, key) }) }
	}
	for name, modify := range modifications {
		for other, act := range others {
			for _, later := range []int{0, 2} { // after two commits, it is no longer in the list of commits
				for _, serializable := range []bool{false, true} {
					db := newDB(t, &Options{Durability: Buffered})
					require.NoError(t, db.Put(key, []byte("1")))
					tx, err := db.Begin(TxOptions{Serializable: serializable})
					require.NoError(t, err)
					require.NoError(t, modify(tx, key))
					require.NoError(t, act(db))
					for range later {
						require.NoError(t, db.Put([]byte("other"), nil))
					}
					require.ErrorIs(t, tx.Commit(), ErrConflict, "%s beside %s", name, other)
				}
			}
		}
	}
}

// TestModificationsOfNothingConflict: the same holds for two that find no record.
func TestModificationsOfNothingConflict(t *testing.T) {
	key := []byte("k")
	for name, modify := range map[string]func(tx *Tx) error{
		"Increment": func(tx *Tx) error { _, err := tx.Increment(key, 1); return err },
		"CompareAndSwap": func(tx *Tx) error {
			swapped, err := tx.CompareAndSwap(key, nil, nil)
			return errors.Join(err, unless(swapped))
		},
		"Append":    func(tx *Tx) error { return tx.Append(key, []byte("1")) },
		"GetAndPut": func(tx *Tx) error { _, err := tx.GetAndPut(key, nil); return err },
	} {
		db := newDB(t, &Options{Durability: Buffered})
		tx, err := db.Begin(TxOptions{})
		require.NoError(t, err)
		require.NoError(t, modify(tx))
		require.NoError(t, db.Update(modify))
		require.ErrorIs(t, tx.Commit(), ErrConflict, name)
	}
}

// TestModificationsUnderLoad: goroutines modify a few keys in all ways at once. Sums are right, GetAndPut returns
// each value that was put once, CompareAndSwap gives each turn once, and values have all that was appended to them.
func TestModificationsUnderLoad(t *testing.T) {
	const goroutines = 6
	allDurabilities(t, func(t *testing.T, db *DB) {
		each := scaled(150)
		insist := func(fn func() error) { // see persist
			err := error(ErrConflict)
			for round := 0; round < 100 && errors.Is(err, ErrConflict); round++ {
				err = fn()
			}
			if err != nil {
				t.Error(err)
			}
		}
		var mu sync.Mutex
		taken, sums, turns := map[string]int{}, map[int64]int{}, map[string]int{}
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := range each {
					id := fmt.Sprintf("%02d.%06d ", g, i)
					insist(func() error {
						n, err := db.Increment([]byte("sum"), 1)
						if err == nil {
							mu.Lock()
							sums[n]++
							mu.Unlock()
						}
						return err
					})
					insist(func() error { return db.Append([]byte("list"), []byte(id)) })
					insist(func() error {
						old, err := db.GetAndPut([]byte("box"), []byte(id))
						if err == nil {
							mu.Lock()
							taken[string(old)]++
							mu.Unlock()
						}
						return err
					})
					insist(func() error {
						at, err := db.Get([]byte("turn"))
						if err != nil && !errors.Is(err, ErrNotFound) {
							return err
						}
						n, _ := strconv.Atoi(string(at))
						swapped, err := db.CompareAndSwap([]byte("turn"), at, []byte(strconv.Itoa(n+1)))
						if swapped {
							mu.Lock()
							turns[string(at)]++
							mu.Unlock()
						}
						return err
					})
				}
			})
		}
		wg.Wait()
		all := goroutines * each
		sum, err := db.Get([]byte("sum"))
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(all), string(sum))
		list, err := db.Get([]byte("list"))
		require.NoError(t, err)
		require.Len(t, list, all*10)
		for g := range goroutines {
			for i := range each {
				require.Equal(t, 1, bytes.Count(list, fmt.Appendf(nil, "%02d.%06d ", g, i)))
			}
		}
		require.Len(t, sums, all, "a sum was given twice")
		require.Len(t, taken, all, "a value came out twice, or not at all")
		turn, err := db.Get([]byte("turn"))
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(len(turns)), string(turn))
		for at, n := range turns {
			require.Equal(t, 1, n, "the turn after %q was given twice", at)
		}
		require.NoError(t, db.Check(t.Context()))
	})
}

// TestModificationsRefused: operations that are not possible return an error and change nothing.
func TestModificationsRefused(t *testing.T) {
	db := newDB(t, nil)
	key, long := []byte("k"), make([]byte, maxKey+1)
	all := func(tx *Tx, key []byte) (errs []error) {
		_, err := tx.Increment(key, 1)
		_, err2 := tx.CompareAndSwap(key, nil, nil)
		_, err3 := tx.GetAndPut(key, nil)
		return []error{err, err2, err3, tx.Append(key, nil)}
	}
	require.NoError(t, db.Update(func(tx *Tx) error {
		for _, err := range all(tx, long) {
			require.ErrorIs(t, err, ErrKeyTooLarge)
		}
		return nil
	}))
	require.NoError(t, db.View(func(tx *Tx) error {
		for _, err := range all(tx, key) {
			require.ErrorIs(t, err, ErrTxReadOnly)
		}
		return nil
	}))
	tx, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	for _, err := range all(tx, key) {
		require.ErrorIs(t, err, ErrTxDone)
	}
	n, err := db.Len()
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, db.Close())
	_, err = db.Increment(key, 1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = db.CompareAndSwap(key, nil, nil)
	require.ErrorIs(t, err, ErrClosed)
	_, err = db.GetAndPut(key, nil)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, db.Append(key, nil), ErrClosed)
}

// TestModificationsOfAgingTransactions: with a maximum age of transactions, each call is a transaction of its own,
// and one of several steps works like any other.
func TestModificationsOfAgingTransactions(t *testing.T) {
	db := newDB(t, &Options{MaxSnapshotAge: patience})
	for range 2 {
		require.NoError(t, db.Update(func(tx *Tx) error {
			_, err := tx.Increment([]byte("n"), 2)
			require.NoError(t, err)
			require.NoError(t, tx.Append([]byte("long"), sized(2<<20, 'l')))
			_, err = tx.GetAndPut([]byte("n2"), []byte("x"))
			require.NoError(t, err)
			_, err = tx.CompareAndSwap([]byte("n2"), []byte("x"), []byte("y"))
			return err
		}))
	}
	for key, want := range map[string][]byte{"n": []byte("4"), "n2": []byte("y"), "long": append(sized(2<<20, 'l'), sized(2<<20, 'l')...)} {
		got, err := db.Get([]byte(key))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), key)
	}
}
