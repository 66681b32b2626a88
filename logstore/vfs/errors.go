package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

var (
	// ErrLocked matches every *LockedError in errors.Is.
	ErrLocked = errors.New("file is locked by another handle")

	// ErrNoSpace matches every error for lack of disk space or quota in errors.Is. Such an error also unwraps
	// to its errno (ENOSPC, EDQUOT).
	ErrNoSpace = errors.New("no space left")

	errFlag     = errors.New("open flag not supported")
	errRegular  = errors.New("not a regular file")
	errHoldLock = errors.New("handle holds the lock already")
	errRange    = errors.New("offset or length out of range")
)

// LockedError says which process holds the lock that [File.Lock] wanted.
type LockedError struct {
	Path string
	PID  int // process that holds the lock, 0 if that is not known
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

// spaceError marks an errno that means that the disk or quota is full.
type spaceError struct{ error }

func (e spaceError) Is(target error) bool { return target == ErrNoSpace }
func (e spaceError) Unwrap() error        { return e.error }

// IsUnsyncable reports whether an error of [FS].SyncDir means that the sync of a directory is not possible, and
// not that it failed: the file system has no such call, or the directory may not be opened for it. Whether a
// new name is durable is then up to the file system; on many a sync of the file makes it durable.
func IsUnsyncable(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrPermission)
}

// pathError adds the operation and the file to an error. If the cause is a PathError of package os, its own
// cause is used, because it would repeat the path. A nil cause is no error.
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

// checkRange refuses a range that is negative or overflows.
func checkRange(off, n int64) error {
	if off < 0 || n < 0 || off+n < off {
		return errRange
	}
	return nil
}

// checkFlag refuses flags that [FS].Open does not support. O_APPEND, for example, would break WriteAt.
func checkFlag(flag int) error {
	if flag&^(os.O_RDWR|os.O_CREATE|os.O_EXCL) != 0 {
		return errFlag
	}
	return nil
}
