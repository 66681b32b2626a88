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
//  1. It reads through the transaction, which is then checked for conflicts. Otherwise two of them side by side would both start from the
//     same value, and the second commit would hide the first one.
//  2. If it says that it wrote, it has put the key, also where the new value equals the old one. Otherwise a transaction that rests on the
//     value it got would not conflict with one that changes it.

// mostDigits is the length of the longest number of 64 bits in decimal, with its sign.
const mostDigits = len("-9223372036854775808")

// Increment adds delta to the number that the value of key is, and returns the sum. No record counts as 0. Increment(key, 0) puts the
// number as it is.
//
// A number is text: decimal, from -9223372036854775808 to 9223372036854775807, as strconv.FormatInt writes it, without leading zeros,
// spaces or a plus sign. Such a value can be read by every program and told from one that is no number. A value of eight binary bytes
// could not be told from eight bytes of text.
//
// ErrNotNumber if the value is anything else, ErrOverflow if the sum does not fit; then nothing is written and the transaction can go on.
// Otherwise the errors of Get and Put.
//
// It reads the key, so of two transactions side by side that increment it the second to commit gets ErrConflict: no increment is lost. A
// counter that all commits increment makes them run one after the other.
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

// numberOf returns the number that the value of key is, and the time of the record; 0 if there is none.
func numberOf(tx *Tx, key []byte) (n, at int64, err error) {
	value, length, at, err := shortValue(tx, key, int64(mostDigits))
	switch {
	case err != nil:
		return 0, 0, err
	case length < 0:
		return 0, 0, nil
	}
	n, err = strconv.ParseInt(string(value), 10, 64)
	if err != nil || string(strconv.AppendInt(nil, n, 10)) != string(value) { // also where the value is longer and was not read
		return 0, 0, fmt.Errorf("%w: the value of %d bytes at key %.40q; put a number there, or delete the record, first", ErrNotNumber, length, key)
	}
	return n, at, nil
}

// shortValue returns the value of key, its length in bytes, which is -1 if there is no record, and the time of the record. A value of more than most bytes
// is not read, however long it is: then value is nil.
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

// CompareAndSwap sets the value of key to new if it is old now, and reports whether it did. Nil for old stands for no record: that is what
// Get returns beside ErrNotFound, while the empty value is an empty slice that is not nil. Nil for new is the empty value, as for Put.
//
// If the value is another one, nothing is written and the error is nil. As with everything that a transaction reads, that it was another
// one is true of the transaction's snapshot, and still true when it commits only with TxOptions.Serializable. Where it did swap, a
// transaction that writes the key in between makes this one fail with ErrConflict, also if new equals old.
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

// Append puts the value of key with suffix behind it; no record counts as an empty value. The whole value is written again, so n appends
// to one value write bytes that grow with the square of n: what grows without end is better kept as a record for each part, under keys with
// a common prefix. Of a value of more than about 1 MiB little is in memory.
//
// ErrValueTooLarge if the result had more than 4 GiB, and then nothing is written. It reads the key: see Increment.
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

// appendInMemory is up to how many bytes Append makes the new value in memory, before Put copies it. Above, the value goes through PutReader,
// which would do with little memory for shorter ones as well and only be slower.
const appendInMemory = 256 << 10

// GetAndPut sets the value of key and returns the one that was there: nil if there was no record, for a value is never nil. The returned
// slice is valid until the transaction ends. It reads the key: see Increment.
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

// GetAndPut is Tx.GetAndPut in a transaction of its own, run again after a conflict: see Update. It returns a copy, which is the caller's.
func (db *DB) GetAndPut(key, value []byte) (old []byte, err error) {
	err = db.Update(func(tx *Tx) (err error) {
		old, err = tx.GetAndPut(key, value)
		old = bytes.Clone(old) // of an empty value it is not nil either
		return err
	})
	if err != nil {
		return nil, err
	}
	return old, nil
}
