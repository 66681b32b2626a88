package logstore

import (
	"errors"
	"fmt"
	"syscall"

	"flashdbm/logstore/format"
)

// Sentinels, for errors.Is. Errors that the store returns wrap them together with the operation, the file and the address.
var (
	ErrCorrupt  = format.ErrCorrupt
	ErrFormat   = errors.New("flashdbm: unknown file format")
	ErrFull     = errors.New("flashdbm: no space left for the database")
	ErrFailed   = errors.New("flashdbm: database handle failed; close it and open the file again")
	ErrTooOld   = errors.New("flashdbm: snapshot too old: the database could no longer keep what the transaction sees")
	ErrReadOnly = errors.New("flashdbm: database is open read-only")

	// ErrSmallSegments cannot happen with segments of the default size.
	ErrSmallSegments = errors.New("flashdbm: key or value too long for the small segments of this file; load its dump into a new file")
)

// PageError is damage at one page, found when it was read.
type PageError struct {
	Path string
	Addr Addr
	What string
}

func (e *PageError) Error() string {
	return fmt.Sprintf("flashdbm: read %s: damaged page %d (byte %d): %s", e.Path, e.Addr, e.Addr*PageSize, e.What)
}

func (e *PageError) Unwrap() error { return ErrCorrupt }

// failedError is the error of a poisoned store: ErrFailed with the first cause.
type failedError struct{ cause error }

func (e *failedError) Error() string   { return ErrFailed.Error() + ": " + e.cause.Error() }
func (e *failedError) Unwrap() []error { return []error{ErrFailed, e.cause} }

// isNoSpace reports whether a file could not grow: the device or the quota is full, or the file system does not
// allow a file that long.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, errQuota) || errors.Is(err, syscall.EFBIG)
}
