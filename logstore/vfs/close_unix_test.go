//go:build unix

package vfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCloseUnlocksForkedDescriptor closes a file whose descriptor a child process has inherited, as every process
// has for a moment while it is being started: the lock must not stay with the child.
func TestCloseUnlocksForkedDescriptor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	f, err := OS().Open(path, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	require.NoError(t, f.Lock(true))

	child := exec.Command("sleep", "60")
	child.ExtraFiles = []*os.File{f.(*osFile).f}
	require.NoError(t, child.Start())
	defer child.Wait()
	defer child.Process.Kill()

	require.NoError(t, f.Close())
	other, err := OS().Open(path, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, other.Lock(true))
	require.NoError(t, other.Close())
}
