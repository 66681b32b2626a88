package vfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// windowFileSystems are file systems that keep the space of a page that was written, so that a store to the
// page cannot run out of space. Others, which write to a new place each time, may become full under a mapping,
// and the store then raises a signal.
var windowFileSystems = [...]int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC}

// timeTick is the finest modification time that a file system without finer times has: one tick of a kernel
// clock at 1,000 Hz.
const timeTick = time.Millisecond

type osWindow struct {
	f      *osFile
	b      mmap.MMap
	off    int64
	ticked time.Time // when Due was last true
}

func (f *osFile) Window(off, n int64) (Window, error) {
	err := checkRange(off, n)
	if err == nil {
		err = f.control(func(fd uintptr) error {
			var st unix.Statfs_t
			if err := ignoringEINTR(func() error { return unix.Fstatfs(int(fd), &st) }); err != nil {
				return err
			}
			for _, known := range windowFileSystems {
				if int64(st.Type) == known {
					return nil
				}
			}
			return errors.ErrUnsupported
		})
	}
	if err != nil {
		return nil, rangeError("map", f.Name(), off, n, err)
	}
	b, err := mmap.MapRegion(f.f, int(n), mmap.RDWR, 0, off)
	if err == nil {
		// A forked child with the window would keep the file's open description, and with it the lock.
		if err = unix.Madvise(b, unix.MADV_DONTFORK); err != nil {
			b.Unmap()
		}
	}
	if err != nil {
		return nil, rangeError("map", f.Name(), off, n, err)
	}
	return &osWindow{f: f, b: b, off: off, ticked: time.Now()}, nil
}

func (w *osWindow) Store(p []byte, off int64, word uint64, at int64) (err error) {
	to := w.b[off-w.off:][:len(p)]
	place := w.b[at-w.off:][:8]
	if at%8 != 0 {
		panic("vfs: a word across a boundary")
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer w.faulted(off, int64(len(p)), &err)
	copy(to, p)
	var bytes [8]byte
	binary.LittleEndian.PutUint64(bytes[:], word)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&place[0])), binary.NativeEndian.Uint64(bytes[:])) // every observer sees this store after the copy
	return nil
}

// faulted turns a fault into an error: the file was cut short, or its device cannot be read.
func (w *osWindow) faulted(off, n int64, err *error) {
	switch r := recover().(type) {
	case nil:
	case interface{ Addr() uintptr }:
		*err = rangeError("store", w.f.Name(), off, n, fmt.Errorf("fault: %v", r))
	default:
		panic(r)
	}
}

func (w *osWindow) Due() bool {
	if time.Since(w.ticked) < timeTick {
		return false
	}
	w.ticked = time.Now()
	return true
}

func (w *osWindow) Close() error {
	return pathError("unmap", w.f.Name(), w.b.Unmap())
}
