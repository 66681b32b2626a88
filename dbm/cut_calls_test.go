//go:build unix

package dbm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCutUnderCalls: the file is truncated. Each call that reads the lost part gets an error, also if another
// goroutine reads for the call. No call ends the process.
func TestCutUnderCalls(t *testing.T) {
	records := func(yield func(k, v []byte) bool) {
		for i := range 2000 {
			if !yield(fmt.Appendf(nil, "k%05d", i), make([]byte, 100)) {
				return
			}
		}
	}
	for name, call := range map[string]func(db *DB, token Token, increment []byte) error{
		"Load": func(db *DB, _ Token, _ []byte) error {
			return db.Load(t.Context(), records, LoadOptions{Replace: true})
		},
		"Load keyspace": func(db *DB, _ Token, _ []byte) error {
			return db.Keyspace("a").Load(t.Context(), records, LoadOptions{})
		},
		"Follow": func(db *DB, token Token, _ []byte) error {
			return db.Follow(t.Context(), token, time.Millisecond, func(_ Token, r io.Reader) error {
				_, err := io.Copy(io.Discard, r)
				return err
			})
		},
		"ApplyBackup": func(db *DB, token Token, increment []byte) error {
			_, err := db.ApplyBackup(t.Context(), token, bytes.NewReader(increment))
			return err
		},
		"Backup": func(db *DB, _ Token, _ []byte) error { _, err := db.Backup(t.Context(), io.Discard); return err },
		"BackupSince": func(db *DB, token Token, _ []byte) error {
			_, err := db.BackupSince(t.Context(), token, io.Discard)
			return err
		},
		"Batch": func(db *DB, _ Token, _ []byte) error {
			b := db.Batch()
			require.NoError(t, b.DeleteRange(nil, nil))
			return b.Commit()
		},
		"Batch async": func(db *DB, _ Token, _ []byte) error {
			b := db.Batch()
			require.NoError(t, b.DeleteRange(nil, nil))
			return b.CommitAsync(func(error) { t.Error("called") })
		},
	} {
		path := filepath.Join(t.TempDir(), "db")
		db, err := openUnsynced(path, nil)
		require.NoError(t, err)
		require.NoError(t, db.CreateKeyspace("a"))
		require.NoError(t, db.Load(t.Context(), records, LoadOptions{}))
		token, err := db.Backup(t.Context(), io.Discard)
		require.NoError(t, err)
		require.NoError(t, db.Load(t.Context(), records, LoadOptions{}))
		increment := &bytes.Buffer{}
		_, err = db.BackupSince(t.Context(), token, increment)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		db, err = openUnsynced(path, nil)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, 64<<10))
		err = call(db, token, increment.Bytes())
		require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFailed), "%s: %v", name, err)
		require.Zero(t, db.Stats().OpenSnapshots, name)
		_ = db.Close() // its error does not matter
	}
}
