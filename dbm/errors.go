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
	ErrReadOnly       = logstore.ErrReadOnly   // the database is read-only; errors.Is of ErrTxReadOnly with this is true, too
	ErrTxReadOnly     = error(txReadOnly{})    // the transaction is of View, or was begun with TxOptions.ReadOnly
	ErrSnapshotTooOld = mvcc.ErrSnapshotTooOld // the transaction's snapshot could not be kept that long; begin another
)

// Errors of the database.
var (
	ErrClosed  = mvcc.ErrClosed
	ErrLocked  = vfs.ErrLocked       // another process, or another handle of this one, has the file open
	ErrFull    = logstore.ErrFull    // no space on the device, or MaxFileSize is reached; unwraps to the system's error. Deletes still work
	ErrCorrupt = logstore.ErrCorrupt // the file is damaged; the text says where
	ErrFormat  = logstore.ErrFormat  // not a database, or a database written by a newer program
	ErrFailed  = logstore.ErrFailed  // a write or sync has failed: durable data can be read, nothing can be written. Unwraps to the cause
)

// txReadOnly is the type of ErrTxReadOnly, an ErrReadOnly with a text of its own.
type txReadOnly struct{}

func (txReadOnly) Error() string        { return "flashdbm: transaction is read-only" }
func (txReadOnly) Is(target error) bool { return target == ErrReadOnly }

// public adds the public sentinel to an error of the lower layers that lacks one.
func public(err error) error {
	if err == nil {
		return nil
	}
	return publicOf(err)
}

func publicOf(err error) error {
	if errors.Is(err, btree.ErrMalformed) && !errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// lasting reports whether an error comes from the media or the system. Tx.Err returns such errors.
func lasting(err error) bool {
	for _, e := range []error{ErrNotFound, ErrExists, ErrKeyTooLarge, ErrValueTooLarge, ErrNotNumber, ErrOverflow, ErrTxDone, ErrReadOnly, ErrConflict, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return false
		}
	}
	return err != nil
}
