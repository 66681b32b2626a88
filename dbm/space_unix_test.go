//go:build unix

package dbm

import (
	"encoding/binary"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// blocks returns the bytes that a file takes on disk.
func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(path, &st))
	return st.Blocks * 512
}

func spaceKey(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

// fillInOrder puts n records of the given size, key included, in order.
func fillInOrder(t *testing.T, db *DB, n, size int) {
	t.Helper()
	for i := 0; i < n; i += 1000 {
		require.NoError(t, db.Update(func(tx *Tx) error {
			for j := i; j < min(i+1000, n); j++ {
				if err := tx.Put(spaceKey(j), make([]byte, size-8)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// What is deleted goes back to the file system while the database goes on, and nobody asks for it.
func TestDeletedSpaceIsGivenBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := Open(path, nil)
	require.NoError(t, err)
	defer db.Close()
	const n = 300_000
	fillInOrder(t, db, n, 200)
	before := blocks(t, path)
	var gone []int
	for i := range n / 10 * 9 {
		gone = append(gone, i)
	}
	for i := 0; i < len(gone); i += 1000 {
		require.NoError(t, db.Update(func(tx *Tx) error {
			for _, k := range gone[i:min(i+1000, len(gone))] {
				if err := tx.Delete(spaceKey(k)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	least := blocks(t, path)
	for end := time.Now().Add(40 * time.Second); least > before/4 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		require.NoError(t, db.Put(spaceKey(gone[0]), []byte("still here")))
		least = min(least, blocks(t, path))
	}
	t.Logf("%d MiB with all, %d MiB with a tenth; live %d", before>>20, least>>20, db.Stats().LiveBytes>>20)
	require.LessOrEqual(t, least, before/4)
	require.NoError(t, db.Check(t.Context()))
}
