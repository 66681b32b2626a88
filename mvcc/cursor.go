package mvcc

import (
	"bytes"
	"io"
	"sync"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
)

// Cursor moves in key order over the records that a transaction sees, its own writes included. Its position is a key:
// writing or deleting through the transaction never makes it skip or repeat a record. See writeset.Merge. One
// goroutine uses it at a time.
type Cursor struct {
	tx    *Tx
	tree  treeCursor
	over  *writeset.Layered // over tree, if part of the write set has been spilled
	turns int               // turnsOf the transaction when over was made
	merge writeset.Merge    // of the write set in memory over that, or over tree
	err   error
	span  *keyRange // serializable: the keys that the moves since the last positioning have covered
	low   []byte    // bounds of the cursor; nil for none: see Within
	high  []byte
	order scanOrder // of the values read since the last positioning
	// ordered: the values that were prefetched last lie in the order of the log, so the system's read-ahead finds the
	// next ones. Otherwise the system is asked for each of them.
	ordered bool
}

// cursors holds released cursors. With its path through the tree a cursor takes 1.6 KiB, half of the garbage of a
// short scan.
var cursors = sync.Pool{New: func() any { return new(Cursor) }}

// Cursor returns a new cursor. It is on no record: Next goes to the first record, Prev to the last.
func (tx *Tx) Cursor() *Cursor {
	c := cursors.Get().(*Cursor)
	c.tx, tx.lends = tx, true
	c.Reset()
	return c
}

// Release lets another transaction reuse the cursor, which the caller must not use any more. Keys and values that it
// returned stay valid. Not calling Release is fine too.
func (c *Cursor) Release() {
	*c = Cursor{} // it refers to memory that is unmapped with the file
	cursors.Put(c)
}

// Reset puts the cursor back into the state of a new one.
func (c *Cursor) Reset() {
	c.lay()
	c.err, c.span = nil, nil
}

// lay rebuilds the cursor over the present write set, on no record.
func (c *Cursor) lay() {
	base := c.tree.reset(&c.tx.snap)
	c.over, c.turns, c.ordered = nil, 0, false
	if c.tx.readOnly {
		c.merge = writeset.NewMerge(base, nil)
		return
	}
	if len(c.tx.cuts) > 0 {
		base = &cutCursor{base, c.tx.cuts}
	}
	set := c.tx.writes()
	if c.over, c.turns = set.Over(base), turnsOf(c.tx); c.over == nil {
		c.merge = writeset.NewMerge(base, set)
		return
	}
	c.merge = writeset.NewMerge(c.over, set)
}

// current reports whether the cursor fits the write set: no part was spilled and no range cut since it was built. If
// not, current rebuilds the cursor and puts it back in its place: on the first record at or after its key, or beyond
// either end.
func (c *Cursor) current() bool {
	if c.tx.readOnly || turnsOf(c.tx) == c.turns {
		return true
	}
	where := c.merge.Place()
	c.lay()
	c.merge.Return(where)
	return false
}

// First, Last, Next, Prev and Seek move the cursor and report whether they found a record. Seek goes to the first
// record at or after key; if there is none, Prev then goes to the last record. Next past the end stays there, and
// Prev then goes to the last record; likewise at the start.
func (c *Cursor) First() bool { return c.begin() && c.covered(c.merge.First(), nil, true) }

// Last: see First.
func (c *Cursor) Last() bool { return c.begin() && c.covered(c.merge.Last(), nil, false) }

// Seek: see First.
func (c *Cursor) Seek(key []byte) bool {
	return c.begin() && c.covered(c.merge.Seek(key), key, true)
}

// Next: see First.
func (c *Cursor) Next() bool {
	if !c.ready() {
		return false
	}
	if c.tx.readOnly {
		return c.passed(c.merge.Next(), true)
	}
	on, key := c.merge.OnRecord(), c.merge.Key()
	if !c.current() && on && (!c.merge.OnRecord() || !bytes.Equal(c.merge.Key(), key)) {
		return c.passed(c.merge.OnRecord(), true) // that record was deleted since: this is the one after it
	}
	return c.passed(c.merge.Next(), true)
}

// Prev: see First.
func (c *Cursor) Prev() bool {
	if !c.ready() {
		return false
	}
	c.current()
	return c.passed(c.merge.Prev(), false)
}

