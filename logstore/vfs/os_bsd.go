//go:build unix && !linux && !darwin

package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

func (f *osFile) Datasync() error {
	err := f.control(func(fd uintptr) error { return unix.Fsync(int(fd)) })
	return pathError("datasync", f.Name(), err)
}

func (f *osFile) Punch(off, n int64) error {
	return rangeError("punch", f.Name(), off, n, errors.ErrUnsupported)
}
