package dbm

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
)

// The operations of this file read the value of a key and write it. Two rules hold for each of them:
//
//  1. It reads through the transaction, which is then checked for conflicts. Otherwise two concurrent operations
//     would start from the same value, and the second commit would hide the first.
//  2. If it reports that it wrote, it has put the key, even if the new value equals the old one. Otherwise a
//     transaction that relies on the value would not conflict with one that changes it.

// mostDigits is the length of the longest 64-bit number in decimal, with its sign.
const mostDigits = len("-9223372036854775808")

// Increment adds delta to the number that is the value of key, and returns the sum. An absent record counts as 0.
// Increment(key, 0) writes the number as it is.
//
// A number is decimal text from -9223372036854775808 to 9223372036854775807, as strconv.FormatInt writes it,
// without leading zeros, spaces or plus sign. Every program can read such a value and tell it from one that is no
// number; eight binary bytes could not be told from eight bytes of text.
//
// ErrNotNumber if the value is anything else, ErrOverflow if the sum does not fit 64 bits. Then nothing is written
// and the transaction can go on. Other errors are those of Get and Put.
//
// Increment reads the key, so of two concurrent transactions that increment it, the second to commit gets
// ErrConflict: no increment is lost. A counter that all commits increment makes them run one after the other.
func (tx *Tx) Increment(key []byte, delta int64) (int64, error) {
	if err := tx.canWrite(key, nil); err != nil {
		return 0, err
	}
	n, at, err := numberOf(tx, key)
	if err != nil {
		return 0, err
	}
	if delta > 0 && n > math.MaxInt64-delta || delta < 0 && n < math.MinInt64-delta {
		return 0, fmt.Errorf("%w: %d at key %.40q, plus %d", ErrOverflow, n, key, delta)
	}
	n += delta
	if err := putUntil(tx, key, strconv.AppendInt(nil, n, 10), at); err != nil {
		return 0, err
	}
	return n, nil
}

// numberOf returns the number that is the value of key, and the expiry time of the record; both are 0 if there is
// no record.
func numberOf(tx *Tx, key []byte) (n, at int64, err error) {
	value, length, at, err := shortValue(tx, key, int64(mostDigits))
	switch {
	case err != nil:
		return 0, 0, err
	case length < 0:
		return 0, 0, nil
	}
	n, err = parseNumber(key, value, length)
	return n, at, err
}

// parseNumber returns the number in a value of the given length. ErrNotNumber, also for a longer value that was not
// read.
func parseNumber(key, value []byte, length int64) (int64, error) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || string(strconv.AppendInt(nil, n, 10)) != string(value) {
		return 0, fmt.Errorf("%w: the value of %d bytes at key %.40q; put a number there, or delete the record, first", ErrNotNumber, length, key)
	}
	return n, nil
}

// shortValue returns the value of key, its length in bytes (-1 if there is no record), and the expiry time of the
// record. A value of more than most bytes is not read; value is then nil.
func shortValue(tx *Tx, key []byte, most int64) (value []byte, length, at int64, err error) {
	r, length, at, err := timedReader(tx, key)
	switch {
	case err == ErrNotFound:
		return nil, -1, 0, nil
	case err != nil:
		return nil, 0, 0, err
	}
	defer r.Close()
	if length > most {
		return nil, length, at, nil
	}
	value = make([]byte, length)
	_, err = io.ReadFull(r, value)
	return value, length, at, err
}