func (c *Cursor) ready() bool {
	c.tx.readAny = true
	if c.err == nil {
		c.err = c.tx.Expired()
	}
	return c.err == nil
}

func (c *Cursor) begin() bool {
	c.span, c.order = nil, scanOrder{}
	if !c.ready() {
		return false
	}
	if !c.tx.readOnly && turnsOf(c.tx) != c.turns {
		c.lay()
	}
	return true
}

// covered notes for a serializable transaction what a positioning has read: from its start to the record found, or to
// the end.
func (c *Cursor) covered(found bool, from []byte, forward bool) bool {
	if c.tx.reads == nil {
		return found
	}
	span := c.tx.reads.span()
	switch {
	case forward:
		span.from = bytes.Clone(from)
		span.to = c.behind(found)
	case found:
		span.from = bytes.Clone(c.merge.Key())
	}
	c.clip(span)
	c.span = span
	return found
}

// passed extends what was read by one step. A step over keys that were read already changes nothing.
func (c *Cursor) passed(found, forward bool) bool {
	switch s := c.span; {
	case c.tx.reads == nil:
	case s == nil:
		return c.covered(found, nil, forward)
	case !found && forward:
		s.to = nil
	case !found:
		s.from = nil
	case forward && s.to != nil && bytes.Compare(c.merge.Key(), s.to) >= 0:
		s.to = c.behind(true)
	case !forward && bytes.Compare(c.merge.Key(), s.from) < 0:
		s.from = bytes.Clone(c.merge.Key())
	}
	if c.span != nil {
		c.clip(c.span)
	}
	return found
}

// behind returns the least key after the cursor's record, nil past the end.
func (c *Cursor) behind(found bool) []byte {
	if !found {
		return nil
	}
	return append(bytes.Clone(c.merge.Key()), 0)
}

// Key returns the key of the record that the last move has found; nil if the key is long and cannot be read (see
// Err). It is valid until the transaction ends.
func (c *Cursor) Key() []byte { return c.merge.Key() }

// Value returns the record's value, valid until the transaction ends.
func (c *Cursor) Value() ([]byte, error) {
	if c.tx.readOnly {
		if err := c.Err(); err != nil {
			return nil, err
		}
	} else if en, ok, err := c.entry(); err != nil {
		return nil, err
	} else if ok {
		v, _, err := c.tx.entryValue(en)
		return v, err
	}
	f := c.tree.found()
	if f.op == nil && f.cell.Kind() == btree.Logged {
		c.noteValue(f.cell.Ref())
	}
	return c.tx.foundValue(f)
}

// noteValue counts values for noteScan, and passes them on some at a time.
func (c *Cursor) noteValue(ref btree.Ref) {
	if c.order.next(ref); c.order.values < scatterValues {
		return
	}
	c.tx.e.maintenance.noteScan(c.tree.Leaf(), &c.order)
	c.order = scanOrder{}
}

// ValueReader returns a reader of the record's value, and the value's length in bytes.
func (c *Cursor) ValueReader() (r io.Reader, length int64, err error) {
	switch en, ok, err := c.entry(); {
	case err != nil:
		return nil, 0, err
	case ok:
		r, length = c.tx.entryReader(en)
		return r, length, nil
	}
	return c.tx.foundReader(c.tree.found())
}

// entry returns the record if the transaction has written it; ok is false if the record is the tree's.
func (c *Cursor) entry() (en writeset.Entry, ok bool, err error) {
	if err := c.Err(); err != nil {
		return en, false, err
	}
	if en, ok = c.merge.Entry(); ok || c.tx.readOnly {
		return en, ok, nil
	}
	defer func() { // the record may have been cut since the move
		if !ok && err == nil && turnsOf(c.tx) != c.turns && c.tx.cuts.has(c.merge.Key()) {
			en, ok = writeset.Entry{Key: c.merge.Key(), Deleted: true}, true
		}
	}()
	if c.tx.set.Spilled() == nil {
		return en, false, nil
	}
	if turnsOf(c.tx) != c.turns { // the entry may have been spilled since the move
		if en, ok, err = c.tx.set.Find(c.merge.Key()); ok || err != nil {
			return en, ok, err
		}
	}
	if c.over != nil {
		return c.over.Entry()
	}
	return writeset.Entry{}, false, nil
}

// Err returns the first error of a move.
func (c *Cursor) Err() error {
	if c.err != nil {
		return c.err
	}
	return c.merge.Err()
}
