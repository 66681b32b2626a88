package vfs

import (
	"errors"
	"io"
	"math"

	"golang.org/x/sys/unix"
)

// iovMax is the largest number of buffers that the kernel takes in one call.
const iovMax = 1024

// ignoringEINTR repeats a call that a signal interrupted before it had an effect.
func ignoringEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func (f *osFile) WriteVec(bufs [][]byte, off int64) error {
	rest := make([][]byte, 0, len(bufs))
	for _, b := range bufs {
		if len(b) > 0 {
			rest = append(rest, b)
		}
	}
	for len(rest) > 0 {
		head := rest[:min(len(rest), iovMax)]
		var n int
		err := f.control(func(fd uintptr) error {
			return ignoringEINTR(func() (err error) {
				n, err = unix.Pwritev(int(fd), head, off)
				return err
			})
		})
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return rangeError("write", f.Name(), off, vecLen(rest), err)
		}
		off += int64(n)
		rest = skipVec(rest, n)
	}
	return nil
}

// Datasync does not repeat an interrupted call. The interruption may have
// hidden a failed write-back, which the kernel would then not report again.
func (f *osFile) Datasync() error {
	if lost := f.lost.Load(); lost != nil {
		return pathError("datasync", f.Name(), *lost)
	}
	err := f.control(func(fd uintptr) error { return unix.Fdatasync(int(fd)) })
	return pathError("datasync", f.Name(), err)
}

func (f *osFile) WriteOut(off, n int64, wait bool) error {
	if err := checkRange(off, n); err != nil {
		return rangeError("write-out", f.Name(), off, n, err)
	}
	if n == 0 {
		return nil // the kernel takes 0 for everything up to the end of the file
	}
	flags := unix.SYNC_FILE_RANGE_WRITE
	if wait {
		flags |= unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	}
	err := f.control(func(fd uintptr) error { return unix.SyncFileRange(int(fd), off, n, flags) })
	if err == nil || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	f.lost.CompareAndSwap(nil, &err)
	return rangeError("write-out", f.Name(), off, n, err)
}

func (f *osFile) Allocate(off, n int64) error {
	if err := checkRange(off, n); err != nil {
		return rangeError("allocate", f.Name(), off, n, err)
	}
	err := f.fallocate(0, off, n)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return f.writeZeros(off, n)
	}
	return rangeError("allocate", f.Name(), off, n, err)
}

func (f *osFile) Punch(off, n int64) error {
	if err := checkRange(off, n); err != nil {
		return rangeError("punch", f.Name(), off, n, err)
	}
	err := f.fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = errors.ErrUnsupported
	}
	return rangeError("punch", f.Name(), off, n, err)
}

func (f *osFile) fallocate(mode uint32, off, n int64) error {
	return f.control(func(fd uintptr) error {
		return ignoringEINTR(func() error { return unix.Fallocate(int(fd), mode, off, n) })
	})
}

func (f *osFile) Free() (n int64, err error) {
	err = f.control(func(fd uintptr) error {
		var st unix.Statfs_t
		if err := ignoringEINTR(func() error { return unix.Fstatfs(int(fd), &st) }); err != nil {
			return err
		}
		if st.Blocks == 0 { // a file system in memory without a limit
			n = math.MaxInt64
			return nil
		}
		size := max(uint64(st.Frsize), 1)
		n = int64(min(st.Bavail, math.MaxInt64/size) * size)
		return nil
	})
	return n, pathError("free space", f.Name(), err)
}

// Advise implements Advised. tmpfs drops no pages, because they are on no device.
func (f *osFile) Advise(off, n int64, a Advice) error {
	advice := unix.FADV_WILLNEED
	if a == DontNeed {
		advice = unix.FADV_DONTNEED
	}
	err := f.control(func(fd uintptr) error { return unix.Fadvise(int(fd), off, n, advice) })
	return rangeError("advise", f.Name(), off, n, err)
}
