package logstore

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

func TestReserve(t *testing.T) {
	x := newScript(t)
	s := x.s
	before := s.SpaceStats()
	require.NoError(t, s.Reserve(100, false))
	after := s.SpaceStats()
	require.GreaterOrEqual(t, after.FreeBytes-after.ReservedBytes, s.space.Counts().Kept*PageSize)
	require.Greater(t, after.FileBytes, before.FileBytes)
	s.Release(100)

	require.NoError(t, s.Reserve(s.space.Counts().Available, true), "in an emergency also what is held back")
	require.Equal(t, after.FileBytes, s.SpaceStats().FileBytes)

	err := s.Reserve(1<<40, false)
	require.ErrorIs(t, err, ErrFull)
	require.True(t, IsFull(err))
	require.Equal(t, after.FileBytes, s.SpaceStats().FileBytes, "no attempt was made")
	require.NoError(t, s.Failed())
	s.Release(s.space.Counts().Promised)
	require.Panics(t, func() { s.Release(1) })
}

// The bits of a page are cleared when its segment is reused, in whole words and in parts of words.
func TestPageSet(t *testing.T) {
	for _, n := range []uint64{8, 32, 64, 256} {
		set := make(pageSet, 16)
		for o := range uint64(1024) {
			set.set(o)
		}
		set.unsetAll(512, n)
		for o := range uint64(1024) {
			require.Equal(t, o < 512 || o >= 512+n, set.has(o), "page %d of %d", o, n)
		}
		set.unset(3)
		require.False(t, set.has(3))
		require.True(t, set.has(2) && set.has(4))
	}
}

// A raw page of a large value is never taken for a page of the tree, even if it looks like one and was read before.
func TestRawPageIsNoTreePage(t *testing.T) {
	x := newScript(t)
	s := x.s
	looks := make([]byte, PageSize)
	x.append(1)
	p, err := s.Page(s.firstPage(s.tail.header.segment) + s.tail.page - 1)
	require.NoError(t, err)
	copy(looks, p)

	v := s.NewPrivate()
	_, err = v.Write(looks)
	require.NoError(t, err)
	extents, err := v.Finish()
	require.NoError(t, err)
	b, err := s.Raw(extents[0])
	require.NoError(t, err)
	require.Equal(t, looks, append([]byte{}, b...))
	_, err = s.Page(extents[0].Addr)
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = s.Run(extents[0].Addr)
	require.ErrorIs(t, err, ErrCorrupt)

	for _, e := range []Extent{{}, {Addr: extents[0].Addr, Bytes: 9 * PageSize}, {Addr: 1 << 60, Bytes: 1}, {Addr: ^uint64(0), Bytes: 1 << 31}} {
		_, err := s.Raw(e)
		require.ErrorIs(t, err, ErrCorrupt, "%+v", e)
	}
	v.Discard()
}

// TestFileThatCannotGrow: if the file system has no room, no quota, or does not allow longer files, the file is
// full; that is not a failure of the store.
func TestFileThatCannotGrow(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, errQuota, syscall.EFBIG} {
		t.Run(cause.Error(), func(t *testing.T) {
			x := newScript(t)
			x.mem.OnOp(func(op vfs.Op) error {
				if op.Kind == vfs.OpAllocate {
					return cause
				}
				return nil
			})
			require.True(t, IsFull(x.s.Reserve(1000, false)))
			require.NoError(t, x.s.Failed())
			x.append(1)
			x.mem.OnOp(nil)
			require.NoError(t, x.s.Reserve(1000, false))
		})
	}
}
