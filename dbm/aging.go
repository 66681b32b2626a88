package dbm

import "bytes"

// With Options.MaxSnapshotAge, background work may end the snapshot of a transaction between two calls of its
// methods. Each method that reads therefore holds the snapshot while it runs (see during), and returns copies.
// Inside during the ordinary method runs, with tx.aging set to false.

// during holds the snapshot, calls fn, and releases the snapshot. Errors: ErrTxDone, and ErrSnapshotTooOld if
// the snapshot has already been ended.
func (tx *Tx) during(fn func()) error {
	if tx.done {
		return ErrTxDone
	}
	if err := tx.inner.Enter(); err != nil {
		return tx.note(err)
	}
	tx.aging = false
	defer func() {
		tx.aging = true
		tx.inner.Leave()
	}()
	fn()
	return nil
}

func (tx *Tx) getAging(key []byte) (value []byte, err error) {
	if lost := tx.during(func() {
		value, err = tx.Get(key)
		value = bytes.Clone(value)
	}); lost != nil {
		return nil, lost
	}
	return value, err
}

// moveAging runs one move of the cursor with the snapshot held.
func (c *Cursor) moveAging(move func() bool) (found bool) {
	if lost := c.tx.during(func() { found = move() }); lost != nil {
		c.lost(lost)
		return false
	}
	return found
}

// sliceAging returns a copy of the key or the value that get returns, read with the snapshot held.
func (c *Cursor) sliceAging(get func() []byte) (b []byte) {
	if lost := c.tx.during(func() { b = bytes.Clone(get()) }); lost != nil {
		c.lost(lost)
		return nil
	}
	return b
}

func (c *Cursor) lost(err error) {
	c.on = false
	if c.err == nil {
		c.err = err
	}
}
