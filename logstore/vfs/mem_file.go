package vfs

import (
	"cmp"
	"io"
	"math"
	"os"
	"slices"
	"syscall"
)

// memFile is a handle of a Mem file.
type memFile struct {
	mem      *Mem
	ino      *inode
	name     string
	writable bool

	// Guarded by mem.mu.
	closed bool
	locked bool
	lost   error // first error of a WriteOut, as in osFile
}

func (f *memFile) Name() string { return f.name }

// usable is called with the mutex held.
func (f *memFile) usable(write bool) error {
	if f.closed || f.mem.released {
		return os.ErrClosed
	}
	if write && !f.writable {
		return syscall.EBADF
	}
	return nil
}

// do carries out an operation: first the checks and the hook, then fn with the mutex held. fn gets the seq at
// which the operation started.
func (f *memFile) do(op Op, write bool, fn func(started uint64) error) error {
	if err := checkRange(op.Off, op.Len); err != nil {
		return err
	}
	f.mem.mu.Lock()
	err := f.usable(write)
	f.mem.mu.Unlock()
	if err != nil {
		return err
	}
	op.Name = f.name
	started, err := f.mem.begin(op)
	if err != nil {
		return err
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usable(write); err != nil {
		return err
	}
	return fn(started)
}

// look is do for operations that the hook does not see.
func (f *memFile) look(fn func()) error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usable(false); err != nil {
		return err
	}
	fn()
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, rangeError("read", f.name, off, int64(len(p)), errRange)
	}
	err = f.look(func() {
		if off < f.ino.size {
			n = copy(p, f.ino.arena.buf[off:f.ino.size])
		}
	})
	if err != nil {
		return 0, rangeError("read", f.name, off, int64(len(p)), err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (n int, err error) {
	n, err = f.write(OpWrite, p, off)
	return n, rangeError("write", f.name, off, int64(len(p)), err)
}

func (f *memFile) WriteVec(bufs [][]byte, off int64) error {
	p := joinVec(bufs)
	_, err := f.write(OpWriteVec, p, off)
	return rangeError("write", f.name, off, int64(len(p)), err)
}

func (f *memFile) write(kind Kind, p []byte, off int64) (n int, err error) {
	op := Op{Kind: kind, Off: off, Len: int64(len(p))}
	if err := f.allowed(op); err != nil {
		return 0, err
	}
	err = f.do(op, true, func(uint64) (err error) {
		n, err = f.ino.write(p, off)
		return err
	})
	if part := shortened(err, p); len(part) > 0 {
		f.look(func() { n, _ = f.ino.write(part, off) })
	}
	return n, err
}

// allowed calls the guard.
func (f *memFile) allowed(op Op) error {
	f.mem.mu.Lock()
	guard := f.mem.guard
	f.mem.mu.Unlock()
	if guard == nil {
		return nil
	}
	return guard(f.name, op.Off, op.Len)
}

func (f *memFile) Datasync() error {
	var alloc bitset
	var lost error
	err := f.look(func() { alloc, lost = slices.Clone(f.ino.alloc), f.lost })
	if err != nil {
		return pathError("datasync", f.name, err)
	}
	started, err := f.mem.begin(Op{Kind: OpDatasync, Name: f.name})
	if err == nil {
		err = lost
	}
	closed := f.look(func() {
		f.ino.history.synced(started, err == nil, alloc)
		if err != nil {
			f.ino.lose()
		}
	})
	return pathError("datasync", f.name, cmp.Or(err, closed))
}

func (f *memFile) WriteOut(off, n int64, wait bool) error {
	refused := checkRange(off, n)
	err := cmp.Or(refused, f.do(Op{Kind: OpWriteOut, Off: off, Len: n}, false, func(uint64) error { return nil }))
	if err != nil && refused == nil {
		f.look(func() {
			f.lost = cmp.Or(f.lost, err)
			f.ino.history.synced(f.mem.seq, false, nil)
			f.ino.lose()
		})
	}
	return rangeError("write-out", f.name, off, n, err)
}

func (f *memFile) Allocate(off, n int64) error {
	err := f.do(Op{Kind: OpAllocate, Off: off, Len: n}, true, func(uint64) error {
		if n == 0 {
			return syscall.EINVAL
		}
		return f.ino.allocateRange(off, n)
	})
	return rangeError("allocate", f.name, off, n, err)
}

func (f *memFile) Punch(off, n int64) error {
	err := f.do(Op{Kind: OpPunch, Off: off, Len: n}, true, func(uint64) error {
		if n == 0 {
			return syscall.EINVAL
		}
		f.ino.zero(off, min(off+n, int64(len(f.ino.arena.buf))))
		return nil
	})
	return rangeError("punch", f.name, off, n, err)
}

func (f *memFile) Truncate(size int64) error {
	err := f.do(Op{Kind: OpTruncate, Off: size}, true, func(uint64) error { return f.ino.truncate(size) })
	return rangeError("truncate", f.name, size, 0, err)
}

func (f *memFile) Size() (size int64, err error) {
	err = f.look(func() { size = f.ino.size })
	return size, pathError("size", f.name, err)
}

func (f *memFile) Blocks() (n int64, err error) {
	err = f.look(func() { n = f.ino.alloc.count() * blockSize })
	return n, pathError("stat", f.name, err)
}

// NextData implements Sparse.
func (f *memFile) NextData(off int64) (next int64, err error) {
	err = f.look(func() {
		next = max(off, min(f.ino.size, f.ino.alloc.next(off/blockSize, (f.ino.size+blockSize-1)/blockSize, true)*blockSize))
	})
	return next, rangeError("seek data", f.name, off, 0, err)
}

func (f *memFile) Free() (n int64, err error) {
	err = f.look(func() {
		if n = math.MaxInt64; f.mem.maxBytes > 0 {
			n = max(0, f.mem.maxBytes-f.mem.usedBlocks*blockSize)
		}
	})
	return n, pathError("free space", f.name, err)
}

func (f *memFile) Map(off, n int64) (b []byte, err error) { return f.mapped(OpMap, off, n) }

func (f *memFile) mapped(kind Kind, off, n int64) (b []byte, err error) {
	err = f.do(Op{Kind: kind, Off: off, Len: n}, kind == OpWindow, func(uint64) error {
		switch {
		case n == 0 || off%int64(os.Getpagesize()) != 0:
			return syscall.EINVAL
		case off+n > int64(len(f.ino.arena.buf)):
			return syscall.ENOMEM
		}
		b = f.ino.arena.buf[off : off+n : off+n]
		return nil
	})
	return b, rangeError("map", f.name, off, n, err)
}

// Unmap has nothing to free: the arena lives as long as the Mem.
func (f *memFile) Unmap([]byte) error { return nil }

func (f *memFile) Close() error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usable(false); err != nil {
		return pathError("close", f.name, err)
	}
	f.unlock()
	f.closed = true
	f.ino.handles--
	f.ino.freeIfGone()
	return nil
}
