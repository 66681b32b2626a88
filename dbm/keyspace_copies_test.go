package dbm

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fillSpaces creates keyspaces with records and returns their contents.
func fillSpaces(t *testing.T, db *DB) map[string]map[string]string {
	t.Helper()
	model := map[string]map[string]string{"": {}, "a": {}, "b": {}}
	require.NoError(t, db.Update(func(tx *Tx) error {
		for _, name := range []string{"", "a", "b"} {
			in := tx
			if name != "" {
				var err error
				if in, err = tx.CreateKeyspace(name); err != nil {
					return err
				}
			}
			for i := range 300 {
				k := fmt.Sprint(i)
				if i%3 == 0 {
					k = "\xff" + k
				}
				v := name + string(make([]byte, i))
				model[name][k] = v
				if err := in.Put([]byte(k), []byte(v)); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	return model
}

// TestKeyspaceBackup: backups and increments contain the keyspaces, even if they were introduced in the file in
// between. A keyspace that was dropped and not deleted yet does not disturb the copy.
func TestKeyspaceBackup(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.fdbm")
	db, err := Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("\xffold"), []byte("1")))
	var full, one, two, three bytes.Buffer
	token, err := db.Backup(t.Context(), &full)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	db, err = Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.EnableKeyspaces())
	model := fillSpaces(t, db)
	model[""]["\xffold"] = "1"
	token, err = db.BackupSince(t.Context(), token, &one)
	require.NoError(t, err)
	db.drops.stop() // nothing is deleted
	require.NoError(t, db.DropKeyspace("a"))
	delete(model, "a")
	token, err = db.BackupSince(t.Context(), token, &two)
	require.NoError(t, err)

	// A copy to which increments are applied one after another, opened again for each.
	copied := filepath.Join(dir, "copy.fdbm")
	have, err := Restore(t.Context(), copied, bytes.NewReader(full.Bytes()))
	require.NoError(t, err)
	require.NoError(t, db.Keyspace("b").Put([]byte("k"), []byte("v")))
	model["b"]["k"] = "v"
	_, err = db.BackupSince(t.Context(), token, &three)
	require.NoError(t, err)
	for _, increment := range []*bytes.Buffer{&one, &two, &three} {
		to, err := Open(copied, nil)
		require.NoError(t, err)
		to.drops.done.Wait() // for anything that would delete
		have, err = to.ApplyBackup(t.Context(), have, bytes.NewReader(increment.Bytes()))
		require.NoError(t, err)
		if increment != &one {
			fresh := maps.Clone(model)
			if increment == &two {
				fresh["b"] = maps.Clone(model["b"])
				delete(fresh["b"], "k")
			}
			requireSpaces(t, to, fresh)
		}
		require.NoError(t, to.Close())
	}
	to, err := Open(copied, nil)
	require.NoError(t, err)
	requireSpaces(t, to, model)
	require.NoError(t, to.Put([]byte("1"), []byte(model[""]["1"]))) // from now on it is an independent database
	require.Eventually(t, func() bool { return to.Dropping() == 0 }, patience, time.Millisecond)
	requireSpaces(t, to, model)
	require.NoError(t, to.Check(t.Context()))
	require.NoError(t, to.Close())

	restored := filepath.Join(dir, "restored.fdbm")
	var whole bytes.Buffer
	_, err = db.Backup(t.Context(), &whole)
	require.NoError(t, err)
	_, err = Restore(t.Context(), restored, &whole)
	require.NoError(t, err)
	to, err = Open(restored, nil)
	require.NoError(t, err)
	requireSpaces(t, to, model)
	require.NoError(t, to.CreateKeyspace("more"))
	require.NoError(t, to.Close())
	require.NoError(t, db.Close())
}

// TestKeyspaceBackupDuringLoad: rows of a running load are listed as records to be deleted. A copy that has received
// some of them by an increment keeps them, also when it is opened again, because the next increment has only the
// others.
func TestKeyspaceBackupDuringLoad(t *testing.T) {
	dir := t.TempDir()
	db, err := openUnsynced(filepath.Join(dir, "a.fdbm"), nil)
	require.NoError(t, err)
	require.NoError(t, db.EnableKeyspaces())
	db.drops.row = 64 << 10
	var full, one, two bytes.Buffer
	token, err := db.Backup(t.Context(), &full)
	require.NoError(t, err)
	records, seq := rowRecords(1, 3000, true, func() {
		token, err = db.BackupSince(t.Context(), token, &one)
	})
	require.NoError(t, db.Keyspace("a").Load(t.Context(), seq, LoadOptions{Sorted: true, Replace: true}))
	require.NoError(t, err)
	_, err = db.BackupSince(t.Context(), token, &two)
	require.NoError(t, err)
	require.NoError(t, db.Close())

	copied := filepath.Join(dir, "copy.fdbm")
	have, err := Restore(t.Context(), copied, &full)
	require.NoError(t, err)
	for _, increment := range []*bytes.Buffer{&one, &two} {
		to, err := openUnsynced(copied, nil)
		require.NoError(t, err)
		to.drops.done.Wait() // for anything that would delete
		have, err = to.ApplyBackup(t.Context(), have, increment)
		require.NoError(t, err)
		if increment == &one {
			require.Greater(t, to.Stats().Records, int64(100), "with rows")
		}
		require.NoError(t, to.Close())
	}
	to, err := openUnsynced(copied, nil)
	require.NoError(t, err)
	requireSpaces(t, to, map[string]map[string]string{"": {}, "a": records})
	require.NoError(t, to.Check(t.Context()))
	require.NoError(t, to.Close())
}

// TestKeyspaceSalvage: records recovered from a damaged file are in their keyspaces, whether or not the superblocks
// can be read, and even if the mark is lost.
func TestKeyspaceSalvage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.fdbm")
	db, err := Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.EnableKeyspaces())
	model := fillSpaces(t, db)
	require.NoError(t, db.Close())
	eachSalvaged(t, path, func(to *DB, marked bool) {
		if marked {
			requireSpaces(t, to, model)
			return
		}
		require.NoError(t, to.View(func(tx *Tx) error {
			require.True(t, tx.spaced)
			return nil
		}))
	})
}