// CompareAndSwap sets the value of key to new if its present value is old, and reports whether it did. A nil old
// stands for no record; for the empty value pass an empty slice that is not nil. A nil new is the empty value, as
// for Put.
//
// If the value differs from old, nothing is written and the error is nil. The comparison is with the
// transaction's snapshot; as with all reads, only TxOptions.Serializable guarantees that its result still holds
// at the commit. After a swap, the transaction fails with ErrConflict if another one writes the key in between,
// even if new equals old.
func (tx *Tx) CompareAndSwap(key, old, new []byte) (swapped bool, err error) {
	if err := tx.canWrite(key, new); err != nil {
		return false, err
	}
	value, length, _, err := shortValue(tx, key, int64(len(old)))
	if err != nil {
		return false, err
	}
	if old == nil != (length < 0) || length > int64(len(old)) || !bytes.Equal(value, old) {
		return false, nil
	}
	if err := tx.Put(key, new); err != nil {
		return false, err
	}
	return true, nil
}

// Append appends suffix to the value of key; an absent record counts as an empty value. The whole value is written
// again, so the bytes written by n appends to one value grow with the square of n: data that grows without end is
// better kept in a record for each part, under keys with a common prefix. Of values above about 1 MiB, only a small
// part is in memory at a time.
//
// ErrValueTooLarge if the result would exceed 4 GiB; then nothing is written. Append reads the key: see Increment.
func (tx *Tx) Append(key, suffix []byte) error {
	if err := tx.canWrite(key, suffix); err != nil {
		return err
	}
	r, length, at, err := timedReader(tx, key)
	switch {
	case err == ErrNotFound:
		return tx.Put(key, suffix)
	case err != nil:
		return err
	}
	whole := length + int64(len(suffix))
	if err := checkSizesOf(uint64(len(key)), uint64(whole)); err != nil {
		return err
	}
	if whole > appendInMemory {
		return putReaderUntil(tx, key, io.MultiReader(r, bytes.NewReader(suffix)), whole, at)
	}
	value := make([]byte, whole)
	if _, err := io.ReadFull(r, value[:length]); err != nil {
		return err
	}
	copy(value[length:], suffix)
	return putUntil(tx, key, value, at)
}

// appendInMemory, in bytes, is the longest new value that Append makes in memory and passes to Put, which copies
// it. Longer values go through PutReader. A smaller bound would only be slower: PutReader takes little memory for
// shorter values, too.
const appendInMemory = 256 << 10

// GetAndPut sets the value of key and returns the previous one, or nil if there was no record; an existing value is
// never nil. The returned slice is valid until the transaction ends. GetAndPut reads the key: see Increment.
func (tx *Tx) GetAndPut(key, value []byte) (old []byte, err error) {
	if err := tx.canWrite(key, value); err != nil {
		return nil, err
	}
	if old, err = tx.Get(key); err != nil && err != ErrNotFound {
		return nil, err
	}
	if err := tx.Put(key, value); err != nil {
		return nil, err
	}
	return old, nil
}

// Increment is Tx.Increment in a transaction of its own, run again after a conflict: see Update.
func (db *DB) Increment(key []byte, delta int64) (n int64, err error) {
	err = db.Update(func(tx *Tx) (err error) {
		n, err = tx.Increment(key, delta)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// CompareAndSwap is Tx.CompareAndSwap in a transaction of its own, run again after a conflict: see Update.
func (db *DB) CompareAndSwap(key, old, new []byte) (swapped bool, err error) {
	err = db.Update(func(tx *Tx) (err error) {
		swapped, err = tx.CompareAndSwap(key, old, new)
		return err
	})
	return swapped && err == nil, err
}

// Append is Tx.Append in a transaction of its own, run again after a conflict: see Update.
func (db *DB) Append(key, suffix []byte) error {
	return db.Update(func(tx *Tx) error { return tx.Append(key, suffix) })
}

// GetAndPut is Tx.GetAndPut in a transaction of its own, run again after a conflict: see Update. The returned slice
// is a copy that belongs to the caller.
func (db *DB) GetAndPut(key, value []byte) (old []byte, err error) {
	err = db.Update(func(tx *Tx) (err error) {
		old, err = tx.GetAndPut(key, value)
		old = bytes.Clone(old) // bytes.Clone keeps an empty value non-nil
		return err
	})
	if err != nil {
		return nil, err
	}
	return old, nil
}
