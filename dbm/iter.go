package dbm

import (
	"bytes"
	"fmt"
	"iter"
)

// All iterates over all records in key order. The iteration ends early after an error, when the transaction ends,
// or, at the latest after the records of one page, when the context of ViewContext or UpdateContext ends; Tx.Err
// returns the error. The same holds for the iterators below.
func (tx *Tx) All() iter.Seq2[[]byte, []byte] { return tx.Range(nil, nil) }

// Range iterates over the records with from <= key < to in key order; nil is an open end.
func (tx *Tx) Range(from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		c := tx.Cursor()
		defer c.endIteration()
		stored, each := to, yield // as the tree stores them
		if tx.space.shifts {
			stored = tx.space.to(to)
			each = func(key, value []byte) bool { return yield(tx.space.out(key), value) }
		}
		if tx.stamp != 0 && !tx.space.all {
			shown := each
			each = func(key, value []byte) bool {
				value, ok := there(tx, value)
				return !ok || shown(key, value)
			}
		}
		for ok := c.Seek(from); ok && !tx.canceled(); ok = c.Next() {
			if !tx.aging { // with aging, each record is read by its own calls, and copied
				any, more := c.inner.Stretch(stored, each)
				if !more {
					return
				}
				if any {
					continue
				}
			}
			key := c.Key()
			if to != nil && bytes.Compare(key, to) >= 0 {
				return
			}
			value := c.Value()
			if c.err != nil || !yield(key, value) {
				return
			}
		}
	}
}

// Backward iterates over the records of Range in descending order.
func (tx *Tx) Backward(from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		c := tx.Cursor()
		defer c.endIteration()
		ok := false
		if to == nil {
			ok = c.Last()
		} else if c.Seek(to); c.err == nil {
			ok = c.Prev()
		}
		if ok && to != nil && bytes.Compare(c.Key(), to) >= 0 { // in a hostile file the inner nodes can lead past records
			c.passedOver(to)
			return
		}
		for ; ok && !tx.canceled(); ok = c.Prev() {
			key := c.Key()
			if bytes.Compare(key, from) < 0 {
				return
			}
			value := c.Value()
			if c.err != nil || !yield(key, value) {
				return
			}
		}
	}
}

// passedOver notes that the record before key has a key that is not below it.
func (c *Cursor) passedOver(key []byte) {
	c.err = c.tx.note(fmt.Errorf("%w: a record with a key that is not below %.40q lies before it", ErrCorrupt, key))
}

// endIteration releases the cursor of an iterator, and sets tx.err if the transaction ended during the iteration, or
// has dropped the keyspace.
func (c *Cursor) endIteration() {
	if c.err == ErrTxDone {
		c.tx.noteEnded()
	}
	if c.err == errDropped && c.tx.err == nil {
		c.tx.err = errDropped
	}
	if c.inner.Cursor != nil {
		c.inner.Release()
	}
}

// Keys iterates over the keys of the records of Range, in order, and reads no values, so long values cost nothing
// and damaged ones do not stop it. Only in a database with records that expire does it read values, as far as
// needed to tell whether a record has expired.
func (tx *Tx) Keys(from, to []byte) iter.Seq[[]byte] {
	return func(yield func(key []byte) bool) {
		c := tx.Cursor()
		defer c.endIteration()
		for ok := c.Seek(from); ok && !tx.canceled(); ok = c.Next() {
			key := c.Key()
			if c.err != nil || to != nil && bytes.Compare(key, to) >= 0 || !yield(key) {
				return
			}
		}
	}
}

// canceled reports whether the transaction's context has ended, and sets tx.err if it has.
func (tx *Tx) canceled() bool {
	if tx.ctx == nil {
		return false
	}
	err := tx.ctx.Err()
	if tx.err == nil {
		tx.err = err
	}
	return err != nil
}

// Prefix iterates over the records whose keys start with p, in key order. To iterate over a part of them, or
// backward, use Range or Backward with PrefixEnd.
func (tx *Tx) Prefix(p []byte) iter.Seq2[[]byte, []byte] {
	return tx.Range(p, PrefixEnd(p))
}

// PrefixEnd returns the least key above all keys that start with p, for use as the upper bound of Range, Backward
// or Keys. It returns nil, an open end, if there is no such key because p is empty or all 0xFF. Example: if keys
// are a name and a time, Backward(name, PrefixEnd(name)) begins with the newest record of that name, at the cost of
// one seek.
func PrefixEnd(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xFF {
			next := bytes.Clone(p[:i+1])
			next[i]++
			return next
		}
	}
	return nil
}