// TestKeyspaceLoad: Load into a database with keyspaces fills its default keyspace.
func TestKeyspaceLoad(t *testing.T) {
	for _, sorted := range []bool{true, false} {
		db := newSpaced(t, nil)
		model := map[string]string{}
		for i := range 256 {
			model[string([]byte{byte(i), 1})] = fmt.Sprint(i)
		}
		keys := slices.Sorted(maps.Keys(model))
		require.NoError(t, db.Load(t.Context(), func(yield func(k, v []byte) bool) {
			for _, k := range keys {
				if !yield([]byte(k), []byte(model[k])) {
					return
				}
			}
		}, LoadOptions{Sorted: sorted}))
		requireSpaces(t, db, map[string]map[string]string{"": model})
		require.NoError(t, db.CreateKeyspace("a"))
	}
}

// TestKeyspaceLoadInto: Keyspace.Load is one transaction, atomic even if it is larger than memory. It overwrites what is
// put concurrently, and loses to a transaction that drops or renames the keyspace.
func TestKeyspaceLoadInto(t *testing.T) {
	for _, sorted := range []bool{true, false} {
		db := newSpaced(t, &Options{MemoryLimit: 1 << 20})
		require.NoError(t, db.CreateKeyspace("a"))
		require.NoError(t, db.Keyspace("a").Put([]byte("00001"), []byte("old")))
		require.NoError(t, db.Put([]byte("default"), []byte("stays")))
		model := map[string]string{}
		records := func(meanwhile func()) func(yield func(k, v []byte) bool) {
			return func(yield func(k, v []byte) bool) {
				for i := range 4000 {
					if i == 3900 {
						meanwhile()
					}
					k, v := fmt.Sprintf("%05d", i), string(sized(1000, byte(i)))
					model[k] = v
					if !yield([]byte(k), []byte(v)) {
						return
					}
				}
			}
		}
		in := func() map[string]map[string]string {
			return map[string]map[string]string{"": {"default": "stays"}, "a": {"00001": "old"}}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		load := func(ctx context.Context, meanwhile func()) error {
			return db.Keyspace("a").Load(ctx, records(meanwhile), LoadOptions{Sorted: sorted})
		}
		require.ErrorIs(t, load(ctx, func() { cancel(os.ErrDeadlineExceeded) }), os.ErrDeadlineExceeded)
		requireSpaces(t, db, in())
		require.NoError(t, db.CreateKeyspace("b"))
		require.ErrorIs(t, load(t.Context(), func() { require.NoError(t, db.RenameKeyspace("a", "c")) }), ErrConflict)
		require.NoError(t, db.RenameKeyspace("c", "a"))
		require.NoError(t, db.DropKeyspace("b"))
		requireSpaces(t, db, in())
		err := db.Keyspace("a").Load(t.Context(), func(yield func(k, v []byte) bool) { _ = yield([]byte("b"), nil) && yield([]byte("a"), nil) }, LoadOptions{Sorted: true})
		require.ErrorIs(t, err, ErrOrder)
		requireSpaces(t, db, in())
		require.NoError(t, load(t.Context(), func() { require.NoError(t, db.Keyspace("a").Put([]byte("00001"), []byte("beside"))) }))
		requireSpaces(t, db, map[string]map[string]string{"": {"default": "stays"}, "a": model})
		for _, none := range []string{"none", ""} {
			require.ErrorIs(t, db.Keyspace(none).Load(t.Context(), records(func() {}), LoadOptions{}), ErrNoKeyspace)
		}
	}
}

// TestKeyspaceSnapshot: transactions of a snapshot see its keyspaces, even if the snapshot has a maximum age.
func TestKeyspaceSnapshot(t *testing.T) {
	db := newSpaced(t, &Options{MaxSnapshotAge: patience})
	model := fillSpaces(t, db)
	s, err := db.Snapshot()
	require.NoError(t, err)
	require.NoError(t, db.DropKeyspace("a"))
	require.NoError(t, s.View(func(tx *Tx) error {
		in, err := tx.Keyspace("a")
		require.NoError(t, err)
		require.True(t, sameRecords(model["a"], in))
		require.True(t, sameRecords(model[""], tx))
		keysByAll(t, in)
		return nil
	}))
	require.NoError(t, s.Close())
}

// TestKeyspaceSnapshotOfBefore: a snapshot from before the file had keyspaces has none, even for transactions that
// begin at it afterwards.
func TestKeyspaceSnapshotOfBefore(t *testing.T) {
	db := newDB(t, nil)
	model := map[string]string{"\xff": "1", "\xff\x00": "2", "\xffa": "3"}
	for k, v := range model {
		require.NoError(t, db.Put([]byte(k), []byte(v)))
	}
	s, err := db.Snapshot()
	require.NoError(t, err)
	require.NoError(t, db.CreateKeyspace("a"))
	require.NoError(t, db.Keyspace("a").Put([]byte("\xff"), nil))
	require.NoError(t, s.View(func(tx *Tx) error {
		require.True(t, sameRecords(model, tx))
		for k, v := range model {
			got, err := tx.Get([]byte(k))
			require.NoError(t, err)
			require.Equal(t, v, string(got))
		}
		_, err := tx.Keyspace("a")
		require.ErrorIs(t, err, ErrNoKeyspace)
		return nil
	}))
	require.NoError(t, s.Close())
	requireSpaces(t, db, map[string]map[string]string{"": model, "a": {"\xff": ""}})
}
