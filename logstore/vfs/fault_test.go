package vfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

func TestFaulty(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	var kinds []vfs.Kind
	var fault error
	fsys := vfs.Faulty(vfs.OS(), func(op vfs.Op) error {
		require.Equal(t, len(kinds), op.Index)
		kinds = append(kinds, op.Kind)
		return fault
	})
	f := create(t, fsys, name)
	write(t, f, []byte("abc"), 0)
	create(t, fsys, name)
	require.Equal(t, []vfs.Kind{vfs.OpCreate, vfs.OpWrite}, kinds, "a second open makes nothing")

	fault = errors.New("boom")
	calls := []struct {
		kind vfs.Kind
		call func() error
	}{
		{vfs.OpWrite, func() error { _, err := f.WriteAt([]byte("x"), 0); return err }},
		{vfs.OpWriteVec, func() error { return f.WriteVec([][]byte{{1}}, 0) }},
		{vfs.OpDatasync, f.Datasync},
		{vfs.OpWriteOut, func() error { return f.WriteOut(0, 1, true) }},
		{vfs.OpAllocate, func() error { return f.Allocate(0, 100) }},
		{vfs.OpPunch, func() error { return f.Punch(0, 4096) }},
		{vfs.OpTruncate, func() error { return f.Truncate(0) }},
		{vfs.OpMap, func() error { _, err := f.Map(0, 4096); return err }},
		{vfs.OpSyncDir, func() error { return fsys.SyncDir(name) }},
		{vfs.OpRemove, func() error { return fsys.Remove(name) }},
		{vfs.OpCreate, func() error { _, err := fsys.Open(name+"2", os.O_RDWR|os.O_CREATE, 0o600); return err }},
	}
	for _, c := range calls {
		err := c.call()
		require.ErrorIs(t, err, fault, c.kind)
		require.ErrorContains(t, err, name)
		require.Equal(t, c.kind, kinds[len(kinds)-1])
	}
	require.Equal(t, "abc", string(content(t, f)))

	fault = &vfs.ShortWrite{N: 2, Err: syscall.EIO}
	n, err := f.WriteAt([]byte("xyz"), 0)
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, "xyc", string(content(t, f)))
	require.ErrorIs(t, f.WriteVec([][]byte{{'1'}, {'2', '3'}}, 0), syscall.EIO)
	require.Equal(t, "12c", string(content(t, f)))
}
