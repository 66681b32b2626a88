package dbm

import "bytes"

// With Options.MaxSnapshotAge a transaction may lose its snapshot between two calls. Each call that reads then says when it begins and
// ends, and returns copies. It is the usual method that runs in between, with aging turned off meanwhile.

// during calls fn with the snapshot kept. ErrSnapshotTooOld.
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

// moveAging makes a move of a cursor.
func (c *Cursor) moveAging(move func() bool) (found bool) {
	if lost := c.tx.during(func() { found = move() }); lost != nil {
		c.lost(lost)
		return false
	}
	return found
}

// sliceAging returns a copy of the key or the value.
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
