//go:build unix

package dbm

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// touchUnmapped causes a fault in memory that the test itself has mapped.
func touchUnmapped(t *testing.T) {
	m, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer unix.Munmap(m)
	m[0]++
}

// TestFaultInPut: a key that cannot be read causes a panic of the caller, and leaves nothing behind for which Close
// would wait.
func TestFaultInPut(t *testing.T) {
	m, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer unix.Munmap(m)
	db := newDB(t, nil)
	require.Panics(t, func() { db.Put(m[:8], nil) })
	require.Panics(t, func() { db.Delete(m[:8]) })
	require.NoError(t, db.Put([]byte("k"), nil))
	require.Zero(t, db.Stats().OpenSnapshots)
	requireCloses(t, db)
}
