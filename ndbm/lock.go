//go:build linux

package main

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"flashdbm/logstore/vfs"
)

// errBusy: another process holds the lock, and has been asked for it.
var errBusy = errors.New("another process is using the database")

// A fileLock is the engine's lock on a file, by which processes take turns.
//
// The lock is on the byte at vfs.LockOffset, far past the end of the file. The byte after it is for requests: a
// process that waits for the lock holds a shared lock on this byte, and the holder of the lock looks whether there
// is one.
//
// Both locks belong to the open file description, so that closing another descriptor of the file in the program
// does not drop them. That does not work for a description that is shared with another process by fork, because
// both would hold the lock. If this process cannot get a description of its own, the locks belong to the process
// (posix); then they are dropped if the program itself opens and closes the .pag file.
type fileLock struct {
	fd        uintptr
	posix     bool
	exclusive bool
	asking    bool // this lock holds the request byte; guarded by the database's mu
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

// release releases the lock.
func (l *fileLock) release() error { return l.set(vfs.LockOffset, unix.F_UNLCK) }

// withdraw withdraws the request for the lock.
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

// conflicts reports whether another process holds a lock that excludes one of this kind.
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
