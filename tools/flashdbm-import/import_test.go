package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"flashdbm/dbm"
)

// runs runs the command line in this process, and returns its exit code and what it printed.
func runs(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return runsUntil(t, t.Context(), args...)
}

func runsUntil(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	files := map[string]*os.File{}
	for _, name := range []string{"out", "err"} {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		require.NoError(t, err)
		defer f.Close()
		files[name] = f
	}
	beforeOut, beforeErr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = files["out"], files["err"]
	defer func() { os.Stdout, os.Stderr = beforeOut, beforeErr }()
	code = run(ctx, args)
	read := func(name string) string {
		b, err := os.ReadFile(files[name].Name())
		require.NoError(t, err)
		return string(b)
	}
	return code, read("out"), read("err")
}

func succeeds(t *testing.T, args ...string) (notes string) {
	t.Helper()
	code, stdout, stderr := runs(t, args...)
	require.Zero(t, code, stderr)
	require.NotEmpty(t, stdout)
	return stderr
}

// fails runs a command line that must fail with all of says, and must leave no file at its last argument or next to
// it.
func fails(t *testing.T, code int, says string, args ...string) {
	t.Helper()
	got, stdout, stderr := runs(t, args...)
	require.Equal(t, code, got, stderr)
	require.Empty(t, stdout)
	require.Contains(t, stderr, says)
	require.True(t, strings.HasPrefix(stderr, "flashdbm-import: "), stderr)
}

// contents returns all records of a flashdbm database, which must pass a check.
func contents(t *testing.T, path string) map[string]string {
	t.Helper()
	db, err := dbm.Open(path, &dbm.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Check(t.Context()))
	all := map[string]string{}
	require.NoError(t, db.View(func(tx *dbm.Tx) error {
		for key, value := range tx.All() {
			all[string(key)] = string(value)
		}
		return nil
	}))
	return all
}

// requireOnly fails unless a directory has exactly these names.
func requireOnly(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	require.ElementsMatch(t, names, got)
}

func newBolt(t *testing.T, dir string) string {
	path := filepath.Join(dir, "old.db")
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		users, err := tx.CreateBucket([]byte("users"))
		require.NoError(t, err)
		require.NoError(t, users.SetSequence(7))
		for i := range 2500 {
			require.NoError(t, users.Put(fmt.Appendf(nil, "%04d", i), bytes.Repeat([]byte{byte(i)}, i%3000)))
		}
		deep, err := users.CreateBucket([]byte("deep"))
		require.NoError(t, err)
		require.NoError(t, deep.Put([]byte("k"), []byte("v")))
		require.NoError(t, deep.Put([]byte("empty"), nil))
		_, err = tx.CreateBucket([]byte("nothing"))
		return err
	}))
	require.NoError(t, db.Close())
	return path
}

func TestBbolt(t *testing.T) {
	dir := t.TempDir()
	source, path := newBolt(t, dir), filepath.Join(dir, "new.fdbm")
	before, err := os.ReadFile(source)
	require.NoError(t, err)
	notes := succeeds(t, "bbolt", source, path)
	require.Contains(t, notes, `the sequence of bucket "users" is 7`)
	all := contents(t, path)
	require.Len(t, all, 2502)
	require.Equal(t, "v", all["users/deep/k"])
	require.Contains(t, all, "users/deep/empty")
	for i := range 2500 {
		require.Equal(t, string(bytes.Repeat([]byte{byte(i)}, i%3000)), all[fmt.Sprintf("users/%04d", i)])
	}
	after, err := os.ReadFile(source)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after), "the source is only read")
	requireOnly(t, dir, "old.db", "new.fdbm")

	one := filepath.Join(dir, "one.fdbm")
	succeeds(t, "bbolt", source, one, "--bucket", "users", "--separator", ":")
	all = contents(t, one)
	require.Len(t, all, 2502)
	require.Contains(t, all, "0001")
	require.Contains(t, all, "deep:k")
}

func TestBboltRefused(t *testing.T) {
	dir := t.TempDir()
	source, path := newBolt(t, dir), filepath.Join(dir, "new.fdbm")
	fails(t, exitError, "no such file", "bbolt", filepath.Join(dir, "none"), path)
	fails(t, exitError, "is not a file", "bbolt", dir, path)
	fails(t, exitError, `has no bucket "none"`, "bbolt", source, path, "--bucket", "none")
	fails(t, exitUsage, "accepts 2 arg", "bbolt", source)
	fails(t, exitUsage, "unknown flag", "bbolt", source, path, "--nonsense")
	fails(t, exitUsage, "unknown command", "leveldb", source, path)

	// There are two records with the same key, so nothing is imported.
	db, err := bolt.Open(source, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("users/deep"))
		require.NoError(t, err)
		return b.Put([]byte("k"), []byte("another"))
	}))
	require.NoError(t, db.Close())
	fails(t, exitError, `"users/deep/k": give another --separator`, "bbolt", source, path)
	requireOnly(t, dir, "old.db")

	// An existing file is not overwritten, whatever is in it.
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	fails(t, exitError, "exists: give the name", "bbolt", source, path, "--separator", ":")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(content))
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path+".importing", []byte("mine"), 0o600))
	fails(t, exitError, "another import is running", "bbolt", source, path, "--separator", ":")
	requireOnly(t, dir, "old.db", "new.fdbm.importing")
}

