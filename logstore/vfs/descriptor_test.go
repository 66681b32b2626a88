//go:build unix

package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestFromDescriptor: the file is used like one that was opened by name, and closing it closes the descriptor.
func TestFromDescriptor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	require.NoError(t, err)
	f, err := FromDescriptor(uintptr(fd), "somewhere")
	require.NoError(t, err)
	assert.Equal(t, "somewhere", f.Name())
	_, err = f.WriteAt([]byte("some bytes"), 3)
	require.NoError(t, err)
	m, err := f.Map(0, 4096)
	require.NoError(t, err)
	assert.Equal(t, "some", string(m[3:7]))
	require.NoError(t, f.Unmap(m))
	require.NoError(t, f.Lock(true))
	require.NoError(t, f.Datasync())
	require.NoError(t, f.Close())
	assert.ErrorIs(t, unix.Close(fd), unix.EBADF)
}

func TestFromDescriptorRefuses(t *testing.T) {
	dir, err := unix.Open(t.TempDir(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	_, err = FromDescriptor(uintptr(dir), "a directory")
	var failed *os.PathError
	assert.ErrorAs(t, err, &failed)
	assert.ErrorIs(t, unix.Close(dir), unix.EBADF, "it is closed all the same")
}
