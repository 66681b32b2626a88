package dbm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// inOrder iterates over records in key order.
func inOrder(records map[string][]byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for _, k := range slices.Sorted(maps.Keys(records)) {
			if !yield([]byte(k), records[k]) {
				return
			}
		}
	}
}

// shuffled iterates over records in random order, using one buffer for all of them.
func shuffled(records map[string][]byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		var key, value []byte
		for k, v := range records {
			key, value = append(key[:0], k...), append(value[:0], v...)
			if !yield(key, value) {
				return
			}
		}
	}
}

// TestLoad loads records of many kinds, sorted and not, and uses the resulting database.
func TestLoad(t *testing.T) {
	for _, kind := range backupKinds {
		for _, sorted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/sorted=%v", kind.name, sorted), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(1, uint64(len(kind.name))))
				want := map[string][]byte{}
				for i := range fewer(kind.records) {
					want[string(kind.key(r, i))] = kind.value(r)
				}
				path := filepath.Join(t.TempDir(), "db")
				db, err := Open(path, nil)
				require.NoError(t, err)
				records := shuffled(want)
				if sorted {
					records = inOrder(want)
				}
				require.NoError(t, db.Load(t.Context(), records, LoadOptions{Sorted: sorted}))
				requireSame(t, want, readAll(t, db))
				require.NoError(t, db.Check(t.Context()))
				require.NoError(t, db.Close())
				requireUsable(t, path, want)
			})
		}
	}
}

// TestLoadIntoRecords loads into a database that has records, which is done in one transaction.
func TestLoadIntoRecords(t *testing.T) {
	for _, sorted := range []bool{true, false} {
		db, err := OpenMemory(nil)
		require.NoError(t, err)
		want := map[string][]byte{"old": []byte("value"), "key 7": []byte("old")}
		for k, v := range want {
			require.NoError(t, db.Put([]byte(k), v))
		}
		more := map[string][]byte{}
		for i := range 1000 {
			more[fmt.Sprintf("key %d", i)] = fmt.Append(nil, i)
		}
		maps.Copy(want, more)
		records := shuffled(more)
		if sorted {
			records = inOrder(more)
		}
		require.NoError(t, db.Load(t.Context(), records, LoadOptions{Sorted: sorted}))
		requireSame(t, want, readAll(t, db))
		require.ErrorIs(t, db.Load(t.Context(), disordered(3), LoadOptions{Sorted: true}), ErrOrder)
		requireSame(t, want, readAll(t, db))
		require.NoError(t, db.Check(t.Context()))
		require.NoError(t, db.Close())
	}
}

// disordered returns n records in ascending order and one that is out of order.
func disordered(n int) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for i := range n {
			if !yield(fmt.Appendf(nil, "%08d", i), make([]byte, 100)) {
				return
			}
		}
		yield(fmt.Appendf(nil, "%08d", n-1), nil)
	}
}

// TestLoadOfDeleted loads into a database whose records were all deleted while readers still see them.
func TestLoadOfDeleted(t *testing.T) {
	db, err := OpenMemory(&Options{Durability: Buffered})
	require.NoError(t, err)
	defer db.Close()
	for i := range 3000 {
		require.NoError(t, db.Put(fmt.Appendf(nil, "%d", i), make([]byte, i)))
	}
	old, err := db.Begin(TxOptions{ReadOnly: true})
	require.NoError(t, err)
	for i := range 3000 {
		require.NoError(t, db.Delete(fmt.Appendf(nil, "%d", i)))
	}
	want := map[string][]byte{}
	for i := range 5000 {
		want[fmt.Sprintf("new %08d", i)] = make([]byte, i%2500)
	}
	require.NoError(t, db.Load(t.Context(), inOrder(want), LoadOptions{Sorted: true}))
	requireSame(t, want, readAll(t, db))
	n, err := old.Len()
	require.NoError(t, err)
	require.EqualValues(t, 3000, n)
	v, err := old.Get([]byte("2999"))
	require.NoError(t, err)
	require.Len(t, v, 2999)
	require.NoError(t, old.Rollback())
	require.NoError(t, db.Check(t.Context()))
}

