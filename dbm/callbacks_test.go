package dbm

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// endingReader reads some bytes, and then ends the goroutine.
type endingReader struct {
	io.Reader
	end func()
}

func (r *endingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		r.end()
	}
	return n, err
}

// TestCallbacksThatEnd: a user's function panics, or ends its goroutine as t.FailNow does. The call then ends in the
// same way, on the goroutine of its caller, who may recover. It leaves no snapshot for which Close would wait, no open
// database and no file.
func TestCallbacksThatEnd(t *testing.T) {
	dir := t.TempDir()
	db, err := openUnsynced(filepath.Join(dir, "db"), nil)
	require.NoError(t, err)
	put := func(from, to int) {
		require.NoError(t, db.Update(func(tx *Tx) error {
			for i := from; i < to; i++ {
				require.NoError(t, tx.Put(fmt.Appendf(nil, "k%05d", i), make([]byte, 100)))
			}
			return nil
		}))
	}
	put(0, 3000)
	full, increment := &bytes.Buffer{}, &bytes.Buffer{}
	token, err := db.Backup(t.Context(), full)
	require.NoError(t, err)
	put(2000, 4000)
	_, err = db.BackupSince(t.Context(), token, increment)
	require.NoError(t, err)
	damaged := bytes.Clone(full.Bytes())
	clear(damaged[20*4096 : 40*4096])
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad"), damaged, 0o600))
	fresh := filepath.Join(dir, "fresh")
	open := func() int { return strings.Count(stacks(), "mvcc.(*maintenance).run(") }
	require.Eventually(t, func() bool { return open() > 0 }, patience, time.Millisecond, "the goroutine of db, which may not have run yet")
	before := open()

	for name, end := range map[string]func(){"panic": func() { panic("the user's") }, "Goexit": runtime.Goexit} {
		for _, call := range []struct {
			name string
			fn   func()
		}{
			{"Follow", func() {
				_ = db.Follow(t.Context(), token, time.Millisecond, func(Token, io.Reader) error { end(); return nil })
			}},
			{"Follow amid", func() {
				_ = db.Follow(t.Context(), token, time.Millisecond, func(_ Token, r io.Reader) error {
					_, err := io.ReadFull(r, make([]byte, 100))
					end()
					return err
				})
			}},
			{"ApplyBackup", func() { _, _ = db.ApplyBackup(t.Context(), token, &endingReader{bytes.NewReader(nil), end}) }},
			{"ApplyBackup amid", func() {
				_, _ = db.ApplyBackup(t.Context(), token, &endingReader{bytes.NewReader(increment.Bytes()[:increment.Len()/2]), end})
			}},
			{"Restore", func() {
				_, _ = Restore(t.Context(), fresh, bytes.NewReader(full.Bytes()), &endingReader{bytes.NewReader(nil), end})
			}},
			{"Salvage", func() {
				_, _ = Salvage(t.Context(), filepath.Join(dir, "bad"), fresh, &SalvageOptions{Report: func(Damage) { end() }})
			}},
			{"Salvage amid", func() {
				_, _ = Salvage(t.Context(), filepath.Join(dir, "bad"), fresh, &SalvageOptions{Progress: func(int64, int64) { end() }})
			}},
		} {
			ended, returned := make(chan any, 1), false
			go func() {
				defer func() { ended <- recover() }()
				call.fn()
				returned = true
			}()
			select {
			case r := <-ended:
				require.False(t, returned, "%s: %s: the function did not end", name, call.name)
				require.Equal(t, name == "panic", r != nil, "%s: %s: %v", name, call.name, r)
			case <-time.After(patience):
				t.Fatalf("%s: %s waits", name, call.name)
			}
			require.Zero(t, db.Stats().OpenSnapshots, "%s: %s", name, call.name)
			require.Eventually(t, func() bool { return open() <= before }, patience, time.Millisecond, "%s: %s has left a database open", name, call.name)
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, files, 2, "%s: %s has left a file", name, call.name)
		}
	}
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, 4000, n)
	requireCloses(t, db)
}

// requireCloses closes the database; that must not wait for something that has ended.
func requireCloses(t *testing.T, db *DB) {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- db.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("Close waits")
	}
}
