package vfs_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"sync"
	"syscall"
	"testing"

	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// sureOf returns the part of the file that is certain: its content after a crash that keeps nothing.
func sureOf(t testing.TB, m *vfs.Mem) string {
	t.Helper()
	img := m.Crash(vfs.KeepNone, 0)
	defer img.Release()
	return string(read(t, img, "db"))
}

func TestFailedSyncIsNotMadeGoodByTheNext(t *testing.T) {
	m, f := newMem(t)
	m.SetLoss(vfs.LoseLater, 0)
	write(t, f, []byte("old"), 0)
	require.NoError(t, f.Datasync())
	write(t, f, []byte("new"), 0)
	failNext(m, vfs.OpDatasync, syscall.EIO)
	require.ErrorIs(t, f.Datasync(), syscall.EIO)
	m.OnOp(nil)
	require.Equal(t, "new", string(content(t, f)), "still in the cache")
	require.NoError(t, f.Datasync(), "and clean")
	require.Equal(t, "old", sureOf(t, m))
	require.False(t, m.Synced("db", 0, 3))

	clone := m.Clone()
	defer clone.Release()
	require.Equal(t, "new", string(read(t, clone, "db")))
	require.Equal(t, "old", sureOf(t, clone))

	// Writing other pages does not change that; writing the same page again does.
	write(t, f, []byte("far"), 2*page)
	require.NoError(t, f.Datasync())
	require.Equal(t, "old", sureOf(t, m)[:3])
	require.Equal(t, "far", sureOf(t, m)[2*page:])
	write(t, f, []byte("next"), sector)
	require.NoError(t, f.Datasync())
	require.Equal(t, "new", sureOf(t, m)[:3])
	require.True(t, m.Synced("db", 0, 3*page))
}

// TestFailedSyncDropsPages: a failed sync was to write some pages. Reads and mappings show for these pages what the
// device has, either at once or later, and from then on it does not change again.
func TestFailedSyncDropsPages(t *testing.T) {
	for _, loss := range []vfs.Loss{vfs.LoseAll, vfs.LoseSome, vfs.LoseLater} {
		m, f := newMem(t)
		m.SetLoss(loss, 7)
		const n = 64
		write(t, f, pages('a', n), 0)
		require.NoError(t, f.Datasync())
		mapped, err := f.Map(0, n*page)
		require.NoError(t, err)
		write(t, f, bytes.Repeat([]byte{0xFE}, n/2*page), 0)
		write(t, f, bytes.Repeat([]byte{0xFF}, n/2*page), 0)
		write(t, f, pages('d', 1), n*page) // past the end
		m.OnOp(func(op vfs.Op) error {
			if op.Kind != vfs.OpDatasync {
				return nil
			}
			write(t, f, []byte("in flight"), 0)
			return syscall.EIO
		})
		require.ErrorIs(t, f.Datasync(), syscall.EIO)
		m.OnOp(nil)
		require.Equal(t, "in flight", string(mapped[:9]), "written since the sync began: dirty still")
		was := pages('a', n)
		count := func() (old, now int) {
			for i := 1; i < n/2; i++ {
				switch mapped[i*page] {
				case was[i*page]:
					old++
				case 0xFF:
					now++
				}
			}
			require.Equal(t, n/2-1, old+now, "never what came between")
			require.True(t, bytes.Equal(mapped[n/2*page:], was[n/2*page:]), "what was durable stays")
			return old, now
		}
		old, now := count()
		require.Equal(t, loss == vfs.LoseAll, now == 0)
		require.Equal(t, loss == vfs.LoseLater, old == 0)
		if loss == vfs.LoseAll {
			require.Zero(t, content(t, f)[n*page])
			require.True(t, m.Synced("db", page, n*page))
		}
		clone := m.Clone()
		m.Evict()
		_, left := count()
		require.Equal(t, loss == vfs.LoseSome, left > 0, "some was written before the sync failed")
		require.Less(t, left, max(now, 1))
		img := m.Crash(vfs.KeepNone, 0)
		require.True(t, bytes.Equal(mapped[page:], read(t, img, "db")[page:n*page]), "that is what the device has")
		img.Release()
		clone.Evict()
		require.True(t, bytes.Equal(content(t, f), read(t, clone, "db")))
		clone.Release()
	}
}

func TestFailedSyncLosesSize(t *testing.T) {
	m, f := newMem(t)
	m.SetLoss(vfs.LoseLater, 0)
	write(t, f, []byte("new"), 0)
	failNext(m, vfs.OpDatasync, syscall.EIO)
	require.Error(t, f.Datasync())
	m.OnOp(nil)
	require.NoError(t, f.Datasync())
	require.Equal(t, "", sureOf(t, m))
	require.NoError(t, f.Truncate(2))
	require.NoError(t, f.Datasync())
	require.Equal(t, "ne", sureOf(t, m))
}

