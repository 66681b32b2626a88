package mvcc

import (
	"bytes"

	"flashdbm/internal/btree"
)

// loggedAhead is how many logged values are prefetched together. They may be anywhere in the log, and the memory
// system overlaps such loads only if no instruction in between waits for one of them.
const loggedAhead = 16

// Stretch calls yield for the cursor's record and for the following ones that are in the same page, below to (nil for
// no bound) and completely in that page or in the log, without the work that Next does for each. It stops where the
// transaction has written something, or when yield returns false, and leaves the cursor on the last record that it
// yielded. more is false if yield wanted no more or has ended the transaction. any is false if the cursor's record is
// not suited: then the caller reads it by Key and Value, and checks to itself.
func (c *Cursor) Stretch(to []byte, yield func(key, value []byte) bool) (any, more bool) {
	if c.tx.reads != nil || !c.bare() || !c.tree.Valid() {
		return false, true
	}
	if c.tree.above {
		if c.tree.over.Op() != nil || !c.tree.over.Forward() {
			return false, true
		}
		if bound := c.tree.over.Bound(); bound != nil && (to == nil || bytes.Compare(bound, to) < 0) {
			to = bound
		}
		defer func() {
			if any {
				c.tree.over.TreeMoved()
			}
		}()
	}
	leaf, i, end, err := c.tree.Stretch(to)
	if err != nil {
		return false, true
	}
	from := i
	ahead := i
	more = true
	for ; more && i < end; i++ {
		cell := leaf.Cell(i)
		value := cell.Value()
		switch kind := cell.Kind(); {
		case kind == btree.Logged:
			if i >= ahead {
				ahead = c.fetchAhead(leaf, i, end)
			}
			if value, err = c.tx.snap.Logged(cell.Key(), cell.Ref()); err != nil {
				if i > from {
					c.tree.MoveTo(i - 1)
				}
				return i > from, true // Value reports the error
			}
		case kind != btree.Inline || cell.IsLong():
			if i == from {
				return false, true
			}
			c.tree.MoveTo(i - 1)
			return true, true
		}
		more = yield(cell.Key(), value)
		if c.tx.ended { // the leaf may be gone, and the set may belong to another transaction; the next move says so
			return true, more
		}
		if !c.bare() {
			i++
			break
		}
	}
	if i == from {
		return false, true
	}
	c.tree.MoveTo(i - 1)
	return true, more
}

// Step is Next for a cursor on a record, where nothing but the leaf has to be looked at: the transaction is read-only,
// the memtables have no entries, and the following record is in the same leaf with its whole key and value. ok is false
// if any of this does not hold: then the cursor has not moved.
func (c *Cursor) Step() (key, value []byte, ok bool) {
	if c.tree.above || !c.tx.readOnly || c.tx.reads != nil {
		return nil, nil, false
	}
	return c.tree.Step()
}

// fetchAhead prefetches the next logged values of a leaf, from record i to end, and returns the index of the record
// after them.
func (c *Cursor) fetchAhead(leaf btree.Node, i, end int) int {
	var order scanOrder
	end = min(end, i+loggedAhead)
	for ; i < end; i++ {
		if cell := leaf.Cell(i); cell.Kind() == btree.Logged {
			ref := cell.Ref()
			order.next(ref)
			if !c.ordered {
				c.tx.snap.Touch(ref)
			}
			c.tx.snap.Ahead(ref)
		}
	}
	c.ordered = !order.scattered()
	c.tree.Apart = !c.ordered
	c.tx.e.maintenance.noteScan(leaf, &order)
	return end
}
