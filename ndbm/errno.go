//go:build linux

package main

import (
	"errors"
	"syscall"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

var (
	errTooLarge = errors.New("key and value are longer than 4 GiB together")
	errAgain    = errors.New("changed meanwhile")
	errNoHandle = errors.New("no such handle")
	errPanic    = errors.New("a panic in the engine")
	errLeft     = errors.New("a call was left and never ended")
)

// errnos are the errors with an errno of their own. Other errors have that of the system error they wrap, or EIO.
var errnos = []struct {
	err error
	no  syscall.Errno
}{
	{errBusy, syscall.EBUSY}, // the front library waits, and returns EAGAIN if it has waited long enough
	{errAgain, syscall.EBUSY},
	{errTooLarge, syscall.EOVERFLOW},
	{errNoHandle, syscall.EBADF},
	{errLeft, syscall.EDEADLK},
	{mvcc.ErrClosed, syscall.EBADF},
	{mvcc.ErrConflict, syscall.EBUSY},
	{vfs.ErrLocked, syscall.EBUSY},
	{logstore.ErrReadOnly, syscall.EPERM},
	{logstore.ErrFull, syscall.ENOSPC},
	{logstore.ErrFormat, syscall.EINVAL},
	{logstore.ErrCorrupt, syscall.EIO},
	{btree.ErrMalformed, syscall.EIO},
}

// errno returns the errno of an error for C programs.
func errno(err error) syscall.Errno {
	for _, e := range errnos {
		if errors.Is(err, e.err) {
			return e.no
		}
	}
	var no syscall.Errno
	if errors.As(err, &no) && no != 0 {
		return no
	}
	return syscall.EIO
}
