package vfs

import (
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUnnamed: an unnamed file is empty at first, works like any other, and leaves nothing in its directory.
func TestUnnamed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir)
	for name, open := range map[string]func() (File, error){
		"as the system has it": func() (File, error) { return Unnamed().Open("any", os.O_RDWR|os.O_CREATE, 0o600) },
		"temporary":            temporary,
	} {
		t.Run(name, func(t *testing.T) {
			f, err := open()
			require.NoError(t, err)
			size, err := f.Size()
			require.NoError(t, err)
			require.Zero(t, size)
			require.NoError(t, f.Lock(true))
			require.NoError(t, f.Allocate(0, 4*blockSize))
			free, err := f.Free()
			require.NoError(t, err)
			require.Greater(t, free, int64(blockSize))
			require.LessOrEqual(t, free, int64(math.MaxInt64))
			_, err = f.WriteAt([]byte("bytes"), blockSize)
			require.NoError(t, err)
			b, err := f.Map(0, 4*blockSize)
			require.NoError(t, err)
			require.Equal(t, "bytes", string(b[blockSize:blockSize+5]))
			require.NoError(t, f.Datasync())
			require.NoError(t, f.Unmap(b))
			require.NoError(t, f.Close())
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}
