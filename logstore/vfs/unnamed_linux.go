package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// inMemory returns errors.ErrUnsupported if the kernel has no such files, or a security policy forbids them.
func inMemory(name string) (File, error) {
	fd, err := unix.MemfdCreate("flashdbm", unix.MFD_CLOEXEC)
	if err == unix.ENOSYS || err == unix.EPERM {
		return nil, errors.ErrUnsupported
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return FromDescriptor(uintptr(fd), name)
}
