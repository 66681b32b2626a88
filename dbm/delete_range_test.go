package dbm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestDeleteRangeModel compares transactions that delete ranges, put records before and after that, and read in
// between, with a sorted list, both in memory and with write sets that leave it. It also compares snapshots from
// before with the earlier contents.
func TestDeleteRangeModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		opts := &Options{Durability: Durability(seed % 3)}
		values := 60
		if seed%6 >= 3 { // write sets leave memory
			opts.MemoryLimit, values = minMemoryLimit, 600
		}
		db := newWith(t, openUnsynced, opts)
		if seed >= 6 {
			db = newWith(t, openCutting(1+int64(seed%3)*200), opts)
		}
		rng := rand.New(rand.NewPCG(seed, 3))
		key := func() []byte { return fmt.Appendf(nil, "k%04d", rng.IntN(2000)) }
		bound := func() []byte {
			if rng.IntN(10) == 0 {
				return nil
			}
			return key()
		}
		model := map[string]string{}
		for round := range scaled(60) {
			old, err := db.Begin(TxOptions{ReadOnly: true})
			require.NoError(t, err)
			t.Cleanup(func() { old.Rollback() }) // otherwise Close would wait if this fails
			want := sortedRecords(model)
			next := map[string]string{}
			require.NoError(t, db.Update(func(tx *Tx) error {
				clear(next)
				for k, v := range model {
					next[k] = v
				}
				for range 1 + rng.IntN(5) {
					for range rng.IntN(200) {
						k, v := key(), randomBytes(rng, rng.IntN(values))
						next[string(k)] = string(v)
						require.NoError(t, tx.Put(k, v))
					}
					from, to := bound(), bound()
					if rng.IntN(3) > 0 && from != nil { // a short one
						to = append(bytes.Clone(from), 0xFF)
					}
					require.NoError(t, tx.DeleteRange(from, to))
					for k := range next {
						if k >= string(from) && (to == nil || k < string(to)) {
							delete(next, k)
						}
					}
				}
				require.Equal(t, sortedRecords(next), recordsOf(tx), "seed %d, round %d, within", seed, round)
				n, err := tx.Len()
				require.EqualValues(t, len(next), n)
				return err
			}))
			model, next = next, model
			require.NoError(t, db.View(func(tx *Tx) error {
				if opts.Durability == Durable || round%7 == 0 && db.Sync() == nil {
					require.Equal(t, sortedRecords(model), recordsOf(tx), "seed %d, round %d", seed, round)
				}
				return nil
			}))
			require.Equal(t, want, recordsOf(old), "seed %d, round %d, before", seed, round)
			require.NoError(t, old.Rollback())
			if round%10 == 9 {
				require.NoError(t, db.Checkpoint())
				require.NoError(t, db.Check(context.Background()))
			}
		}
	}
}

// openCutting opens a database in which ranges of at least the given number of records are cut.
func openCutting(from int64) func(string, *Options) (*DB, error) { return openCuttingBy(from, 0) }

// openCuttingBy sets Shares.Keys too.
func openCuttingBy(from, keys int64) func(string, *Options) (*DB, error) {
	return func(path string, opts *Options) (*DB, error) {
		o := opts.engine()
		o.CutFrom, o.Shares.Keys = from, keys
		return openEngine(unsyncedFS{vfs.OS()}, path, o)
	}
}

func sortedRecords(model map[string]string) (all []string) {
	for k, v := range model {
		all = append(all, k+"="+v)
	}
	slices.Sort(all)
	return all
}

func recordsOf(tx *Tx) (all []string) {
	for k, v := range tx.All() {
		all = append(all, string(k)+"="+string(v))
	}
	return all
}