// TestLoadEnds makes loads fail in many ways. None of their records are there, their space is reused, and the
// database continues to work.
func TestLoadEnds(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	opts := compacting(Durable)
	opts.Store.MaxFileSize = 8 << 20
	db, err := openEngine(mem, "db", opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	broken := errors.New("broken")
	many := func(at int, end func()) iter.Seq2[[]byte, []byte] {
		return func(yield func(k, v []byte) bool) {
			for i := range 30_000 {
				if i == at {
					end()
				}
				if !yield(fmt.Appendf(nil, "%08d", i), make([]byte, 100)) {
					return
				}
			}
		}
	}
	turns := 4
	if testing.Short() {
		turns = 1
	}
	for turn := range turns {
		for _, sorted := range []bool{true, false} {
			o := LoadOptions{Sorted: sorted}
			ctx, cancel := context.WithCancel(t.Context())
			require.ErrorIs(t, db.Load(ctx, many(20_000, cancel), o), context.Canceled)
			cause, fail := context.WithCancelCause(t.Context())
			cut := func(yield func(k, v []byte) bool) {
				yield([]byte("a"), nil)
				fail(broken)
			}
			require.ErrorIs(t, db.Load(cause, cut, o), broken, "records that end for an error are not all")
			require.PanicsWithValue(t, broken, func() { _ = db.Load(t.Context(), many(20_000, func() { panic(broken) }), o) })
			require.ErrorIs(t, db.Load(t.Context(), many(20_000, runtime.Goexit), o), errLoadEnded)
			tooLong := func(yield func(k, v []byte) bool) {
				for k, v := range many(-1, nil) {
					if !yield(k, v) {
						return
					}
				}
				yield(bytes.Repeat([]byte("x"), 70_000), nil)
			}
			require.ErrorIs(t, db.Load(t.Context(), tooLong, o), ErrKeyTooLarge)
			full := func(yield func(k, v []byte) bool) {
				for i := range 10_000 {
					if !yield(fmt.Appendf(nil, "%08d", i), make([]byte, 1500)) {
						return
					}
				}
			}
			require.ErrorIs(t, db.Load(t.Context(), full, o), ErrFull)
		}
		require.ErrorIs(t, db.Load(t.Context(), disordered(25_000), LoadOptions{Sorted: true}), ErrOrder)
		n, err := db.Len()
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, db.Check(t.Context()))
		key := fmt.Appendf(nil, "turn %d", turn)
		require.NoError(t, db.Put(key, key))
		require.NoError(t, db.Delete(key))
	}
	require.NoError(t, db.Load(t.Context(), many(-1, nil), LoadOptions{Sorted: true}))
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, 30_000, n)
	require.NoError(t, db.Check(t.Context()))
}

// TestLoadConflicts runs transactions during a load. Those that only write come after it; those that have read the
// empty database lose a conflict.
func TestLoadConflicts(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	defer db.Close()
	before, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	_, err = before.Get([]byte("key 00000005"))
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, before.Put([]byte("before"), nil))
	after, err := db.Begin(TxOptions{}) // it commits after the load
	require.NoError(t, err)
	_, err = after.Get([]byte("key 00000007"))
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, after.Put([]byte("after"), nil))
	serializable, err := db.Begin(TxOptions{Serializable: true})
	require.NoError(t, err)
	for range serializable.All() {
	}
	require.NoError(t, serializable.Put([]byte("serializable"), nil))

	lost, blind := make(chan error, 1), make(chan error, 1)
	records := func(yield func(k, v []byte) bool) {
		for i := range 4000 {
			if i == 3000 { // more records than are copied ahead, so the load is running
				go func() { lost <- before.Commit() }()
				go func() { blind <- db.Put([]byte("blind"), nil) }()
			}
			if !yield(fmt.Appendf(nil, "key %08d", i), make([]byte, 1000)) {
				return
			}
		}
	}
	require.NoError(t, db.Load(t.Context(), records, LoadOptions{Sorted: true}))
	require.ErrorIs(t, <-lost, ErrConflict)
	require.NoError(t, <-blind)
	require.ErrorIs(t, after.Commit(), ErrConflict)
	require.ErrorIs(t, serializable.Commit(), ErrConflict)
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, 4001, n)
}

// TestLoadBeside reads through another handle during a load. It sees no record of the load at first, and then all of
// them.
func TestLoadBeside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := Open(path, nil)
	require.NoError(t, err)
	defer db.Close()
	reader, err := Open(path, &Options{ReadOnly: true, Beside: true})
	require.NoError(t, err)
	defer reader.Close()
	want := map[string][]byte{}
	for i := range 4000 {
		want[fmt.Sprintf("key %08d", i)] = make([]byte, i%3000)
	}
	want["large"] = make([]byte, 3<<20)
	done := make(chan error, 1)
	go func() { done <- db.Load(t.Context(), inOrder(want), LoadOptions{Sorted: true}) }()
	for loaded := false; !loaded; {
		select {
		case err := <-done:
			require.NoError(t, err)
			loaded = true
		default:
		}
		n, err := reader.Len()
		require.NoError(t, err)
		require.True(t, n == 0 && !loaded || n == int64(len(want)), "%d records, loaded %v", n, loaded)
	}
	requireSame(t, want, readAll(t, reader))
	require.NoError(t, db.Put([]byte("more"), nil))
	want["more"] = nil
	requireSame(t, want, readAll(t, reader))
	require.NoError(t, reader.Check(t.Context()))
}

