package dbm

import (
	"bytes"
	"fmt"
	"iter"
)

// All iterates over all records in key order. An error ends the iteration, and so does the end of the transaction; Tx.Err tells it, as for
// the iterators below.
func (tx *Tx) All() iter.Seq2[[]byte, []byte] { return tx.Range(nil, nil) }

// Range iterates over the records with from <= key < to in key order; nil is an open end.
func (tx *Tx) Range(from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		c := tx.Cursor()
		defer c.endIteration()
		for ok := c.Seek(from); ok; ok = c.Next() {
			if !tx.aging { // else each record is a call, and copied
				any, more := c.inner.Stretch(to, yield)
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
		for ; ok; ok = c.Prev() {
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
	if c.inner != nil {
		c.inner.Release()
	}
}

// Prefix iterates over the records whose key starts with p, in key order.
func (tx *Tx) Prefix(p []byte) iter.Seq2[[]byte, []byte] {
	return tx.Range(p, after(p))
}

// after returns the least key above all that start with p, nil if there is none.
func after(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xFF {
			next := bytes.Clone(p[:i+1])
			next[i]++
			return next
		}
	}
	return nil
}
