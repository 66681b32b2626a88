package vfs

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Datasync asks the disk to write its cache too, which fsync does not do on Darwin. Network file systems do not
// support that call.
func (f *osFile) Datasync() error {
	err := f.control(func(fd uintptr) error {
		_, err := unix.FcntlInt(fd, unix.F_FULLFSYNC, 0)
		if errors.Is(err, unix.ENOTSUP) {
			return unix.Fsync(int(fd))
		}
		return err
	})
	return pathError("datasync", f.Name(), err)
}

// punchHole is the kernel's fpunchhole_t.
type punchHole struct {
	flags, reserved uint32
	offset, length  int64
}

func (f *osFile) Punch(off, n int64) error {
	if err := checkRange(off, n); err != nil {
		return rangeError("punch", f.Name(), off, n, err)
	}
	hole := punchHole{offset: off, length: n}
	err := f.control(func(fd uintptr) error {
		_, _, errno := unix.Syscall(unix.SYS_FCNTL, fd, unix.F_PUNCHHOLE, uintptr(unsafe.Pointer(&hole)))
		if errno != 0 {
			return errno
		}
		return nil
	})
	if errors.Is(err, unix.ENOTSUP) {
		err = errors.ErrUnsupported
	}
	return rangeError("punch", f.Name(), off, n, err)
}
