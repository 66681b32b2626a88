package dbm

import "flashdbm/mvcc"

// spaceCursor is a cursor of the engine that stays within a space. Its keys are those of the tree.
//
// Invariant, where the space has bounds: at says where it is as seen from within the space. Only on a record is that where the engine's cursor
// is, so a move from elsewhere begins anew.
type spaceCursor struct {
	*mvcc.Cursor
	space *space
	at    spacePlace
}

type spacePlace uint8

const (
	spaceNowhere spacePlace = iota
	spaceOn
	spaceBefore
	spaceBehind
)

func (c *spaceCursor) whole() bool { return !c.space.shifts }

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
	return c.arrive(c.Cursor.Seek(c.space.low), spaceBehind)
}

// Last: see First.
func (c *spaceCursor) Last() bool {
	if c.whole() {
		return c.Cursor.Last()
	}
	c.Cursor.Seek(c.space.high)
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

// arrive ends a move that has found a record, or none.
func (c *spaceCursor) arrive(found bool, otherwise spacePlace) bool {
	if found {
		key := c.Cursor.Key()
		found = c.Cursor.Err() == nil && c.space.holds(key) // a long key may not be readable
	}
	if c.at = otherwise; found {
		c.at = spaceOn
	}
	return found
}