// TestBboltDamaged: random bytes of the file are changed. The command reports damage or imports what bbolt's library
// finds, and never panics.
func TestBboltDamaged(t *testing.T) {
	dir := t.TempDir()
	source, path := newBolt(t, dir), filepath.Join(dir, "new.fdbm")
	whole, err := os.ReadFile(source)
	require.NoError(t, err)
	failed := 0
	for at := 4096 * 2; at < len(whole); at += max(4096, len(whole)/40/4096*4096) {
		damaged := bytes.Clone(whole)
		for i := range 24 {
			damaged[at+i] = byte(0xf0 + i*7)
		}
		require.NoError(t, os.WriteFile(source, damaged, 0o600))
		code, _, stderr := runs(t, "bbolt", source, path)
		if code != 0 {
			failed++
			require.Equal(t, exitError, code)
			require.NotEmpty(t, stderr)
			requireOnly(t, dir, "old.db")
			continue
		}
		require.NoError(t, os.Remove(path))
	}
	require.Positive(t, failed)
}

// TestBboltCycles: pages that lead back to themselves, a bucket that is its own parent, and two buckets that are the
// same one are damage. bbolt's library would follow them without end.
func TestBboltCycles(t *testing.T) {
	dir := t.TempDir()
	source, path := newBolt(t, dir), filepath.Join(dir, "new.fdbm")
	db, err := bolt.Open(source, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{"outer", "outer/inner", "outer/next"} {
			b, err := tx.CreateBucketIfNotExists([]byte("outer"))
			require.NoError(t, err)
			if _, inner, ok := strings.Cut(name, "/"); ok {
				b, err = b.CreateBucket([]byte(inner))
				require.NoError(t, err)
			}
			for i := range 100 { // each on its own page
				require.NoError(t, b.Put(fmt.Appendf(nil, "%04d", i), []byte("value")))
			}
		}
		return nil
	}))
	var outer, inner, next uint64
	require.NoError(t, db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("outer"))
		outer, inner, next = uint64(b.Root()), uint64(b.Bucket([]byte("inner")).Root()), uint64(b.Bucket([]byte("next")).Root())
		return nil
	}))
	size := db.Info().PageSize
	require.NoError(t, db.Close())
	whole, err := os.ReadFile(source)
	require.NoError(t, err)
	refused := func(what string, change func(file []byte)) {
		file := bytes.Clone(whole)
		change(file)
		require.NoError(t, os.WriteFile(source, file, 0o600), what)
		fails(t, exitError, "of a damaged file", "bbolt", source, path)
		requireOnly(t, dir, "old.db")
	}
	root := func(name string, is, becomes uint64) func([]byte) {
		return func(file []byte) {
			at := bytes.Index(file, binary.NativeEndian.AppendUint64([]byte(name), is))
			require.Positive(t, at)
			binary.NativeEndian.PutUint64(file[at+len(name):], becomes)
		}
	}
	refused("its own parent", root("inner", inner, outer))
	refused("one in two places", root("inner", inner, next))
	refused("outside of the file", root("inner", inner, 1<<40))
	branches := 0
	for at := 0; at < len(whole); at += size {
		if binary.NativeEndian.Uint64(whole[at:]) != uint64(at/size) || binary.NativeEndian.Uint16(whole[at+8:]) != boltBranch {
			continue
		}
		branches++
		file := bytes.Clone(whole)
		binary.NativeEndian.PutUint64(file[at+boltElement+8:], uint64(at/size))
		require.NoError(t, os.WriteFile(source, file, 0o600))
		if code, _, _ := runs(t, "bbolt", source, path); code == 0 { // the changed page is not in use
			require.NoError(t, os.Remove(path))
			branches--
		}
	}
	require.Positive(t, branches)
	require.NoError(t, os.WriteFile(source, whole, 0o600))
	succeeds(t, "bbolt", source, path)
	require.Len(t, contents(t, path), 2802)
}

