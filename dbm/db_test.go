package dbm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for something that must happen. No machine is so busy that it takes longer, so
// after that something hangs.
const patience = time.Minute

func newDB(t testing.TB, opts *Options) *DB {
	t.Helper()
	return newWith(t, Open, opts)
}

// newWith is newDB with another way to open it.
func newWith(t testing.TB, open func(string, *Options) (*DB, error), opts *Options) *DB {
	t.Helper()
	db, err := open(filepath.Join(t.TempDir(), "a.fdbm"), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestPutGet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := Open(path, nil)
	require.NoError(t, err)
	_, err = db.Get([]byte("a"))
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, db.Put([]byte("a"), []byte("1")))
	v, err := db.Get([]byte("a"))
	require.NoError(t, err)
	require.Equal(t, "1", string(v))
	require.NoError(t, db.Check(context.Background()))
	require.NoError(t, db.Close())
	db, err = Open(path, nil)
	require.NoError(t, err)
	v, err = db.Get([]byte("a"))
	require.NoError(t, err)
	require.Equal(t, "1", string(v))
	require.NoError(t, db.Check(context.Background()))
	require.NoError(t, db.Close())
}

// TestModel compares a database with a map over random transactions, and reopens it from time to time.
func TestModel(t *testing.T) {
	t.Parallel()
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.fdbm")
			opts := &Options{Durability: d}
			db, err := openUnsynced(path, opts)
			require.NoError(t, err)
			model := map[string]string{}
			rng := rand.New(rand.NewPCG(1, uint64(d)))
			for i := range scaled(1500) {
				next := map[string]string{}
				err := db.Update(func(tx *Tx) error {
					clear(next)
					for range 1 + rng.IntN(20) {
						k := fmt.Sprintf("key-%05d", rng.IntN(3000))
						if rng.IntN(4) == 0 {
							next[k] = "\x00deleted"
							if err := tx.Delete([]byte(k)); err != nil {
								return err
							}
							continue
						}
						size := rng.IntN(200)
						if rng.IntN(50) == 0 {
							size = rng.IntN(20000)
						}
						if rng.IntN(1000) == 0 {
							size = rng.IntN(3 << 20)
						}
						v := fmt.Sprint(i, k) + string(make([]byte, size))
						old, there := next[k]
						if !there {
							old, there = model[k]
						}
						v, err := modify(tx, rng, k, old, there && old != "\x00deleted", v)
						if err != nil {
							return err
						}
						next[k] = v
					}
					return nil
				})
				require.NoError(t, err)
				for k, v := range next {
					if v == "\x00deleted" {
						delete(model, k)
					} else {
						model[k] = v
					}
				}
				switch rng.IntN(scaled(300)) {
				case 0:
					require.NoError(t, db.Close())
					db, err = openUnsynced(path, opts)
					require.NoError(t, err)
				case 1:
					require.NoError(t, db.Checkpoint())
				case 2:
					require.NoError(t, db.Check(context.Background()))
				}
				if i%100 == 0 {
					compare(t, db, model)
				}
			}
			compare(t, db, model)
			require.NoError(t, db.Check(context.Background()))
			require.NoError(t, db.Close())
		})
	}
}

// modify writes v to key k in one of the possible ways and returns the resulting value. old is the value before, if
// there was one.
func modify(tx *Tx, rng *rand.Rand, k, old string, there bool, v string) (string, error) {
	key, value, before := []byte(k), []byte(v), []byte(old)
	if !there {
		old, before = "", nil
	}
	switch rng.IntN(8) {
	case 0:
		return old + v, tx.Append(key, value)
	case 1:
		got, err := tx.GetAndPut(key, value)
		if err == nil && (string(got) != old || (got == nil) == there) {
			err = fmt.Errorf("GetAndPut(%q) returns a value of %d bytes, want %d", k, len(got), len(old))
		}
		return v, err
	case 2:
		swapped, err := tx.CompareAndSwap(key, before, value)
		if err == nil && !swapped {
			err = fmt.Errorf("CompareAndSwap(%q) found another value", k)
		}
		return v, err
	case 3:
		if swapped, err := tx.CompareAndSwap(key, append(before, 'x'), nil); swapped || err != nil {
			return "", fmt.Errorf("CompareAndSwap(%q) swapped what it was not to: %v", k, err)
		}
	case 4: // the value is a number only if the record is new
		switch n, err := tx.Increment(key, 7); {
		case !there && err == nil && n == 7:
			return "7", nil
		case there && len(old) > 2 && errors.Is(err, ErrNotNumber): // longer values are not numbers
		case there && len(old) <= 2 && err == nil && strconv.FormatInt(n-7, 10) == old:
			return strconv.FormatInt(n, 10), nil
		default:
			return "", fmt.Errorf("Increment(%q) = %d, %v", k, n, err)
		}
	}
	return v, tx.Put(key, value)
}

func compare(t *testing.T, db *DB, model map[string]string) {
	t.Helper()
	n := 0
	require.NoError(t, db.View(func(tx *Tx) error {
		count, err := tx.Len()
		require.NoError(t, err)
		require.EqualValues(t, len(model), count)
		for k, v := range tx.All() {
			n++
			if model[string(k)] != string(v) {
				t.Fatalf("value of %q: %d bytes, want %d", k, len(v), len(model[string(k)]))
			}
		}
		return nil
	}))
	require.Equal(t, len(model), n)
}
