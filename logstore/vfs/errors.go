package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

var (
	// ErrLocked is what every *LockedError is, for errors.Is.
	ErrLocked = errors.New("file is locked by another handle")

	// ErrNoSpace is what an error for want of disk space or quota is, for
	// errors.Is; the errno (ENOSPC, EDQUOT) is still there beneath it.
	ErrNoSpace = errors.New("no space left")

	errFlag     = errors.New("open flag not supported")
	errRegular  = errors.New("not a regular file")
	errHoldLock = errors.New("handle holds the lock already")
	errRange    = errors.New("offset or length out of range")
)

// LockedError tells who holds the lock that [File.Lock] wanted.
type LockedError struct {
	Path string
	PID  int // process that holds the lock, 0 if that cannot be found out
}

func (e *LockedError) Error() string {
	switch e.PID {
	case 0:
		return fmt.Sprintf("lock %s: %v", e.Path, ErrLocked)
	case os.Getpid():
		return fmt.Sprintf("lock %s: %v of this process", e.Path, ErrLocked)
	}
	return fmt.Sprintf("lock %s: %v, process %d", e.Path, ErrLocked, e.PID)
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// spaceError marks an errno that says that the disk is full.
type spaceError struct{ error }

func (e spaceError) Is(target error) bool { return target == ErrNoSpace }
func (e spaceError) Unwrap() error        { return e.error }

// IsUnsyncable reports whether an error of [FS].SyncDir says that the file
// system has no such call, or that the directory may not be opened for it, and
// not that the sync failed. Whether a new name is durable is then up to the
// file system; on many a sync of the file does it.
func IsUnsyncable(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrPermission)
}

// pathError says what was being done to which file. A PathError that the os
// package put around the cause is taken off, since it would repeat the path.
// A nil cause is no error.
func pathError(op, path string, cause error) error {
	if cause == nil {
		return nil
	}
	if inner, ok := cause.(*fs.PathError); ok {
		cause = inner.Err
	}
	if isNoSpace(cause) && !errors.Is(cause, ErrNoSpace) {
		cause = spaceError{cause}
	}
	return &fs.PathError{Op: op, Path: path, Err: cause}
}

// rangeError is pathError for an operation on n bytes at off.
func rangeError(op, path string, off, n int64, cause error) error {
	if cause == nil {
		return nil
	}
	return pathError(fmt.Sprintf("%s of %d bytes at offset %d:", op, n, off), path, cause)
}

// checkRange refuses a range that does not lie within the numbers of a file.
func checkRange(off, n int64) error {
	if off < 0 || n < 0 || off+n < off {
		return errRange
	}
	return nil
}

// checkFlag refuses what [FS].Open does not promise to understand; O_APPEND
// for one would break WriteAt.
func checkFlag(flag int) error {
	if flag&^(os.O_RDWR|os.O_CREATE|os.O_EXCL) != 0 {
		return errFlag
	}
	return nil
}
