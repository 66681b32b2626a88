//go:build unix

package dbm

import (
	"context"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestUnreadableValue: a large value in memory that cannot be read, as a whole or after its first MiB, is an error
// of that Put and affects nothing else.
func TestUnreadableValue(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "db"), nil)
	require.NoError(t, err)
	defer db.Close()
	const size = 4 << 20
	value, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer unix.Munmap(value)
	for _, from := range []int{0, 1 << 20, size - 4096} {
		require.NoError(t, unix.Mprotect(value, unix.PROT_READ))
		require.NoError(t, unix.Mprotect(value[from:], unix.PROT_NONE))
		for name, put := range map[string]func() error{
			"DB":     func() error { return db.Put([]byte("bad"), value) },
			"Update": func() error { return db.Update(func(tx *Tx) error { return tx.Put([]byte("bad"), value) }) },
			"Begin": func() error {
				tx, err := db.Begin(TxOptions{})
				require.NoError(t, err)
				defer tx.Rollback()
				require.NoError(t, tx.Put([]byte("with"), nil))
				return tx.Insert([]byte("bad"), value)
			},
		} {
			require.ErrorContains(t, put(), "cannot be read", "%s, from %d", name, from)
			require.NoError(t, db.Put([]byte("good"), []byte("v")), "%s: the handle goes on", name)
			_, err = db.Get([]byte("bad"))
			require.ErrorIs(t, err, ErrNotFound)
		}
	}
	require.NoError(t, unix.Mprotect(value, unix.PROT_READ))
	require.NoError(t, db.Put([]byte("bad"), value))
	require.NoError(t, db.Check(context.Background()))
}

// A key that cannot be read causes a panic, as in any Go program. If the caller recovers, nothing is left for which
// Close would wait.
func TestUnreadableKeyAsync(t *testing.T) {
	for _, d := range durabilities {
		db, err := openUnsynced(filepath.Join(t.TempDir(), "db"), &Options{Durability: d})
		require.NoError(t, err)
		key, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
		require.NoError(t, err)
		defer unix.Munmap(key)
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		require.Panics(t, func() { db.PutAsync(key[:10], nil, func(error) { t.Error("called") }) })
		require.Panics(t, func() { db.DeleteAsync(key[:10], func(error) { t.Error("called") }) })
		ended := make(chan error, 1)
		require.NoError(t, db.PutAsync([]byte("good"), nil, func(err error) { ended <- err }))
		require.NoError(t, <-ended)
		go func() { ended <- db.Close() }()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Fatal("Close waits for a commit that is gone")
		}
	}
}

// TestUnreadableLoad: a load gets a record in memory that cannot be read. This causes a panic in the caller, who may
// recover, although another goroutine reads the record. Afterwards no record of the load is there, and the database
// stays usable.
func TestUnreadableLoad(t *testing.T) {
	db, err := openUnsynced(filepath.Join(t.TempDir(), "db"), nil)
	require.NoError(t, err)
	defer db.Close()
	value, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer unix.Munmap(value)
	records := func(yield func(k, v []byte) bool) {
		_ = yield([]byte("a"), []byte("before")) && yield([]byte("b"), value)
	}
	for _, sorted := range []bool{false, true} {
		o := LoadOptions{Sorted: sorted}
		require.Panics(t, func() { db.Load(t.Context(), records, o) })
		require.Panics(t, func() { db.Keyspace("space").Load(t.Context(), records, LoadOptions{Sorted: sorted, Replace: true}) })
		_, err = db.Get([]byte("a"))
		require.ErrorIs(t, err, ErrNotFound)
		require.NoError(t, db.Put([]byte("good"), nil))
		require.NoError(t, db.Delete([]byte("good")))
	}
}
