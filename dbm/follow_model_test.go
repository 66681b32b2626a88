package dbm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFollowModel takes an increment after each kind of commit and background work, in the writing process and in a
// reader beside it. It compares copies with the database: one that receives every increment, and one that receives
// increments from tokens older than its state.
func TestFollowModel(t *testing.T) {
	for _, c := range []struct {
		name   string
		beside bool
		keys   int64 // bytes for changed keys
	}{{"keys", false, 0}, {"pages", false, -1}, {"beside", true, 0}} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprint(c.name, " ", seed), func(t *testing.T) {
				t.Parallel()
				followModel(t, c.beside, c.keys, Durability(2*seed), rand.New(rand.NewPCG(seed, 7))) // mostly page groups, and only record groups
			})
		}
	}
}

func followModel(t *testing.T, beside bool, keys int64, d Durability, rng *rand.Rand) {
	dir := t.TempDir()
	path := filepath.Join(dir, "db")
	opts := &Options{MemoryLimit: minMemoryLimit, RedoLimit: 1 << 20, Durability: d}
	open := openCuttingBy(300, keys)
	db, err := open(path, opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	key := func() []byte { return fmt.Appendf(nil, "%04d", rng.IntN(3000)) }
	value := func() []byte { return randomBytes(rng, []int{0, 20, 200, 600}[rng.IntN(4)]) }
	many := func(n int) func(yield func(k, v []byte) bool) {
		return func(yield func(k, v []byte) bool) {
			for i := range n {
				if !yield(fmt.Appendf(nil, "%04d", i*3), value()) {
					return
				}
			}
		}
	}
	steps := []func(tx *Tx) error{
		func(tx *Tx) error { return tx.Put(key(), value()) },
		func(tx *Tx) error { return tx.Delete(key()) },
		func(tx *Tx) error { // leaves are removed, also at an end of the keys
			for k := range tx.Prefix(fmt.Appendf(nil, "%02d", rng.IntN(30))) {
				if err := tx.Delete(k); err != nil {
					return err
				}
			}
			return nil
		},
		func(tx *Tx) error {
			from := key()
			return tx.DeleteRange(from, append(from[:2:2], 'x'))
		},
		func(tx *Tx) error { // a write set leaves memory
			for k, v := range many(1000) {
				if err := tx.Put(k, append(v, make([]byte, 1000)...)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	require.NoError(t, db.Load(t.Context(), many(1000), LoadOptions{}))

	source := db
	if beside {
		source, err = openUnsynced(path, &Options{ReadOnly: true, Beside: true})
		require.NoError(t, err)
		defer source.Close()
	}
	copied := func(name string) (*DB, Token) {
		var full bytes.Buffer
		token, err := source.Backup(t.Context(), &full)
		require.NoError(t, err)
		_, err = Restore(t.Context(), filepath.Join(dir, name), &full)
		require.NoError(t, err)
		to, err := openUnsynced(filepath.Join(dir, name), nil)
		require.NoError(t, err)
		return to, token
	}
	follower, token := copied("follower")
	defer follower.Close()
	late, lateHas := copied("late")
	defer late.Close()
	older := []Token{lateHas}
	again := func(fn func() error) {
		err := ErrSnapshotTooOld
		for try := 0; try < 100 && errors.Is(err, ErrSnapshotTooOld); try++ {
			err = fn()
		}
		require.NoError(t, err)
	}
	f := &following{db: source, since: token, apply: func(have Token, r io.Reader) error {
		_, err := follower.ApplyBackup(t.Context(), have, r)
		return err
	}}
	defer f.forget()
	for round := range scaled(120) {
		left, err := db.Len()
		require.NoError(t, err)
		switch n := rng.IntN(40); {
		case left == 0:
			require.NoError(t, db.Load(t.Context(), many(500), LoadOptions{Sorted: true}))
		case n == 0:
			require.NoError(t, db.Checkpoint())
		case n == 1:
			require.NoError(t, db.Compact(t.Context(), nil))
		case n == 2:
			require.NoError(t, db.DeleteRange(nil, nil))
		case n == 3 && beside:
			require.NoError(t, db.Close())
			db, err = open(path, opts)
			require.NoError(t, err)
		case n < 20: // a single commit
			require.NoError(t, db.Update(steps[rng.IntN(2)]))
		default:
			for range 1 + rng.IntN(8) {
				n := rng.IntN(100)
				step := steps[n%2]
				if n < 15 {
					step = steps[n%len(steps)]
				}
				require.NoError(t, db.Update(func(tx *Tx) error { return errors.Join(step(tx), tx.Put([]byte("round"), fmt.Append(nil, round))) }))
			}
		}
		require.NoError(t, db.Sync())
		again(func() error { return f.round(t.Context()) })
		requireSame(t, readAll(t, db), readAll(t, follower))
		if round%3 > 0 {
			continue
		}
		var increment bytes.Buffer
		var now Token
		again(func() (err error) {
			increment.Reset()
			now, err = source.BackupSince(context.Background(), older[rng.IntN(len(older))], &increment)
			return err
		})
		lateHas, err = late.ApplyBackup(t.Context(), lateHas, &increment)
		require.NoError(t, err)
		requireSame(t, readAll(t, db), readAll(t, late))
		if older = append(older, now); len(older) > 3 {
			older = older[1:]
		}
	}
	require.NoError(t, follower.Check(t.Context()))
}

// TestFollowTellsLittle: an increment of Follow contains the record that was put, and not its leaf or other records
// that no flush has written yet.
func TestFollowTellsLittle(t *testing.T) {
	for _, beside := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "db")
		db, err := openUnsynced(path, &Options{Durability: Buffered})
		require.NoError(t, err)
		defer db.Close()
		source := db
		if beside {
			source, err = openUnsynced(path, &Options{ReadOnly: true, Beside: true})
			require.NoError(t, err)
			defer source.Close()
		}
		token, err := source.Backup(t.Context(), io.Discard)
		require.NoError(t, err)
		length := int64(0)
		f := &following{db: source, since: token, apply: func(_ Token, r io.Reader) (err error) {
			length, err = io.Copy(io.Discard, r)
			return err
		}}
		defer f.forget()
		require.NoError(t, db.Update(func(tx *Tx) error {
			for i := range 5000 {
				if err := tx.Put(fmt.Appendf(nil, "%05d", i), make([]byte, 100)); err != nil {
					return err
				}
			}
			return nil
		}))
		for i := range 4 {
			require.NoError(t, db.Put(fmt.Appendf(nil, "%05d", i*1000), fmt.Append(nil, "other", i)))
			require.NoError(t, db.Sync())
			require.NoError(t, f.round(t.Context()))
			if i > 0 {
				require.Less(t, length, int64(700), "beside: %v, with an end mark of 512", beside)
			}
		}
		if beside {
			continue
		}
		f.held.Reset(0) // as if the snapshot had been held for too long
		require.Eventually(t, func() bool { return db.Stats().OpenSnapshots == 0 }, patience, time.Millisecond)
		require.Nil(t, f.take())
	}
}

// TestFollowOrder: an increment of Follow can be applied to the states at its beginning and its end, and to no
// other in between.
func TestFollowOrder(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	defer db.Close()
	dir := t.TempDir()
	put := func(v string) { require.NoError(t, db.Put([]byte("k"), []byte(v))) }
	put("a")
	var full bytes.Buffer
	first, err := db.Backup(t.Context(), &full)
	require.NoError(t, err)
	var increments [][]byte
	f := &following{db: db, since: first, apply: func(_ Token, r io.Reader) error {
		b, err := io.ReadAll(r)
		increments = append(increments, b)
		return err
	}}
	defer f.forget()
	put("b")
	require.NoError(t, f.round(t.Context()))
	put("c") // to the earlier value, so that the second increment has nothing of it
	var between bytes.Buffer
	_, err = db.BackupSince(t.Context(), first, &between)
	require.NoError(t, err)
	put("b")
	require.NoError(t, db.Put([]byte("l"), nil))
	require.NoError(t, f.round(t.Context()))
	copied := func(name string, apply ...[]byte) (err error) {
		_, err = Restore(t.Context(), filepath.Join(dir, name), bytes.NewReader(full.Bytes()))
		require.NoError(t, err)
		to, err := Open(filepath.Join(dir, name), nil)
		require.NoError(t, err)
		defer to.Close()
		have := first
		for _, increment := range apply {
			if have, err = to.ApplyBackup(t.Context(), have, bytes.NewReader(increment)); err != nil {
				return err
			}
		}
		requireSame(t, readAll(t, db), readAll(t, to))
		return nil
	}
	require.NoError(t, copied("in order", increments[0], increments[1], increments[1]))
	require.ErrorIs(t, copied("from between", between.Bytes(), increments[1]), ErrToken)
	require.ErrorIs(t, copied("left out", increments[1]), ErrToken)
}
