package dbm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flashdbm/dbm"
	"flashdbm/internal/streams"

	"github.com/stretchr/testify/require"
)

// TestBesideProcess reads while another process writes from many goroutines, in each mode, closes the database, and
// is killed. The reader always sees the state after some commit, with all commits that had returned before, and
// never goes back to an earlier state.
func TestBesideProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	var reader *dbm.DB
	var least streams.Numbers
	views, tooOld, moved := 0, 0, 0
	for round, o := range []dbm.Options{
		{Durability: dbm.Durable, MemoryLimit: 1 << 20, RedoLimit: 1 << 20},
		{Durability: dbm.WriteThrough, MemoryLimit: 1 << 20, RedoLimit: 1 << 20},
		{Durability: dbm.Buffered, RedoLimit: 1 << 20},
		{Durability: dbm.WriteThrough},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		recordPath := filepath.Join(t.TempDir(), "record")
		record, err := streams.OpenRecord(recordPath)
		require.NoError(t, err)
		child, ended, complaints := startWriter(t, ctx, path, recordPath, o)
		for record.Stage() < streams.Running && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if reader == nil {
			reader, err = dbm.Open(path, &dbm.Options{Beside: true, Durability: dbm.WriteThrough})
			require.NoError(t, err)
			require.ErrorIs(t, reader.Put([]byte("k"), nil), dbm.ErrReadOnly)
		}
		look := func() {
			before := least
			if o.Durability != dbm.Buffered {
				before = higher(before, record.Returned())
			}
			have, err := everything(reader)
			if errors.Is(err, dbm.ErrSnapshotTooOld) {
				tooOld++
				return
			}
			require.NoError(t, err)
			views++
			found, err := streams.Verify(have, before, higher(least, record.Begun()), true)
			require.NoError(t, err, "round %d", round)
			if found != least {
				moved++
			}
			least = found
		}
		end, before := time.Now().Add(400*time.Millisecond), moved
		for time.Now().Before(end) || moved < before+6 {
			require.NoError(t, ctx.Err(), "the reader does not get on")
			look()
		}
		require.NoError(t, child.Process.Kill())
		<-ended
		require.Empty(t, complaints.String())
		look() // without a writer
		require.NoError(t, record.Close())
		cancel()
	}
	require.NoError(t, reader.Check(t.Context()))
	require.NoError(t, reader.Close())
	t.Logf("%d views, %d of them new, %d overtaken", views, moved, tooOld)
}

// startWriter starts a process that runs TestKillChild.
func startWriter(t *testing.T, ctx context.Context, path, record string, o dbm.Options) (*exec.Cmd, chan error, *strings.Builder) {
	child := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestKillChild$")
	child.Env = append(os.Environ(), killChild+"="+fmt.Sprintf("%q %q %d %d %d %d %t", path, record, o.Durability, o.MemoryLimit, o.RedoLimit, 0, true))
	complaints := &strings.Builder{}
	child.Stdout, child.Stderr = complaints, complaints
	require.NoError(t, child.Start())
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	return child, ended, complaints
}

// everything returns all records of one snapshot.
func everything(db *dbm.DB) (iter.Seq2[[]byte, []byte], error) {
	var keys, values [][]byte
	err := db.View(func(tx *dbm.Tx) error {
		keys, values = nil, nil
		for k, v := range tx.All() {
			keys, values = append(keys, bytes.Clone(k)), append(values, bytes.Clone(v))
		}
		return nil
	})
	return func(yield func(k, v []byte) bool) {
		for i, k := range keys {
			if !yield(k, values[i]) {
				return
			}
		}
	}, err
}

// TestBesideOpen tests what a reader may find at its path before there is a writer.
func TestBesideOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "db")
	_, err := dbm.Open(path, &dbm.Options{Beside: true})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("not a database"), 0o600))
	_, err = dbm.Open(path, &dbm.Options{Beside: true})
	require.ErrorIs(t, err, dbm.ErrFormat)
	require.NoError(t, os.Truncate(path, 0))
	reader, err := dbm.Open(path, &dbm.Options{Beside: true})
	require.NoError(t, err)
	_, err = reader.Get([]byte("k"))
	require.ErrorIs(t, err, dbm.ErrNotFound)

	writer, err := dbm.Open(path, nil)
	require.NoError(t, err, "a reader keeps no writer out")
	_, err = dbm.Open(path, &dbm.Options{ReadOnly: true})
	require.ErrorIs(t, err, dbm.ErrLocked)
	require.NoError(t, writer.Put([]byte("k"), []byte("v")))
	v, err := reader.Get([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	tx, err := reader.Begin(dbm.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	_, err = reader.Begin(dbm.TxOptions{})
	require.ErrorIs(t, err, dbm.ErrReadOnly)
	require.ErrorIs(t, reader.Update(func(*dbm.Tx) error { return nil }), dbm.ErrReadOnly)
	require.ErrorIs(t, reader.Delete([]byte("k")), dbm.ErrReadOnly)
	require.NoError(t, writer.Delete([]byte("k")))
	require.NoError(t, writer.Close())
	v, err = tx.Get([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	require.NoError(t, tx.Commit())
	ok, err := reader.Has([]byte("k"))
	require.NoError(t, err)
	require.False(t, ok)
	n, err := reader.Len()
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, reader.Stats().Records)
	require.NoError(t, reader.Sync())
	require.NoError(t, reader.Checkpoint())
	require.Equal(t, path, reader.Path())
	require.NoError(t, reader.Close())
	require.NoError(t, reader.Close())
	_, err = reader.Get([]byte("k"))
	require.ErrorIs(t, err, dbm.ErrClosed)
	require.Zero(t, reader.Stats())
}

// TestBesideReadOnlyFile: the reader needs no more than permission to read.
func TestBesideReadOnlyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	writer, err := dbm.Open(path, nil)
	require.NoError(t, err)
	defer writer.Close()
	require.NoError(t, writer.Put([]byte("k"), []byte("v")))
	require.NoError(t, os.Chmod(path, 0o400))
	reader, err := dbm.Open(path, &dbm.Options{Beside: true})
	require.NoError(t, err)
	v, err := reader.Get([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	require.NoError(t, reader.Close())
}
