package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDatasyncRemembersWriteOut stands for the kernel, which would report the
// failed write-back to WriteOut only.
func TestDatasyncRemembersWriteOut(t *testing.T) {
	file, err := OS().Open(filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.WriteOut(0, 0, true))
	require.NoError(t, file.Datasync())
	lost := error(unix.EIO)
	file.(*osFile).lost.Store(&lost)
	for range 2 {
		require.ErrorIs(t, file.Datasync(), unix.EIO)
	}
}