func TestFailedWriteOutSticks(t *testing.T) {
	m, f := newMem(t)
	write(t, f, []byte("abc"), 0)
	require.NoError(t, f.WriteOut(0, 3, true))
	require.Equal(t, "", sureOf(t, m), "promises nothing")
	failNext(m, vfs.OpWriteOut, syscall.EIO)
	require.ErrorIs(t, f.WriteOut(0, 3, true), syscall.EIO)
	m.OnOp(nil)
	require.NoError(t, create(t, m, "db").Datasync(), "another handle need not hear of it")
	require.Equal(t, "", sureOf(t, m))
	require.ErrorIs(t, f.Datasync(), syscall.EIO)
	require.ErrorIs(t, f.Datasync(), syscall.EIO)
	require.Equal(t, "", sureOf(t, m))
}

// TestSyncInFlight writes during a sync.
func TestSyncInFlight(t *testing.T) {
	m, f := newMem(t)
	write(t, f, []byte("11"), 0)
	m.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync {
			require.Equal(t, "", sureOf(t, m), "nothing is promised yet")
			write(t, f, []byte("2"), 1)
			write(t, f, []byte("3"), 5*page)
		}
		return nil
	})
	require.NoError(t, f.Datasync())
	m.OnOp(nil)
	require.Equal(t, "11", sureOf(t, m))
	require.True(t, m.Synced("db", page, page))
	require.False(t, m.Synced("db", 0, 1))
	m.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync {
			return f.Truncate(6 * page)
		}
		return nil
	})
	require.NoError(t, f.Datasync())
	m.OnOp(nil)
	require.Equal(t, "12", sureOf(t, m)[:2])
	require.Len(t, sureOf(t, m), 5*page+1)
}

// TestFailedSyncInFlight writes during a sync that fails. The pages of these writes are still dirty.
func TestFailedSyncInFlight(t *testing.T) {
	m, f := newMem(t)
	write(t, f, []byte("1"), 0)
	m.OnOp(func(op vfs.Op) error {
		if op.Kind != vfs.OpDatasync {
			return nil
		}
		write(t, f, []byte("22"), 0) // its first change also changes the size
		return syscall.EIO
	})
	require.ErrorIs(t, f.Datasync(), syscall.EIO)
	m.OnOp(nil)
	require.Equal(t, "", sureOf(t, m))
	require.NoError(t, f.Datasync())
	require.Equal(t, "22", sureOf(t, m))
}

func TestSyncDirInFlight(t *testing.T) {
	m, _ := newMem(t)
	m.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpSyncDir {
			return m.Remove("db")
		}
		return nil
	})
	require.NoError(t, m.SyncDir("db"))
	require.Equal(t, 1, m.Units())
}

func TestHookSeesAndRefuses(t *testing.T) {
	m, f := newMem(t)
	before := m.Ops()
	var seen []vfs.Op
	m.OnOp(func(op vfs.Op) error {
		seen = append(seen, op)
		return nil
	})
	calls := []func() error{
		func() error { _, err := f.WriteAt([]byte("abc"), 5); return err },
		func() error { return f.WriteVec([][]byte{{1}, {2, 3}}, 8) },
		f.Datasync,
		func() error { return f.WriteOut(0, 4096, true) },
		func() error { return f.Allocate(0, 8192) },
		func() error { return f.Punch(4096, 4096) },
		func() error { return f.Truncate(6) },
		func() error { _, err := f.Map(0, 4096); return err },
		func() error { return m.SyncDir("db") },
		func() error { g, err := m.Open("other", os.O_RDWR|os.O_CREATE, 0); _ = g; return err },
		func() error { return m.Remove("other") },
	}
	for _, call := range calls {
		require.NoError(t, call())
	}
	want := []vfs.Op{
		{vfs.OpWrite, "db", 5, 3, 0}, {vfs.OpWriteVec, "db", 8, 3, 1}, {vfs.OpDatasync, "db", 0, 0, 2},
		{vfs.OpWriteOut, "db", 0, 4096, 3}, {vfs.OpAllocate, "db", 0, 8192, 4}, {vfs.OpPunch, "db", 4096, 4096, 5},
		{vfs.OpTruncate, "db", 6, 0, 6}, {vfs.OpMap, "db", 0, 4096, 7}, {vfs.OpSyncDir, "db", 0, 0, 8},
		{vfs.OpCreate, "other", 0, 0, 9}, {vfs.OpRemove, "other", 0, 0, 10},
	}
	for i := range want {
		want[i].Index += before
	}
	require.Equal(t, want, seen)
	require.Equal(t, before+len(want), m.Ops())
	require.Equal(t, "#7 writevec db [8,+3)", vfs.Op{Kind: vfs.OpWriteVec, Name: "db", Off: 8, Len: 3, Index: 7}.String())

	was := string(content(t, f))
	boom := errors.New("boom")
	m.OnOp(func(vfs.Op) error { return boom })
	for i, call := range calls {
		require.ErrorIs(t, call(), boom, "%v", want[i])
	}
	require.Equal(t, was, string(content(t, f)))
	require.Nil(t, read(t, m, "other"))
}

