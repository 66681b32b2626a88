//go:build unix

package vfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHoldingDir(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return root + "/" + name }
	for _, dir := range []string{"a/deep", "b"} {
		require.NoError(t, os.MkdirAll(at(dir), 0o700))
	}
	require.NoError(t, os.WriteFile(at("b/file"), nil, 0o600))
	for link, target := range map[string]string{
		"a/abs": at("b/file"), "a/rel": "../b/file", "a/two": "rel", "a/dangling": "../b/gone",
		"way": "a/deep", "loop": "loop", "a/deep/up": "../x",
	} {
		require.NoError(t, os.Symlink(target, at(link)))
	}
	tests := []struct{ name, want string }{
		{"b/file", "b"},
		{"b/gone", "b"},
		{"a/abs", "b"},
		{"a/rel", "b"},
		{"a/two", "b"},
		{"a/dangling", "b"},
		{"way/../rel", "b"}, // way/.. is a, not the root
		{"way/up", "a"},
	}
	for _, test := range tests {
		dir, err := holdingDir(at(test.name))
		require.NoError(t, err, test.name)
		got, err := os.Stat(dir)
		require.NoError(t, err, test.name)
		want, err := os.Stat(at(test.want))
		require.NoError(t, err)
		require.True(t, os.SameFile(got, want), "%s: %s", test.name, dir)
		require.NoError(t, OS().SyncDir(at(test.name)))
	}
	_, err := holdingDir(at("loop"))
	require.ErrorIs(t, err, syscall.ELOOP)
	require.ErrorIs(t, OS().SyncDir(at("no/such")), fs.ErrNotExist)

	t.Chdir(root)
	dir, err := holdingDir("file")
	require.NoError(t, err)
	require.Equal(t, ".", dir)
}

func TestOpenOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, name := range []string{dir, pipe, os.DevNull} {
		_, err := OS().Open(name, os.O_RDONLY, 0) // must not wait
		require.ErrorIs(t, err, errRegular, name)
	}
}

func TestNoSpaceKeepsErrno(t *testing.T) {
	for _, errno := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		err := rangeError("write", "f", 7, 9, &fs.PathError{Op: "write", Path: "f", Err: errno})
		require.ErrorIs(t, err, ErrNoSpace)
		require.ErrorIs(t, err, errno)
		require.Equal(t, "write of 9 bytes at offset 7: f: "+errno.Error(), err.Error())
	}
	err := pathError("write", "f", syscall.EIO)
	require.NotErrorIs(t, err, ErrNoSpace)
	require.ErrorIs(t, err, syscall.EIO)
}

func TestWriteZerosWhereSpaceCannotBeReserved(t *testing.T) {
	file, err := OS().Open(filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	defer file.Close()
	f := file.(*osFile)
	_, err = f.WriteAt([]byte("abc"), 0)
	require.NoError(t, err)
	for _, r := range []struct{ off, n, size int64 }{{0, 2, 3}, {1, 5000, 5001}, {1 << 20, 3 << 20, 4 << 20}, {0, 100, 4 << 20}} {
		require.NoError(t, f.writeZeros(r.off, r.n))
		size, err := f.Size()
		require.NoError(t, err)
		require.Equal(t, r.size, size)
	}
	p := make([]byte, 4)
	_, err = f.ReadAt(p, 0)
	require.NoError(t, err)
	require.Equal(t, "abc\x00", string(p))
}
