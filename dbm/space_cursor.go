package dbm

import "flashdbm/mvcc"

// spaceCursor is an engine cursor that stays within a space and skips expired records. Its keys are those of the
// tree.
//
// Invariant, if the space has bounds: at is the cursor's place as seen from within the space. Only if at is spaceOn
// is the engine's cursor at the same place; a move from any other place starts again at an end of the space.
type spaceCursor struct {
	*mvcc.Cursor
	tx *Tx // has the space
	at spacePlace
}

type spacePlace uint8

const (
	spaceNowhere spacePlace = iota
	spaceOn
	spaceBefore
	spaceBehind
)

func (c *spaceCursor) whole() bool { return !c.tx.space.shifts }

// Reset is mvcc.Cursor.Reset.
func (c *spaceCursor) Reset() {
	c.Cursor.Reset()
	c.at = spaceNowhere
}

// First, Last, Next, Prev and Seek are those of mvcc.Cursor, within the space. Seek takes a key of the tree.
func (c *spaceCursor) First() bool {
	if c.whole() {
		return c.Cursor.First()
	}
	return c.arrive(c.Cursor.Seek(c.tx.space.low), spaceBehind)
}

// Last: see First.
func (c *spaceCursor) Last() bool {
	if c.whole() {
		return c.Cursor.Last()
	}
	c.Cursor.Seek(c.tx.space.high)
	return c.arrive(c.Cursor.Err() == nil && c.Cursor.Prev(), spaceBefore)
}

// Seek: see First.
func (c *spaceCursor) Seek(key []byte) bool {
	if c.whole() {
		return c.Cursor.Seek(key)
	}
	return c.arrive(c.Cursor.Seek(key), spaceBehind)
}

// Next: see First.
func (c *spaceCursor) Next() bool {
	switch {
	case c.whole():
		return c.Cursor.Next()
	case c.at == spaceOn:
		return c.arrive(c.Cursor.Next(), spaceBehind)
	}
	return c.at != spaceBehind && c.First()
}

// Prev: see First.
func (c *spaceCursor) Prev() bool {
	switch {
	case c.whole():
		return c.Cursor.Prev()
	case c.at == spaceOn:
		return c.arrive(c.Cursor.Prev(), spaceBefore)
	}
	return c.at != spaceBefore && c.Last()
}

// arrive ends a move of the engine's cursor, which has found a record or none. It skips expired records in the
// direction of the move, and sets at. otherwise is the place past the end of the space in that direction.
func (c *spaceCursor) arrive(found bool, otherwise spacePlace) bool {
	for found {
		key := c.Cursor.Key()
		found = c.Cursor.Err() == nil && c.tx.space.holds(key) // the rest of a long key may be unreadable
		if !found || c.tx.stamp == 0 || !c.over() {
			break
		}
		if otherwise == spaceBehind {
			found = c.Cursor.Next()
		} else {
			found = c.Cursor.Prev()
		}
	}
	if c.at = otherwise; found {
		c.at = spaceOn
	}
	return found
}

// over reports whether the record at the engine's cursor has expired. A record whose value cannot be read counts as
// present; a call that reads the value returns the error.
func (c *spaceCursor) over() bool {
	b, err := mvcc.BeginningAt(c.Cursor)
	if err != nil {
		return false
	}
	_, ok := there(c.tx, b)
	return !ok
}
