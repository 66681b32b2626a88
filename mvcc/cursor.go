package mvcc

import (
	"bytes"

	"flashdbm/internal/btree"
	"flashdbm/override"
)

// Cursor moves over the records that a transaction sees, its own writes included, in key order. It is positioned by key: writing or
// deleting through the transaction never makes it skip or repeat a record. See Merge.
type Cursor struct {
	tx    *Tx
	tree  btree.Cursor
	merge Merge
	err   error
	span  *keyRange // serializable: what the moves since the last positioning have covered
}

var nothingWritten WriteSet // the write set of a transaction that cannot write

// Cursor returns a new cursor. It is nowhere: Next goes to the first record, Prev to the last.
func (tx *Tx) Cursor() *Cursor {
	c := &Cursor{tx: tx}
	c.Reset()
	return c
}

// Reset puts the cursor back where it was when it was made.
func (c *Cursor) Reset() {
	tx := c.tx
	c.tree.Reset(&tx.snap, override.Root)
	set := &nothingWritten
	if !tx.readOnly {
		set = tx.writes()
	}
	c.merge, c.err, c.span = NewMerge(&c.tree, set), nil, nil
}

// First, Last, Next, Prev and Seek move and report whether they found a record. Seek goes to the first record at or after key; after it
// has failed, Prev goes to the last record. Next past the end stays there and Prev goes to the last record; likewise at the start.
func (c *Cursor) First() bool { return c.begin() && c.covered(c.merge.First(), nil, true) }

// Last: see First.
func (c *Cursor) Last() bool { return c.begin() && c.covered(c.merge.Last(), nil, false) }

// Seek: see First.
func (c *Cursor) Seek(key []byte) bool {
	return c.begin() && c.covered(c.merge.Seek(key), key, true)
}

// Next: see First.
func (c *Cursor) Next() bool { return c.ready() && c.passed(c.merge.Next(), true) }

// Prev: see First.
func (c *Cursor) Prev() bool { return c.ready() && c.passed(c.merge.Prev(), false) }

func (c *Cursor) ready() bool {
	c.tx.readAny = true
	if c.err == nil {
		c.err = c.tx.Expired()
	}
	if c.err == nil {
		c.err = c.tx.see()
	}
	return c.err == nil
}

func (c *Cursor) begin() bool {
	c.span = nil
	return c.ready()
}

// covered notes for a serializable transaction what a positioning has read: from its start to the record found or to the end.
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
	c.span = span
	return found
}

// passed widens what was read by a step. A step back over what was read already leaves it as it is.
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
	return found
}

// behind returns the least key after the record the cursor is on, nil past the end.
func (c *Cursor) behind(found bool) []byte {
	if !found {
		return nil
	}
	return append(bytes.Clone(c.merge.Key()), 0)
}

// Key returns the key of the record that the last move has found, nil if it is long and cannot be read: see Err. It is valid until the
// transaction ends.
func (c *Cursor) Key() []byte { return c.merge.Key() }

// Value returns its value, with the same lifetime.
func (c *Cursor) Value() ([]byte, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	if en, ok := c.merge.Entry(); ok {
		v, _, err := c.tx.entryValue(en)
		return v, err
	}
	return c.tx.cellValue(c.tree.Cell())
}

// Err returns the first error of a move.
func (c *Cursor) Err() error {
	if c.err != nil {
		return c.err
	}
	return c.merge.Err()
}
