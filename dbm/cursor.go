package dbm

import "io"

// Cursor moves over the records of a transaction in key order. Its position is a key, so writes and deletes through
// the transaction never make it skip or repeat a record. It must be used by the transaction's goroutine, and ends
// with the transaction.
type Cursor struct {
	tx    *Tx
	inner spaceCursor
	on    bool // the last move found a record
	retry bool // the last move failed on a snapshot that has been renewed since; see again
	err   error

	steps      bool // Next may step: the transaction is read-only, and keys and values are returned as the tree stores them
	stepped    bool // the last move was a step, and found key and value; then on is set
	key, value []byte
}

// Cursor returns a new cursor that is on no record: its Next moves to the first record, its Prev to the last.
func (tx *Tx) Cursor() *Cursor {
	c := &Cursor{tx: tx}
	if tx.done {
		c.err = ErrTxDone
		return c
	}
	c.inner.Cursor, c.inner.tx = tx.inner.Cursor(), tx
	c.inner.Within(tx.space.low, tx.space.high)
	c.steps = tx.readOnly && !tx.aging && !tx.space.shifts && tx.stamp == 0
	return c
}

// First moves to the first record and reports whether there is one.
func (c *Cursor) First() bool {
	if c.tx.aging {
		return c.moveAging(c.First)
	}
	return c.ready() && (c.moved(c.inner.First()) || c.again(c.inner.First))
}

// Last moves to the last record and reports whether there is one.
func (c *Cursor) Last() bool {
	if c.tx.aging {
		return c.moveAging(c.Last)
	}
	return c.ready() && (c.moved(c.inner.Last()) || c.again(c.inner.Last))
}

// Next moves to the following record and reports whether there is one. Past the last record, Next stays there and
// returns false.
func (c *Cursor) Next() bool {
	if c.on && c.steps && !c.tx.done {
		if c.key, c.value, c.stepped = c.inner.Step(); c.stepped {
			return true
		}
	}
	if c.tx.aging {
		return c.moveAging(c.Next)
	}
	return c.ready() && (c.moved(c.inner.Next()) || c.again(c.inner.Next))
}

// Prev moves to the preceding record and reports whether there is one.
func (c *Cursor) Prev() bool {
	if c.tx.aging {
		return c.moveAging(c.Prev)
	}
	return c.ready() && (c.moved(c.inner.Prev()) || c.again(c.inner.Prev))
}

// Seek moves to the first record with a key >= key and reports whether there is one. If there is none, Prev then
// moves to the last record.
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

// Key returns the key of the record that the last move found, nil if it found none. The slice is valid until the
// transaction ends.
func (c *Cursor) Key() []byte {
	if c.stepped && !c.tx.done { // this much is inlined
		return c.key
	}
	return c.findKey()
}

func (c *Cursor) findKey() []byte {
	if !c.on || c.done() {
		return nil
	}
	if c.tx.aging {
		return c.sliceAging(c.Key)
	}
	key := c.inner.Key()
	if err := c.inner.Err(); err != nil { // part of a long key cannot be read
		c.err = c.tx.note(err)
		return nil
	}
	return c.tx.space.out(key)
}

// Value returns the value of the record that the last move found. The slice is valid until the transaction ends.
// nil means that there is no record, or an error, which Err returns; an empty value is not nil.
func (c *Cursor) Value() []byte {
	if c.stepped && !c.tx.done { // this much is inlined
		return c.value
	}
	return c.findValue()
}

func (c *Cursor) findValue() []byte {
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

// ValueReader returns a reader of the current record's value, and the value's length in bytes: see Tx.ValueReader.
// ErrNotFound if the cursor is on no record.
func (c *Cursor) ValueReader() (reader io.ReadCloser, length int64, err error) {
	reader, length, _, err = cursorReader(c)
	return reader, length, err
}

// cursorReader is Cursor.ValueReader that also returns the expiry time of the record, 0 if it does not expire.
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

// Delete removes the current record; Next then moves to the record that followed it. ErrNotFound if the cursor is
// on no record, or the error of Err if there is one.
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
	if err := c.inner.Err(); err != nil { // part of a long key cannot be read: which record to delete is unknown
		c.on, c.err = false, c.tx.note(err)
		return c.err
	}
	c.on = false
	guardMark(c.tx, key)
	return c.tx.note(c.tx.inner.Delete(key))
}

// Err returns the first error of the cursor.
func (c *Cursor) Err() error { return c.err }

func (c *Cursor) ready() bool {
	c.on, c.stepped = false, false
	if !c.done() && c.err == nil && c.tx.dropped != nil && isDropped(c.tx) {
		c.err = errDropped
	}
	return c.err == nil
}

// done reports whether the transaction has ended, and sets the cursor's error to ErrTxDone if it has.
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

// again repeats a move while it fails because the snapshot is lost and Tx.again can replace that snapshot by a
// newer one.
func (c *Cursor) again(move func() bool) bool {
	for c.retry {
		c.retry = false
		if c.moved(move()) {
			return true
		}
	}
	return false
}
