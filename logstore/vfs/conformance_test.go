package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// onEach runs a test on every implementation, with the name of a file that does not exist.
func onEach(t *testing.T, test func(t *testing.T, fsys vfs.FS, name string)) {
	none := func(vfs.Op) error { return nil }
	newMem := func(t *testing.T) *vfs.Mem {
		m := vfs.NewMem(0)
		t.Cleanup(m.Release)
		return m
	}
	t.Run("os", func(t *testing.T) { test(t, vfs.OS(), filepath.Join(t.TempDir(), "f")) })
	t.Run("mem", func(t *testing.T) { test(t, newMem(t), "mem.db") })
	t.Run("faulty os", func(t *testing.T) { test(t, vfs.Faulty(vfs.OS(), none), filepath.Join(t.TempDir(), "f")) })
	t.Run("faulty mem", func(t *testing.T) { test(t, vfs.Faulty(newMem(t), none), "mem.db") })
}

func open(t testing.TB, fsys vfs.FS, name string, flag int) vfs.File {
	t.Helper()
	f, err := fsys.Open(name, flag, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func create(t testing.TB, fsys vfs.FS, name string) vfs.File {
	t.Helper()
	return open(t, fsys, name, os.O_RDWR|os.O_CREATE)
}

func write(t testing.TB, f vfs.File, p []byte, off int64) {
	t.Helper()
	n, err := f.WriteAt(p, off)
	require.NoError(t, err)
	require.Equal(t, len(p), n)
}

// content returns all bytes of a file.
func content(t testing.TB, f vfs.File) []byte {
	t.Helper()
	size, err := f.Size()
	require.NoError(t, err)
	p := make([]byte, size)
	n, err := f.ReadAt(p, 0)
	require.NoError(t, err)
	require.Equal(t, len(p), n)
	return p
}

func TestOpen(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, name string) {
		_, err := fsys.Open(name, os.O_RDWR, 0)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorContains(t, err, name)
		_, err = fsys.Open(name, os.O_WRONLY|os.O_CREATE, 0o600)
		require.Error(t, err)
		_, err = fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
		require.Error(t, err)

		f, err := fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		require.NoError(t, err)
		require.Equal(t, name, f.Name())
		write(t, f, []byte("abc"), 0)
		require.NoError(t, fsys.SyncDir(name))
		_, err = fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		require.ErrorIs(t, err, fs.ErrExist)

		again := open(t, fsys, name, os.O_RDWR|os.O_CREATE)
		require.Equal(t, "abc", string(content(t, again)))

		require.NoError(t, f.Close())
		require.ErrorIs(t, f.Close(), os.ErrClosed)
		require.NoError(t, fsys.Remove(name))
		require.NoError(t, fsys.SyncDir(name))
		require.ErrorIs(t, fsys.Remove(name), fs.ErrNotExist)
		_, err = fsys.Open(name, os.O_RDONLY, 0)
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

func TestClosedAndReadOnly(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, name string) {
		w := create(t, fsys, name)
		write(t, w, []byte("abc"), 0)
		r := open(t, fsys, name, os.O_RDONLY)
		require.Equal(t, "abc", string(content(t, r)))
		changes := map[string]func(f vfs.File) error{
			"write":    func(f vfs.File) error { _, err := f.WriteAt([]byte("x"), 0); return err },
			"vec":      func(f vfs.File) error { return f.WriteVec([][]byte{{1}, {2}}, 0) },
			"allocate": func(f vfs.File) error { return f.Allocate(0, 4096) },
			"punch":    func(f vfs.File) error { return f.Punch(0, 4096) },
			"truncate": func(f vfs.File) error { return f.Truncate(1) },
			"lock":     func(f vfs.File) error { return f.Lock(true) },
		}
		looks := map[string]func(f vfs.File) error{
			"read":     func(f vfs.File) error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
			"datasync": func(f vfs.File) error { return f.Datasync() },
			"writeout": func(f vfs.File) error { return f.WriteOut(0, 1, true) },
			"size":     func(f vfs.File) error { _, err := f.Size(); return err },
			"blocks":   func(f vfs.File) error { _, err := f.Blocks(); return err },
			"free":     func(f vfs.File) error { _, err := f.Free(); return err },
			"shared":   func(f vfs.File) error { return f.Lock(false) },
		}
		for what, change := range changes {
			require.Error(t, change(r), what)
		}
		require.Equal(t, "abc", string(content(t, r)))
		for what, look := range looks {
			require.NoError(t, look(r), what)
		}
		require.NoError(t, w.Close())
		for what, change := range changes {
			require.ErrorIs(t, change(w), os.ErrClosed, what)
		}
		for what, look := range looks {
			require.ErrorIs(t, look(w), os.ErrClosed, what)
		}
	})
}

func TestReadAt(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, name string) {
		f := create(t, fsys, name)
		write(t, f, []byte("hello"), 10000)
		tests := []struct {
			off  int64
			len  int
			want string
			err  error
		}{
			{10000, 5, "hello", nil},
			{9998, 4, "\x00\x00he", nil},
			{10003, 5, "lo", io.EOF},
			{10005, 1, "", io.EOF},
			{1 << 40, 1, "", io.EOF},
			{0, 3, "\x00\x00\x00", nil},
			{10005, 0, "", nil},
		}
		for _, test := range tests {
			p := make([]byte, test.len)
			n, err := f.ReadAt(p, test.off)
			require.True(t, err == test.err, "at %d: %v", test.off, err)
			require.Equal(t, test.want, string(p[:n]))
		}
	})
}

