package dbm

import "flashdbm/mvcc"

// spaceCursor is a cursor of the engine that stays within a space, and passes over records whose time is over. Its keys are those of the tree.
//
// Invariant, where the space has bounds: at says where it is as seen from within the space. Only on a record is that where the engine's cursor
// is, so a move from elsewhere begins anew.
type spaceCursor struct {
	*mvcc.Cursor
	tx *Tx // its space
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

// Reset: see mvcc.Cursor.
func (c *spaceCursor) Reset() {
	c.Cursor.Reset()
	c.at = spaceNowhere
}

// First, Last, Next, Prev and Seek: see mvcc.Cursor. Seek takes a key of the tree.
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

// arrive ends a move towards one end of the space that has found a record, or none.
func (c *spaceCursor) arrive(found bool, otherwise spacePlace) bool {
	for found {
		key := c.Cursor.Key()
		found = c.Cursor.Err() == nil && c.tx.space.holds(key) // a long key may not be readable
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

// over reports whether the time of the record that the engine's cursor is on is over. Where its value cannot be read, it is there, and who asks for the
// value is told.
func (c *spaceCursor) over() bool {
	b, err := mvcc.BeginningAt(c.Cursor)
	if err != nil {
		return false
	}
	_, ok := there(c.tx, b)
	return !ok
}