func newBadger(t *testing.T) string {
	dir := t.TempDir()
	db, err := badger.Open(badger.DefaultOptions(dir).WithLogger(nil).WithValueThreshold(1 << 10))
	require.NoError(t, err)
	for i := range 3 { // versions
		require.NoError(t, db.Update(func(tx *badger.Txn) error {
			for k := range 500 {
				require.NoError(t, tx.Set(fmt.Appendf(nil, "%03d", k), bytes.Repeat([]byte{byte(i + k)}, k*10)))
			}
			return nil
		}))
	}
	require.NoError(t, db.Update(func(tx *badger.Txn) error {
		require.NoError(t, tx.Delete([]byte("007")))
		require.NoError(t, tx.SetEntry(badger.NewEntry([]byte("gone"), nil).WithTTL(time.Nanosecond)))
		require.NoError(t, tx.SetEntry(badger.NewEntry([]byte("stays"), []byte("x")).WithTTL(time.Hour)))
		return tx.SetEntry(badger.NewEntry([]byte("tagged"), []byte("y")).WithMeta(3))
	}))
	time.Sleep(time.Second) // times of expiry are whole seconds
	require.NoError(t, db.Close())
	return dir
}

func TestBadger(t *testing.T) {
	source, dir := newBadger(t), t.TempDir()
	path := filepath.Join(dir, "new.fdbm")
	notes := succeeds(t, "badger", source, path)
	require.Contains(t, notes, "1 records have a byte of user meta")
	all := contents(t, path)
	require.Len(t, all, 501)
	require.Equal(t, "x", all["stays"])
	require.NotContains(t, all, "007")
	require.NotContains(t, all, "gone")
	db, err := dbm.Open(path, &dbm.Options{ReadOnly: true})
	require.NoError(t, err)
	left, expires, err := db.TTL([]byte("stays"))
	require.NoError(t, err)
	require.True(t, expires)
	require.InDelta(t, time.Hour.Seconds(), left.Seconds(), 60)
	require.NoError(t, db.Close())
	for k := range 500 {
		if k != 7 {
			require.Equal(t, string(bytes.Repeat([]byte{byte(2 + k)}, k*10)), all[fmt.Sprintf("%03d", k)])
		}
	}
	requireOnly(t, dir, "new.fdbm")
	fails(t, exitError, "is not the directory of a Badger database", "badger", dir, filepath.Join(dir, "other.fdbm"))
	fails(t, exitError, "no such file", "badger", source, filepath.Join(dir, "other.fdbm"), "--encryption-key-file", "none")
	requireOnly(t, dir, "new.fdbm")
}

func TestCdb(t *testing.T) {
	dir := t.TempDir()
	path, back := filepath.Join(dir, "new.fdbm"), filepath.Join(dir, "back.cdb")
	notes := succeeds(t, "cdb", "cdb/testdata/tinycdb.cdb", path)
	require.Contains(t, notes, "1 records have the key of an earlier one")
	want := map[string]string{"one": "Hello", "a": "1st", "": ""}
	require.Equal(t, want, contents(t, path))

	succeeds(t, "to-cdb", path, back)
	again := filepath.Join(dir, "again.fdbm")
	require.Empty(t, succeeds(t, "cdb", back, again))
	require.Equal(t, want, contents(t, again))
	fails(t, exitError, "exists", "to-cdb", path, back)
	fails(t, exitError, "no such file", "to-cdb", filepath.Join(dir, "none"), filepath.Join(dir, "x"))
	fails(t, exitError, "not a whole cdb file", "cdb", path, filepath.Join(dir, "x"))
	fails(t, exitError, "not a whole cdb file", "cdb", "import_test.go", filepath.Join(dir, "x"))
	requireOnly(t, dir, "new.fdbm", "back.cdb", "again.fdbm")
}

// TestInterrupted: an interrupted import leaves no file.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	source := newBolt(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, _, stderr := runsUntil(t, ctx, "bbolt", source, filepath.Join(dir, "new.fdbm"))
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "interrupted")
	path := filepath.Join(dir, "whole.fdbm")
	succeeds(t, "bbolt", source, path)
	code, _, stderr = runsUntil(t, ctx, "to-cdb", path, filepath.Join(dir, "new.cdb"))
	require.Equal(t, exitError, code)
	require.NotEmpty(t, stderr)
	requireOnly(t, dir, "old.db", "whole.fdbm")
}

func TestHelp(t *testing.T) {
	code, _, _ := runs(t, "--help")
	require.Zero(t, code)
	for _, name := range []string{"bbolt", "badger", "cdb", "to-cdb"} {
		code, _, _ := runs(t, name, "--help")
		require.Zero(t, code)
	}
}