func TestBadRanges(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, name string) {
		f := create(t, fsys, name)
		write(t, f, []byte("abc"), 0)
		for _, r := range []struct{ off, n int64 }{{-1, 1}, {-4096, 4096}, {0, -1}, {math.MaxInt64, 1}, {1 << 62, 1 << 62}} {
			require.Error(t, f.Allocate(r.off, r.n), r)
			require.Error(t, f.Punch(r.off, r.n), r)
			require.Error(t, f.WriteOut(r.off, r.n, true), r)
			_, err := f.Map(r.off, r.n)
			require.Error(t, err, r)
		}
		for _, off := range []int64{-1, 1 << 62, math.MaxInt64} {
			n, err := f.WriteAt([]byte("x"), off)
			require.Error(t, err, off)
			require.Zero(t, n)
			require.Error(t, f.WriteVec([][]byte{{1}, {2}}, off), off)
			require.Error(t, f.Truncate(cond(off < 0, off, 1<<62)), off)
		}
		_, err := f.ReadAt(make([]byte, 1), -1)
		require.Error(t, err)
		_, err = f.Map(0, 0)
		require.Error(t, err)
		_, err = f.Map(17, 4096)
		require.Error(t, err)
		require.Equal(t, "abc", string(content(t, f)))
	})
}

func cond[T any](c bool, a, b T) T {
	if c {
		return a
	}
	return b
}

func TestErrorText(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, name string) {
		f := create(t, fsys, name)
		_, err := f.WriteAt([]byte("xy"), 1<<62)
		var pathErr *fs.PathError
		require.ErrorAs(t, err, &pathErr)
		require.Equal(t, name, pathErr.Path)
		require.ErrorContains(t, err, "write of 2 bytes at offset 4611686018427387904")
		require.Equal(t, 1, strings.Count(err.Error(), name), err.Error())
	})
}

func TestWriteVec(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, name string) {
		for _, count := range []int{0, 1, 2, 1023, 1024, 1025, 3000} {
			f := create(t, fsys, name)
			require.NoError(t, f.Truncate(0))
			var bufs [][]byte
			want := make([]byte, 777)
			for i := range count {
				b := bytes.Repeat([]byte{byte(i + 1)}, i%5) // empty ones too
				bufs = append(bufs, b)
				want = append(want, b...)
			}
			kept := append([][]byte(nil), bufs...)
			write(t, f, want[:777], 0)
			require.NoError(t, f.WriteVec(bufs, 777))
			require.True(t, bytes.Equal(want, content(t, f)), count)
			require.Equal(t, kept, bufs, "the caller's slice is changed")
			require.NoError(t, f.Close())
		}
	})
}

func TestMapShowsWrites(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, name string) {
		f := create(t, fsys, name)
		require.NoError(t, f.Truncate(1<<20))
		page := int64(os.Getpagesize())
		b, err := f.Map(page, 1<<20-page)
		require.NoError(t, err)
		require.Len(t, b, int(1<<20-page))
		write(t, f, []byte("seen at once"), page+100)
		require.Equal(t, "seen at once", string(b[100:112]))
		require.NoError(t, f.Close())
		require.Equal(t, "seen at once", string(b[100:112]))
		require.NoError(t, f.Unmap(b))
	})
}

func TestMapPastEnd(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapping cannot reach past the end on Windows")
	}
	onEach(t, func(t *testing.T, fsys vfs.FS, name string) {
		f := create(t, fsys, name)
		write(t, f, make([]byte, 4096), 0)
		b, err := f.Map(0, 64<<20)
		require.NoError(t, err)
		require.NoError(t, f.Allocate(4096, 1<<20))
		write(t, f, []byte("grown"), 1<<20)
		require.Equal(t, "grown", string(b[1<<20:1<<20+5]))
		require.NoError(t, f.Unmap(b))
	})
}