// TestLoadFollowed: a standby starts to follow at each operation of the file system, also in the middle of a load,
// from the state that a reader beside the database has then. It misses no record. Leaves that the load has built have
// no redo, but each says in which group it was written, which may be older than the reader's state.
func TestLoadFollowed(t *testing.T) {
	for _, rows := range []bool{false, true} {
		mem := vfs.NewMem(0)
		opts := compacting(Durable)
		opts.Manual = true
		db, err := openEngine(mem, "db", opts)
		require.NoError(t, err)
		db.drops.stop()
		into := db.Load
		if rows {
			require.NoError(t, cmpErr(db.EnableKeyspaces(), db.CreateKeyspace("a")))
			require.NoError(t, db.keyspaces.ready())
			db.drops.row = 24 << 10
			into = db.Keyspace("a").Load
		}
		require.NoError(t, db.Checkpoint())
		options := (&Options{ReadOnly: true, Beside: true}).engine()
		reader, err := openBeside(mem, "db", options)
		require.NoError(t, err)
		standby, token := copyOf(t, reader)
		increment := func() {
			var b bytes.Buffer
			next, err := reader.BackupSince(t.Context(), token, &b)
			require.NoError(t, err)
			token, err = standby.ApplyBackup(t.Context(), token, &b)
			require.NoError(t, err)
			require.Equal(t, next, token)
		}
		ops, busy := 0, false
		mem.OnOp(func(op vfs.Op) error {
			if busy || op.Kind == vfs.OpMap {
				return nil
			}
			if ops++; ops%3 == 0 {
				busy = true
				increment()
				busy = false
			}
			return nil
		})
		_, records := rowRecords(1, 900, true, func() {})
		require.NoError(t, into(t.Context(), records, LoadOptions{Sorted: true}))
		mem.OnOp(nil)
		require.NoError(t, db.FinishDrops(t.Context()))
		increment()
		require.Greater(t, ops, 30)
		want, got := allRecords(t, db), allRecords(t, standby)
		requireSame(t, want, got)
		require.NoError(t, reader.Close())
		require.NoError(t, db.Close())
		mem.Release()
	}
}

// allRecords returns the records of the whole tree.
func allRecords(t *testing.T, db *DB) map[string][]byte {
	records := map[string][]byte{}
	require.NoError(t, db.View(func(tx *Tx) error {
		for k, v := range tx.whole().All() {
			records[string(k)] = bytes.Clone(v)
		}
		return tx.Err()
	}))
	return records
}

// TestLoadUndoesNoDelete: records that others delete while unsorted records are loaded, so that the database or
// keyspace is empty in the end, are not restored by the load. A drop of the keyspace makes the load conflict, also if
// there is a new keyspace of the same name.
func TestLoadUndoesNoDelete(t *testing.T) {
	for _, name := range []string{"", "a", "dropped"} {
		db := newWith(t, openUnsynced, nil)
		db.drops.row = 64 << 10
		load := db.Load
		if name != "" {
			require.NoError(t, db.CreateKeyspace(name))
			load = db.Keyspace(name).Load
		}
		within := func(do func(in *Tx) error) error {
			return db.Update(func(tx *Tx) error {
				in, err := inSpace(tx, name)
				return cmpErr(err, do(in))
			})
		}
		require.NoError(t, within(func(in *Tx) error { return in.Put([]byte("was"), []byte("here")) }))
		records, seq := rowRecords(1, 3000, false, func() { // more records than are read ahead, so the transaction has begun
			if name == "dropped" {
				require.NoError(t, cmpErr(db.DropKeyspace(name), db.CreateKeyspace(name)))
			} else {
				require.NoError(t, within(func(in *Tx) error { return in.Delete([]byte("was")) }))
			}
		})
		err := load(t.Context(), seq, LoadOptions{})
		if requireLost(t, name == "dropped", err); err != nil {
			records = nil
		}
		require.NoError(t, db.View(func(tx *Tx) error {
			in, err := inSpace(tx, name)
			require.NoError(t, err)
			require.True(t, sameRecords(records, in), name)
			return nil
		}))
		require.NoError(t, db.Check(t.Context()))
	}
}

// TestLoadIsDurable: also in Buffered mode, and if the load is a transaction of puts, the loaded records survive a
// power failure after Load has returned.
func TestLoadIsDurable(t *testing.T) {
	for _, name := range []string{"", "a"} {
		for _, n := range []int{3, 400} {
			for _, sorted := range []bool{false, true} {
				mem := vfs.NewMem(0)
				open := func(fs *vfs.Mem) *DB { return openForRows(t, fs, Buffered, 64<<10) }
				db := open(mem)
				model := map[string]map[string]string{"": {"k": ""}, "a": {}}
				require.NoError(t, cmpErr(db.CreateKeyspace("a"), db.Put([]byte("k"), nil), db.Sync()))
				load := db.Load
				if name != "" {
					load = db.Keyspace(name).Load
				}
				records, seq := rowRecords(1, n, sorted, func() {})
				require.NoError(t, load(t.Context(), seq, LoadOptions{Sorted: sorted}))
				maps.Copy(model[name], records)
				image := mem.Crash(vfs.KeepNone, 1)
				after := open(image)
				requireSpaces(t, after, model)
				require.NoError(t, cmpErr(after.Close(), db.Close()))
				image.Release()
				mem.Release()
			}
		}
	}
}
