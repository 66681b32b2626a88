package dbm

import "io"

// Cursor moves over the records of a transaction in key order. It is positioned by key: writing and deleting through the transaction
// never makes it skip or repeat a record. It belongs to the transaction's goroutine and ends with it.
type Cursor struct {
	tx    *Tx
	inner spaceCursor
	on    bool // the last move found a record
	retry bool // see again
	err   error
}

// Cursor returns a new cursor, which is on no record: Next goes to the first one, Prev to the last.
func (tx *Tx) Cursor() *Cursor {
	c := &Cursor{tx: tx}
	if tx.done {
		c.err = ErrTxDone
		return c
	}
	c.inner.Cursor, c.inner.tx = tx.inner.Cursor(), tx
	c.inner.Within(tx.space.low, tx.space.high)
	return c
}

// First goes to the first record and reports whether there is one.
func (c *Cursor) First() bool {
	if c.tx.aging {
		return c.moveAging(c.First)
	}
	return c.ready() && (c.moved(c.inner.First()) || c.again(c.inner.First))
}

// Last goes to the last record and reports whether there is one.
func (c *Cursor) Last() bool {
	if c.tx.aging {
		return c.moveAging(c.Last)
	}
	return c.ready() && (c.moved(c.inner.Last()) || c.again(c.inner.Last))
}

// Next goes to the record that follows, and reports whether there is one. Past the end it stays there.
func (c *Cursor) Next() bool {
	if c.tx.aging {
		return c.moveAging(c.Next)
	}
	return c.ready() && (c.moved(c.inner.Next()) || c.again(c.inner.Next))
}

// Prev goes to the record before, and reports whether there is one.
func (c *Cursor) Prev() bool {
	if c.tx.aging {
		return c.moveAging(c.Prev)
	}
	return c.ready() && (c.moved(c.inner.Prev()) || c.again(c.inner.Prev))
}

// Seek goes to the first record whose key is at or after key, and reports whether there is one. After it has failed, Prev goes to the
// last record.
func (c *Cursor) Seek(key []byte) bool {
	if c.tx.aging {
		return c.moveAging(func() bool { return c.Seek(key) })
	}
	if !c.ready() {
		return false
	}
	key = c.tx.space.in(nil, key)
	return c.moved(c.inner.Seek(key)) || c.again(func() bool { return c.inner.Seek(key) })
}

// Key returns the key of the record that the last move found, nil if it found none. Valid until the transaction ends.
func (c *Cursor) Key() []byte {
	if !c.on || c.done() {
		return nil
	}
	if c.tx.aging {
		return c.sliceAging(c.Key)
	}
	key := c.inner.Key()
	if err := c.inner.Err(); err != nil { // the rest of a long key cannot be read
		c.err = c.tx.note(err)
		return nil
	}
	return c.tx.space.out(key)
}

// Value returns the value of that record, with the same lifetime. nil means none, or an error that Err tells.
func (c *Cursor) Value() []byte {
	if !c.on || c.done() {
		return nil
	}
	if c.tx.aging {
		return c.sliceAging(c.Value)
	}
	v, err := c.inner.Value()
	if err != nil {
		c.err = c.tx.note(err)
		return nil
	}
	if c.tx.stamp != 0 {
		v, _ = there(c.tx, v)
	}
	return v
}

// ValueReader reads the value of that record piece by piece and returns its length in bytes: see Tx.ValueReader. ErrNotFound if the cursor is
// on none.
func (c *Cursor) ValueReader() (reader io.ReadCloser, length int64, err error) {
	reader, length, _, err = cursorReader(c)
	return reader, length, err
}

// cursorReader is Cursor.ValueReader that returns the time of the record too, 0 if it does not expire.
func cursorReader(c *Cursor) (reader io.ReadCloser, length, at int64, err error) {
	switch {
	case c.tx.done:
		return nil, 0, 0, ErrTxDone
	case c.err != nil:
		return nil, 0, 0, c.err
	case !c.on:
		return nil, 0, 0, ErrNotFound
	case c.tx.aging:
		if lost := c.tx.during(func() { reader, length, at, err = cursorReader(c) }); lost != nil {
			c.lost(lost)
			return nil, 0, 0, lost
		}
		return reader, length, at, err
	}
	r, length, err := c.inner.ValueReader()
	if err == nil && !c.tx.space.all {
		r, length, at, err = behindHead(c.tx.stamp, r, length)
	}
	if err != nil {
		c.err = c.tx.note(err)
		return nil, 0, 0, c.err
	}
	return &valueReader{c.tx, r}, length, at, nil
}

// Delete removes the record that the cursor is on; Next is then the record that followed. ErrNotFound if it is on none, and Err's error
// once there is one.
func (c *Cursor) Delete() (err error) {
	if err := c.tx.canWrite(nil, nil); err != nil {
		return err
	}
	if c.tx.aging {
		if lost := c.tx.during(func() { err = c.Delete() }); lost != nil {
			c.lost(lost)
			return lost
		}
		return err
	}
	switch {
	case c.on:
	case c.err != nil:
		return c.err
	default:
		return ErrNotFound
	}
	key := c.inner.Key()
	if err := c.inner.Err(); err != nil { // the rest of a long key cannot be read: it is not known what to delete
		c.on, c.err = false, c.tx.note(err)
		return c.err
	}
	c.on = false
	guardMark(c.tx, key)
	return c.tx.note(c.tx.inner.Delete(key))
}

// Err returns the first error of the cursor's moves.
func (c *Cursor) Err() error { return c.err }

func (c *Cursor) ready() bool {
	c.on = false
	return !c.done() && c.err == nil
}

// done reports whether the transaction has ended, which is an error of whatever is asked of the cursor.
func (c *Cursor) done() bool {
	if c.tx.done && c.err == nil {
		c.err = ErrTxDone
	}
	return c.tx.done
}

func (c *Cursor) moved(found bool) bool {
	if err := c.inner.Err(); err != nil {
		if c.tx.again(err) {
			c.inner.Reset()
			c.retry = true
			return false
		}
		c.err = c.tx.note(err)
		return false
	}
	c.on, c.tx.answered = found, true
	return found
}

// again makes a move again for as long as it has failed on a snapshot that was then replaced by a newer one.
func (c *Cursor) again(move func() bool) bool {
	for c.retry {
		c.retry = false
		if c.moved(move()) {
			return true
		}
	}
	return false
}
