package dbm

import (
	"context"
	"errors"
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// Errors of reading and writing records, for errors.Is.
var (
	ErrNotFound      = errors.New("flashdbm: no such key")
	ErrExists        = errors.New("flashdbm: key exists already")
	ErrKeyTooLarge   = errors.New("flashdbm: key is longer than 64 KiB")
	ErrValueTooLarge = errors.New("flashdbm: value is longer than 4 GiB")
	ErrNotNumber     = errors.New("flashdbm: value is not a decimal number of 64 bits") // see Tx.Increment
	ErrOverflow      = errors.New("flashdbm: sum does not fit a number of 64 bits")
)

// Errors of transactions.
var (
	ErrConflict       = mvcc.ErrConflict // nothing was applied; run the transaction again
	ErrTxDone         = errors.New("flashdbm: transaction has ended")
	ErrReadOnly       = logstore.ErrReadOnly   // of a read-only database; ErrTxReadOnly is one, too
	ErrTxReadOnly     = error(txReadOnly{})    // of View, or of a transaction begun with TxOptions.ReadOnly
	ErrSnapshotTooOld = mvcc.ErrSnapshotTooOld // what the transaction sees could not be kept that long; begin another
)

// Errors of the database.
var (
	ErrClosed  = mvcc.ErrClosed
	ErrLocked  = vfs.ErrLocked       // another process, or another handle of this one, has the file open
	ErrFull    = logstore.ErrFull    // no space on the device, or MaxFileSize is reached; unwraps to the system's error. Deleting works
	ErrCorrupt = logstore.ErrCorrupt // the file is damaged; the text says where
	ErrFormat  = logstore.ErrFormat  // not a database, or one of a newer program
	ErrFailed  = logstore.ErrFailed  // a write or sync has failed: what is durable can be read, nothing written. Unwraps to the cause
)

// txReadOnly is an ErrReadOnly that says what is read-only.
type txReadOnly struct{}

func (txReadOnly) Error() string        { return "flashdbm: transaction is read-only" }
func (txReadOnly) Is(target error) bool { return target == ErrReadOnly }

// public gives an error of the layers below its public sentinel.
func public(err error) error {
	if err != nil && errors.Is(err, btree.ErrMalformed) && !errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// lasting reports whether an error is of the media or the system, so that the transaction remembers it: see Tx.Err.
func lasting(err error) bool {
	for _, e := range []error{ErrNotFound, ErrExists, ErrKeyTooLarge, ErrValueTooLarge, ErrNotNumber, ErrOverflow, ErrTxDone, ErrReadOnly, ErrConflict, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return false
		}
	}
	return err != nil
}
