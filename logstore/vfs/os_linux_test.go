package vfs

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDatasyncRemembersWriteOut: WriteOut got the error of a failed write-back. The kernel would not report it to
// Datasync again, so Datasync must remember it.
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

// TestSizeIsNotStat: see Size.
func TestSizeIsNotStat(t *testing.T) {
	file, err := OS().Open(filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.Truncate(4711))
	_, err = file.Size()
	require.NoError(t, err)
	offset, err := file.(*osFile).f.Seek(0, io.SeekCurrent)
	require.NoError(t, err)
	require.EqualValues(t, 4711, offset, "Size has sought the end")
}
