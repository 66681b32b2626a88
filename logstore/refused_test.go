package logstore

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// A file had grown into its holes after its last checkpoint when the process died. Then the device became full, and
// the file system refuses to allocate even ranges that the file already has. The store still finds the space that the
// file has, and no more.
func TestRefusedAllocation(t *testing.T) {
	x := newScript(t)
	x.hollow()
	holes := x.s.space.Counts().Punched
	require.Greater(t, holes, int64(5))
	before := x.s.space.Counts().Available
	require.NoError(t, x.s.Reserve(before+40, true))
	x.s.Release(before + 40)
	has := x.s.space.Counts().Available
	filled := holes - x.s.space.Counts().Punched
	require.Greater(t, filled, int64(3))
	require.Positive(t, x.s.space.Counts().Punched)
	x.append(1)
	x.sync()

	limits := []int64{0, int64(x.s.End()) * PageSize} // none, and one that the file has reached
	for i, p := range slices.Repeat(append(vfs.Policies(), 255), len(limits)) {
		mem := x.mem.Clone()
		if p != 255 {
			mem = x.mem.Crash(p, 1)
		}
		mem.SetMaxBytes(mem.Used() + 3*PageSize)
		mem.OnOp(func(op vfs.Op) error {
			if op.Kind == vfs.OpAllocate {
				return syscall.ENOSPC
			}
			return nil
		})
		y := &script{t: t, mem: mem, opts: x.opts}
		y.opts.MaxFileSize = limits[i/(len(vfs.Policies())+1)]
		y.open()
		require.Contains(t, y.groups(), x.s.LastGroup())
		var got int64
		for y.s.Reserve(1, true) == nil {
			got++
		}
		require.Error(t, y.s.Reserve(1, true), "once more")
		require.GreaterOrEqual(t, got, has-8, "%v: all but what is left of the tail's segment", p)
		require.LessOrEqual(t, got, has)
		require.LessOrEqual(t, mem.Used(), x.mem.Used(), "nothing is left of vain tries")
		require.NoError(t, y.s.Failed())
		mem.OnOp(nil)
		mem.SetMaxBytes(0)
		require.NoError(t, y.s.Reserve(10, true), "there is room again")
		y.s.Close()
		mem.Release()
	}
}

// silentFS does not report how much space a device has left, like most systems.
type silentFS struct{ vfs.FS }

type silentFile struct{ vfs.File }

func (fs silentFS) Open(path string, flag int, mode os.FileMode) (vfs.File, error) {
	f, err := fs.FS.Open(path, flag, mode)
	if err != nil {
		return nil, err
	}
	return silentFile{f}, nil
}

func (silentFile) Free() (int64, error) { return 0, errors.ErrUnsupported }

// If it is not known how much space the device has left, an opened file does not count as one that cannot grow.
func TestRoomIsNotKnown(t *testing.T) {
	x := newScript(t)
	x.s.Close()
	for _, fs := range []vfs.FS{x.mem, silentFS{x.mem}} {
		s, rec, err := Open(fs, toyPath, x.opts)
		require.NoError(t, err)
		require.NoError(t, s.EndRecovery(rec))
		_, grows := s.space.Lack(0)
		require.True(t, grows, "the device has room")
		require.NoError(t, s.Close())
	}
}