func TestSpace(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, name string) {
		f := create(t, fsys, name)
		blocks := func() int64 {
			n, err := f.Blocks()
			require.NoError(t, err)
			return n
		}
		require.NoError(t, f.Truncate(1<<20))
		require.Zero(t, blocks())
		require.NoError(t, f.Allocate(0, 1<<20))
		require.EqualValues(t, 1<<20, blocks())
		require.NoError(t, f.Allocate(1<<20, 1<<20))
		require.EqualValues(t, 2<<20, blocks())
		size, err := f.Size()
		require.NoError(t, err)
		require.EqualValues(t, 2<<20, size)
		err = f.Punch(4096, 1<<20)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("no hole punching here")
		}
		require.NoError(t, err)
		require.EqualValues(t, 1<<20, blocks())
		require.Equal(t, make([]byte, 2<<20), content(t, f))
		require.NoError(t, f.Truncate(0))
		require.Zero(t, blocks())
	})
}

// TestNextData: no data is skipped, and a long hole is.
func TestNextData(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, name string) {
		f := create(t, fsys, name)
		require.NoError(t, f.Truncate(100<<20))
		_, err := f.WriteAt([]byte("data"), 50<<20+4090)
		require.NoError(t, err)
		for _, off := range []int64{0, 1, 50 << 20, 50<<20 + 4090, 50<<20 + 4095} {
			next, err := vfs.NextData(f, off)
			require.NoError(t, err)
			require.GreaterOrEqual(t, next, off)
			require.LessOrEqual(t, next, max(off, 50<<20+4090))
			if off == 0 && next > 0 { // else the file system does not know
				require.GreaterOrEqual(t, next, int64(49<<20))
			}
		}
		next, err := vfs.NextData(f, 99<<20)
		require.NoError(t, err)
		require.Contains(t, []int64{99 << 20, 100 << 20}, next)
	})
}

// TestAgainstModel runs random operations on a file and on a slice of bytes.
func TestAgainstModel(t *testing.T) {
	inTurn(t)
	onEach(t, func(t *testing.T, fsys vfs.FS, name string) {
		const limit = 1 << 18
		f := create(t, fsys, name)
		b, err := f.Map(0, limit)
		require.NoError(t, err)
		rng := rand.New(rand.NewPCG(1, 2))
		var model []byte
		grow := func(end int64) {
			if int64(len(model)) < end {
				model = append(model, make([]byte, end-int64(len(model)))...)
			}
		}
		for range cond(testing.Short(), 300, 1500) {
			off := rng.Int64N(limit * 3 / 4)
			n := rng.Int64N(20000)
			if rng.IntN(2) == 0 { // aligned
				off, n = off/4096*4096, (n/4096+1)*4096
			}
			switch rng.IntN(8) {
			case 0, 1, 2:
				p := randomBytes(rng, n)
				write(t, f, p, off)
				if n > 0 {
					grow(off + n)
				}
				copy(model[min(off, int64(len(model))):], p)
			case 3, 4:
				p := randomBytes(rng, n)
				cut := rng.Int64N(n + 1)
				require.NoError(t, f.WriteVec([][]byte{p[:cut], p[cut:]}, off))
				if n > 0 {
					grow(off + n)
				}
				copy(model[min(off, int64(len(model))):], p)
			case 5:
				require.NoError(t, f.Allocate(off, n+1))
				grow(off + n + 1)
			case 6:
				require.NoError(t, f.Punch(off, n+1))
				if off < int64(len(model)) {
					clear(model[off:min(off+n+1, int64(len(model)))])
				}
			case 7:
				require.NoError(t, f.Truncate(off))
				grow(off)
				model = model[:off]
				require.NoError(t, f.WriteOut(0, n, n%2 == 0))
				require.NoError(t, f.Datasync())
			}
			require.True(t, bytes.Equal(model, content(t, f)))
			require.True(t, bytes.Equal(model, b[:len(model)]))
		}
		require.NoError(t, f.Unmap(b))
	})
}

func randomBytes(rng *rand.Rand, n int64) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

func TestLocksOfHandles(t *testing.T) {
	onEach(t, func(t *testing.T, fsys vfs.FS, name string) {
		a, b := create(t, fsys, name), create(t, fsys, name)
		r := open(t, fsys, name, os.O_RDONLY)
		locked := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, vfs.ErrLocked)
			var lockedErr *vfs.LockedError
			require.ErrorAs(t, err, &lockedErr)
			require.Equal(t, name, lockedErr.Path)
		}
		require.NoError(t, a.Unlock(), "unlocking what is not locked")
		require.NoError(t, a.Lock(true))
		locked(b.Lock(true))
		locked(b.Lock(false))
		locked(r.Lock(false))
		err := a.Lock(true)
		require.Error(t, err, "locking twice")
		require.NotErrorIs(t, err, vfs.ErrLocked)
		require.NoError(t, b.Unlock(), "must not touch the lock of a")
		locked(r.Lock(false))

		require.NoError(t, a.Unlock())
		require.NoError(t, r.Lock(false))
		require.NoError(t, b.Lock(false))
		locked(a.Lock(true))
		require.NoError(t, r.Close())
		locked(a.Lock(true))
		require.NoError(t, b.Close())
		require.NoError(t, a.Lock(true))
	})
}
