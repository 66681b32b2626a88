//go:build linux

package main

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"flashdbm/logstore/vfs"
)

// errBusy: the lock is held by another process, which has been asked for it.
var errBusy = errors.New("another process is using the database")

// A fileLock is the engine's lock on a file, with which processes take turns.
//
// It is the byte at vfs.LockOffset, far past the end of the file. The byte behind it is for asking: whoever waits for the lock has a
// shared lock on it, and whoever holds the lock looks whether there is one.
//
// Both belong to the open file description, so that no close in the program drops them. A description that is shared with another
// process by fork will not do for that: the lock would be held by both. Where no description of our own is to be had, the locks belong
// to the process (posix); then a program that itself opens and closes the .pag file drops them.
type fileLock struct {
	fd        uintptr
	posix     bool
	exclusive bool
	asking    bool // we have a lock on the byte for asking; guarded by the database's mu
}

const askOffset = vfs.LockOffset + 1

// acquire takes the lock, or asks for it and returns errBusy.
func (l *fileLock) acquire() error {
	err := l.try()
	if err == errBusy && !l.asking {
		l.asking = l.set(askOffset, unix.F_RDLCK) == nil
	}
	return err
}

// try takes the lock, or returns errBusy.
func (l *fileLock) try() error {
	kind := int16(unix.F_RDLCK)
	if l.exclusive {
		kind = unix.F_WRLCK
	}
	err := l.set(vfs.LockOffset, kind)
	switch {
	case err == nil:
		l.withdraw()
		return nil
	case err != unix.EAGAIN && err != unix.EACCES:
		return err
	}
	return errBusy
}

// release lets the lock go.
func (l *fileLock) release() error { return l.set(vfs.LockOffset, unix.F_UNLCK) }

// withdraw takes back that the lock was asked for.
func (l *fileLock) withdraw() {
	if l.asking {
		l.set(askOffset, unix.F_UNLCK)
		l.asking = false
	}
}

// asked reports whether another process waits for the lock.
func (l *fileLock) asked() bool { return l.conflicts(askOffset, unix.F_WRLCK) }

// held reports whether another process holds the lock for writing.
func (l *fileLock) held() bool { return l.conflicts(vfs.LockOffset, unix.F_RDLCK) }

// conflicts reports whether another process has a lock that excludes one of this kind.
func (l *fileLock) conflicts(off int64, kind int16) bool {
	f := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: off, Len: 1}
	cmd := unix.F_OFD_GETLK
	if l.posix {
		cmd = unix.F_GETLK
	}
	return unix.FcntlFlock(l.fd, cmd, &f) == nil && f.Type != unix.F_UNLCK
}

func (l *fileLock) set(off int64, kind int16) error {
	f := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: off, Len: 1}
	cmd := unix.F_OFD_SETLK
	if l.posix {
		cmd = unix.F_SETLK
	}
	for {
		if err := unix.FcntlFlock(l.fd, cmd, &f); err != unix.EINTR {
			return err
		}
	}
}
