package dbm

import (
	"bytes"
	"fmt"
	"iter"
)

// All iterates over all records in key order. An error ends the iteration, and so does the end of the transaction, or of the context of
// ViewContext or UpdateContext, at the latest after the records of one page; Tx.Err tells it, as for the iterators below.
func (tx *Tx) All() iter.Seq2[[]byte, []byte] { return tx.Range(nil, nil) }

// Range iterates over the records with from <= key < to in key order; nil is an open end.
func (tx *Tx) Range(from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		c := tx.Cursor()
		defer c.endIteration()
		stored, each := to, yield // as they are in the tree
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
			if !tx.aging { // else each record is a call, and copied
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

// Backward iterates over the same records in descending order.
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
		if ok && to != nil && bytes.Compare(c.Key(), to) >= 0 { // the inner nodes of a hostile file lead past records
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

// passedOver notes that a record before key has a key that is not below it.
func (c *Cursor) passedOver(key []byte) {
	c.err = c.tx.note(fmt.Errorf("%w: a record with a key that is not below %.40q lies before it", ErrCorrupt, key))
}

// endIteration releases the cursor of an iterator, and has the transaction tell that it had ended.
func (c *Cursor) endIteration() {
	if c.tx.err == nil && c.err == ErrTxDone {
		c.tx.err = ErrTxDone
	}
	if c.inner.Cursor != nil {
		c.inner.Release()
	}
}

// Keys iterates over the keys of the same records as Range, in order, and reads no value: neither one that is long, nor one that stayed
// where it was logged. A value that is damaged does not hinder it. In a database with records that expire it reads values, all the same, which tell that.
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

// canceled reports whether the context of the transaction has ended, and has the transaction tell that.
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

// Prefix iterates over the records whose key starts with p, in key order. With PrefixEnd, Range and Backward iterate over a part of them, or
// from the last one down.
func (tx *Tx) Prefix(p []byte) iter.Seq2[[]byte, []byte] {
	return tx.Range(p, PrefixEnd(p))
}

// PrefixEnd returns the least key above all that start with p, for the upper bound of Range, Backward and Keys; nil, which is an open end
// there, if there is none, as p is empty or all 0xFF. The newest record of a series whose keys are a name and a time is the first one of
// Backward(name, PrefixEnd(name)): one seek.
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