func TestShortWrite(t *testing.T) {
	m, f := newMem(t)
	short := &vfs.ShortWrite{N: 600, Err: syscall.ENOSPC}
	m.OnOp(func(op vfs.Op) error { return short })
	n, err := f.WriteAt(pages('a', 1), 0)
	require.Equal(t, 600, n)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, string(pages('a', 1)[:600]), string(content(t, f)))
	err = f.WriteVec([][]byte{pages('b', 1)[:500], pages('c', 1)[:500]}, 0)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, "bbccca"[:5], string(content(t, f)[498:503]))
	short.N = 1 << 40
	n, err = f.WriteAt([]byte("xyz"), 0)
	require.Equal(t, 3, n)
	require.Error(t, err)
}

func TestMaxBytes(t *testing.T) {
	m, f := newMem(t)
	m.SetMaxBytes(4 * page)
	write(t, f, pages('a', 1), 2*page) // block 2; holes are free
	n, err := f.WriteAt(pages('a', 6), 0)
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 4*page, n)
	write(t, f, pages('b', 4), 0)
	require.ErrorIs(t, f.WriteVec([][]byte{{1}}, 4*page), syscall.ENOSPC)
	require.NoError(t, f.Punch(page, page))
	require.ErrorIs(t, f.Allocate(4*page, 2*page), syscall.ENOSPC)
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 5*page, size, "part was allocated")
	require.NoError(t, f.Truncate(2*page))
	other := create(t, m, "other")
	write(t, other, pages('a', 3), 0)
	require.ErrorIs(t, f.WriteVec([][]byte{{1}}, page), vfs.ErrNoSpace)

	img := m.Crash(vfs.KeepAll, 0)
	defer img.Release()
	require.ErrorIs(t, create(t, img, "db").WriteVec([][]byte{{1}}, page), vfs.ErrNoSpace)

	require.NoError(t, m.Remove("other"))
	require.ErrorIs(t, f.WriteVec([][]byte{{1}}, page), vfs.ErrNoSpace, "still open")
	require.NoError(t, other.Close())
	write(t, f, pages('a', 3), page)
}

func TestGuard(t *testing.T) {
	m, f := newMem(t)
	write(t, f, pages('a', 2), 0)
	require.NoError(t, f.Datasync())
	write(t, f, pages('b', 2), 2*page)
	bad := errors.New("rewrites durable data")
	m.Guard(func(name string, off, n int64) error {
		require.Equal(t, "db", name)
		if off < 2*page && m.Synced(name, off, n) {
			return bad
		}
		return nil
	})
	_, err := f.WriteAt([]byte("x"), 2*page-1)
	require.ErrorIs(t, err, bad)
	require.ErrorIs(t, f.WriteVec([][]byte{{1}}, 0), bad)
	write(t, f, []byte("x"), 2*page)
	require.Equal(t, string(pages('a', 2)), string(content(t, f))[:2*page])
}

// TestConcurrentUse is for the race detector.
func TestConcurrentUse(t *testing.T) {
	m, f := newMem(t)
	m.OnOp(func(vfs.Op) error { return nil })
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 100 {
				off := int64((worker*7+i)%16) * page
				_, err := f.WriteAt(pages(byte(i), 1), off)
				if err == nil && i%3 == 0 {
					err = f.Datasync()
				}
				if err == nil {
					_, err = f.ReadAt(make([]byte, page), 0)
				}
				if err != nil && off == 0 {
					t.Error(err)
				}
				if i%10 == 0 {
					img := m.Crash(vfs.KeepRandomSectors, uint64(i))
					img.Release()
				}
			}
		})
	}
	all.Wait()
}

func TestMemFree(t *testing.T) {
	m := vfs.NewMem(0)
	defer m.Release()
	f, err := m.Open("a", os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	free := func() int64 {
		n, err := f.Free()
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, math.MaxInt64, free())
	require.NoError(t, f.Allocate(0, 3<<20))
	m.SetMaxBytes(4 << 20)
	require.EqualValues(t, 1<<20, free())
	m.SetMaxBytes(2 << 20)
	require.Zero(t, free())
}