// TestDeleteRangeConflicts: a range conflicts with everything that is put or deleted in it, whichever commits
// first, and with nothing outside. This holds while the first commit is in the list, and after it has left it.
func TestDeleteRangeConflicts(t *testing.T) {
	read := func(tx *Tx) error {
		_, err := tx.Has([]byte("x"))
		return err
	}
	clearing := func(from, to string) func(*Tx) error {
		return func(tx *Tx) error { return tx.DeleteRange([]byte(from), []byte(to)) }
	}
	put := func(key string) func(*Tx) error {
		return func(tx *Tx) error { return cmpErr(read(tx), tx.Put([]byte(key), []byte("new"))) }
	}
	remove := func(key string) func(*Tx) error {
		return func(tx *Tx) error { return cmpErr(read(tx), tx.Delete([]byte(key))) }
	}
	for _, c := range []struct {
		name          string
		first, second func(*Tx) error
		lost          bool
	}{
		{"put into it, of a new key", clearing("b", "d"), put("bb"), true},
		{"put into it, of an old key", clearing("b", "d"), put("b"), true},
		{"delete in it", clearing("b", "d"), remove("c"), true},
		{"put at its end", clearing("b", "d"), put("d"), false},
		{"put before it", clearing("b", "d"), put("az"), false},
		{"a put that has read nothing", clearing("b", "d"), func(tx *Tx) error { return tx.Put([]byte("bb"), nil) }, false},
		{"another that begins in it", clearing("b", "d"), clearing("bb", "e"), true},
		{"another that ends in it", clearing("b", "d"), clearing("a", "bb"), true},
		{"another beside it", clearing("b", "d"), clearing("d", "e"), false},
		{"another of other records", clearing("az", "bb"), clearing("bA", "c\x00"), true},
		{"behind a put of a new key", put("bb"), clearing("b", "d"), true},
		{"behind a put of an old key", put("b"), clearing("b", "d"), true},
		{"behind a delete", remove("b"), clearing("b", "d"), true},
		{"behind a put at its end", put("d"), clearing("b", "d"), false},
		{"behind one of all", func(tx *Tx) error { return tx.DeleteRange(nil, nil) }, put("zz"), true},
		{"of all, behind a put", put("zz"), func(tx *Tx) error { return tx.DeleteRange(nil, nil) }, true},
	} {
		for i, later := range []int{-1, 0, 3, 2 * 64, 0, 3, 2 * 64} { // commits in between: the first has left the list, or the recent ranges as well
			if later > 64 && !c.lost { // such an old transaction has lost, whatever it writes
				continue
			}
			openAs, how := openUnsynced, ""
			if i > 3 { // such a commit is in the list only until it is settled: see TestCutsInTheList
				openAs, how = openCutting(1), ", cut"
			}
			t.Run(fmt.Sprintf("%s, %d later%s", c.name, later, how), func(t *testing.T) {
				db := newWith(t, openAs, &Options{Durability: Buffered})
				for _, k := range []string{"a", "b", "c", "d", "e", "x"} {
					require.NoError(t, db.Put([]byte(k), []byte("old")))
				}
				var txs []*Tx
				for _, fn := range []func(*Tx) error{c.first, c.second} {
					tx, err := db.Begin(TxOptions{})
					require.NoError(t, err)
					require.NoError(t, fn(tx))
					txs = append(txs, tx)
				}
				if later < 0 { // the second finds the first in the list
					let := db.engine.HoldToken()
					first := make(chan error, 1)
					go func() { first <- txs[0].Commit() }()
					require.Eventually(t, func() bool { return db.engine.Pushed() > 0 }, patience, 1000)
					second := make(chan error, 1)
					go func() { second <- txs[1].Commit() }()
					require.Eventually(t, func() bool { return db.engine.Pushed() > 1 || db.Stats().Conflicts > 0 }, patience, 1000)
					let()
					require.NoError(t, <-first)
					requireLost(t, c.lost, <-second)
					return
				}
				require.NoError(t, txs[0].Commit())
				for i := range later {
					require.NoError(t, db.Put(fmt.Appendf(nil, "y%d", i), nil)) // otherwise there would be nothing to commit
					require.NoError(t, db.DeleteRange(fmt.Appendf(nil, "y%d", i), []byte("z")))
				}
				requireLost(t, c.lost, txs[1].Commit())
			})
		}
	}
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func requireLost(t *testing.T, lost bool, err error) {
	t.Helper()
	if lost {
		require.ErrorIs(t, err, ErrConflict)
	} else {
		require.NoError(t, err)
	}
}

// TestDeleteRangeOfMany: a range of more records than memory has pages for can be deleted, and its space is freed.
func TestDeleteRangeOfMany(t *testing.T) {
	t.Parallel()
	db := newWith(t, openUnsynced, &Options{Durability: Buffered, MemoryLimit: 2 << 20})
	const n = 20_000
	key := func(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }
	for i := 0; i < n; i += 1000 {
		require.NoError(t, db.Update(func(tx *Tx) error {
			for j := i; j < i+1000; j++ {
				if err := tx.Put(key(j), make([]byte, 100+200*(j%2))); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	require.NoError(t, db.Checkpoint())
	live := db.Stats().LiveBytes
	require.NoError(t, db.DeleteRange(key(100), key(n-100)))
	left, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, 200, left)
	require.NoError(t, db.Checkpoint())
	require.NoError(t, db.Checkpoint())
	require.Less(t, db.Stats().LiveBytes, live/10)
	require.NoError(t, db.Check(context.Background()))
	path := db.Path()
	require.NoError(t, db.Close())
	db, err = openUnsynced(path, nil)
	require.NoError(t, err)
	left, err = db.Len()
	require.NoError(t, err)
	require.EqualValues(t, 200, left)
	require.NoError(t, db.Close())
}

// TestDeleteRangeFull: in a full file, with records put in order or at random, a range can be cut, and then there
// is room again.
func TestDeleteRangeFull(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		size := 100 + 400*int(seed/2) // values in leaves, or in the log
		db := newWith(t, openUnsynced, &Options{Durability: Buffered, MaxFileSize: 8 << 20})
		rng := rand.New(rand.NewPCG(seed, 9))
		n, full := 0, false
		for !full {
			m := n
			switch err := db.Update(func(tx *Tx) error {
				for n = m; n < m+500; n++ {
					id := n
					if seed%2 == 1 {
						id = rng.IntN(1 << 30)
					}
					if err := tx.Put(fmt.Appendf(nil, "%010d", id), make([]byte, size)); err != nil {
						return err
					}
				}
				return nil
			}); {
			case errors.Is(err, ErrFull):
				full = true
			default:
				require.NoError(t, err)
			}
		}
		before, err := db.Len()
		require.NoError(t, err)
		require.Greater(t, before, int64(8000))
		low, high := fmt.Appendf(nil, "%010d", before/10), fmt.Appendf(nil, "%010d", before-before/10)
		if seed%2 == 1 {
			low, high = []byte("0100000000"), []byte("0900000000")
		}
		require.NoError(t, db.DeleteRange(low, high), "seed %d", seed)
		left, err := db.Len()
		require.NoError(t, err)
		require.Less(t, left, before/2)
		require.NoError(t, db.Checkpoint())
		require.NoError(t, db.Checkpoint())
		require.NoError(t, db.Check(context.Background()))
		for i := range 1000 {
			require.NoError(t, db.Put(fmt.Appendf(nil, "again %d", i), make([]byte, size)), "seed %d", seed)
		}
	}
}

// TestDeleteRangeErrors: deleting a range in a read-only transaction, and after its context has ended.
func TestDeleteRangeErrors(t *testing.T) {
	db := newDB(t, nil)
	for i := range 10 {
		require.NoError(t, db.Put(fmt.Append(nil, i), nil))
	}
	require.NoError(t, db.View(func(tx *Tx) error {
		require.ErrorIs(t, tx.DeleteRange(nil, nil), ErrTxReadOnly)
		return nil
	}))
	tx, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	require.NoError(t, tx.DeleteRange([]byte("5"), []byte("5")))
	require.NoError(t, tx.DeleteRange([]byte("5"), []byte("4")))
	require.NoError(t, tx.DeleteRange(nil, []byte{}))
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, tx.DeleteRange(nil, nil), ErrTxDone)
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, 10, n)

	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, db.UpdateContext(ctx, TxOptions{}, func(tx *Tx) error {
		cancel()
		require.ErrorIs(t, tx.DeleteRange(nil, nil), context.Canceled)
		require.NoError(t, tx.Err())
		return nil
	}), context.Canceled)

	path := filepath.Join(t.TempDir(), "b.fdbm")
	aging, err := Open(path, &Options{MaxSnapshotAge: patience})
	require.NoError(t, err)
	require.NoError(t, aging.Put([]byte("a"), nil))
	require.NoError(t, aging.DeleteRange([]byte("a"), []byte("b")))
	n, err = aging.Len()
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, aging.Close())
}

// TestBatchDeleteRange: what is put after the range stays, what was put before goes. A nil end is the end of all
// keys, while an empty key is the beginning.
func TestBatchDeleteRange(t *testing.T) {
	db := newDB(t, nil)
	require.NoError(t, db.Put([]byte("b"), []byte("old")))
	b := db.Batch()
	require.NoError(t, b.Put([]byte("a"), nil))
	require.NoError(t, b.Put([]byte("c"), nil))
	require.NoError(t, b.DeleteRange([]byte("b"), nil))
	require.NoError(t, b.DeleteRange([]byte("a"), []byte("a\x00")))
	require.NoError(t, b.Put([]byte("d"), []byte("new")))
	require.NoError(t, b.DeleteRange(nil, []byte{}))
	require.Equal(t, 6, b.Len())
	require.ErrorIs(t, b.DeleteRange(nil, make([]byte, maxKey+1)), ErrKeyTooLarge)
	require.ErrorIs(t, b.DeleteRange(make([]byte, maxKey+1), nil), ErrKeyTooLarge)
	require.NoError(t, b.Commit())
	require.NoError(t, db.View(func(tx *Tx) error {
		require.Equal(t, []string{"d=new"}, recordsOf(tx))
		return nil
	}))
}
