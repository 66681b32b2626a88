//go:build unix

package dbm

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// touchUnmapped faults on memory that this test has mapped itself.
func touchUnmapped(t *testing.T) {
	m, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer unix.Munmap(m)
	m[0]++
}
