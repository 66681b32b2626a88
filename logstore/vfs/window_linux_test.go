package vfs

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// windowOf returns a file of two pages and a window on it. It skips the test on a file system without windows.
func windowOf(t *testing.T) (File, Window) {
	f, err := OS().Open(filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	_, err = f.WriteAt(make([]byte, 8192), 0)
	require.NoError(t, err)
	w, err := OpenWindow(f, 0, 1<<20)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no windows on this file system")
	}
	require.NoError(t, err)
	return f, w
}

func TestWindow(t *testing.T) {
	f, w := windowOf(t)
	m, err := f.Map(0, 8192)
	require.NoError(t, err)
	defer f.Unmap(m)
	require.NoError(t, w.Store([]byte("hello"), 4100, 0x0807060504030201, 4096+16))
	want := make([]byte, 8192)
	copy(want[4100:], "hello")
	copy(want[4112:], []byte{1, 2, 3, 4, 5, 6, 7, 8})
	got := make([]byte, 8192)
	_, err = f.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, want, m)
	_, err = f.WriteAt([]byte{9}, 4112)
	require.NoError(t, err)
	require.NoError(t, w.Store(nil, 0, binary.LittleEndian.Uint64([]byte("8 bytes.")), 8))
	require.Equal(t, "8 bytes.", string(m[8:16]))
	require.EqualValues(t, 9, m[4112])
	require.NoError(t, f.Datasync())
	require.NoError(t, w.Close())
}

// TestWindowFaults: a store after the end of the file is an error, and the file does not become longer.
func TestWindowFaults(t *testing.T) {
	f, w := windowOf(t)
	defer w.Close()
	require.NoError(t, f.Truncate(4096))
	require.Error(t, w.Store([]byte("hello"), 4100, 1, 8))
	require.Error(t, w.Store([]byte("hello"), 4000, 1, 4096))
	b := make([]byte, 16)
	_, err := f.ReadAt(b, 0)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 16), b, "no word without its bytes")
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 4096, size)
	require.Panics(t, func() { w.Store(nil, 0, 1, 12) })
	require.Panics(t, func() { w.Store([]byte("x"), 1<<20, 1, 8) })
}

func TestWindowDue(t *testing.T) {
	_, w := windowOf(t)
	defer w.Close()
	time.Sleep(2 * timeTick)
	require.True(t, w.Due())
	begin := time.Now()
	for due := 0; due < 20; {
		if w.Due() {
			due++
		}
	}
	require.GreaterOrEqual(t, time.Since(begin), 19*timeTick)
}

// TestWindowReadOnly: a file that is not writable has no windows.
func TestWindowReadOnly(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(name, make([]byte, 4096), 0o600))
	f, err := OS().Open(name, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = OpenWindow(f, 0, 4096)
	require.Error(t, err)
}
