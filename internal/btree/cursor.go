package btree

import (
	"bytes"
	"fmt"
)

// Cursor walks over the records of one snapshot in key order, in both directions. It is on a record, before the
// first or after the last. A zero Cursor must be Reset before use. A Cursor may be Reset any number of times, and
// does not allocate. Only one goroutine at a time may use it.
//
//	after                  Next goes to    Prev goes to
//	Reset                  the first       the last
//	Next off the end       nothing         the last
//	Prev off the start     the first       nothing
//	Seek past the end      nothing         the last
//
// Methods that move report whether the cursor is on a record afterwards. If a move fails, Err returns the error,
// and the cursor must be Reset.
type Cursor struct {
	pager Pager
	root  PageID
	err   error
	place place
	leaf  Node // the leaf with the record
	index int  // of the record
	cell  Cell // the record
	depth int  // inner nodes above leaf
	path  [MaxHeight]step
	// Apart is set by the caller if the cursor's walk does not follow the order of the pages in the file. The
	// system's read-ahead is then of no use, and the cursor announces the leaves that it will need. Reset
	// clears Apart.
	Apart bool
	told  int // how many further moves to another leaf of the same parent need no announcement
}

// step is an inner node on the path to the cursor's leaf, with the child that was taken.
type step struct {
	node  Node
	index int
}

type place uint8

const (
	nowhere place = iota
	onRecord
	beforeFirst
	afterLast
)

// Reset makes c a cursor over the tree under root in snapshot p. It reads no pages.
func (c *Cursor) Reset(p Pager, root PageID) {
	c.pager, c.root, c.err, c.place, c.depth, c.Apart, c.told = p, root, nil, nowhere, 0, false, 0
	c.leaf = Node{}
}

// Err returns the error of the last move, or of Key, or nil.
func (c *Cursor) Err() error { return c.err }

// Valid reports whether the cursor is on a record.
func (c *Cursor) Valid() bool { return c.place == onRecord }

// Cell returns the record under the cursor, which must be on one.
func (c *Cursor) Cell() Cell {
	c.mustBeValid()
	return c.cell
}

// Key returns the whole key of the record under the cursor, which must be on one. If a long key cannot be fetched,
// Key returns nil and Err the error; the cursor must then be Reset, and Key returns nil until it is.
func (c *Cursor) Key() []byte {
	if c.err != nil {
		return nil
	}
	cell := c.Cell()
	if !cell.IsLong() {
		return cell.Key()
	}
	k, err := longKey(c.pager, cell)
	if err == nil {
		err = c.tied(k)
	}
	if err != nil {
		c.fail(err)
		return nil
	}
	return k
}

// tied returns an error if the current record and the one before it in the leaf have long keys with the same
// inline part that do not ascend. CheckPage compares only inline parts. nextLeaf and previousLeaf do the
// comparison with the last record of the previous leaf.
func (c *Cursor) tied(key []byte) error {
	if c.index == 0 {
		return nil
	}
	before := c.leaf.Cell(c.index - 1)
	if !before.IsLong() || !bytes.Equal(before.Key(), c.cell.Key()) {
		return nil
	}
	o, err := compareCell(c.pager, key, before)
	if err == nil && o <= 0 {
		err = fmt.Errorf("%w: two long keys of a page are out of order", ErrMalformed)
	}
	return err
}

// Value returns the value of the record under the cursor, which must be on one, if it is Inline; otherwise nil, and
// Cell has the Ref.
func (c *Cursor) Value() []byte { return c.Cell().Value() }

func (c *Cursor) mustBeValid() {
	if c.place != onRecord {
		panic("btree: cursor is not on a record")
	}
}

// First moves to the first record.
func (c *Cursor) First() bool { return c.start() && c.descend(c.leaf, true) }

// Last moves to the last record.
func (c *Cursor) Last() bool { return c.start() && c.descend(c.leaf, false) }

// Seek moves to the first record with a key >= key, or after the last record if there is none.
func (c *Cursor) Seek(key []byte) bool {
	if !c.start() {
		return false
	}
	n := c.leaf
	for !n.IsLeaf() {
		i, err := n.route(c.pager, key, 0)
		if err != nil {
			return c.fail(err)
		}
		if p, ok := c.pager.(Prefetching); ok && n.Level() == 1 {
			p.PrefetchChildren(n, i, i+1) // only this leaf, because the walk may end in it
		}
		if n, err = c.enter(n, i); err != nil {
			return c.fail(err)
		}
	}
	i, _, err := n.find(c.pager, key)
	if err != nil {
		return c.fail(err)
	}
	if i < n.Count() {
		return c.land(n, i)
	}
	if !c.nextLeaf(n) {
		return false
	}
	if o, err := compareCell(c.pager, key, c.cell); err != nil || o > 0 {
		return c.disorder(err)
	}
	return true
}

// Next moves to the following record.
func (c *Cursor) Next() bool {
	switch c.place {
	case onRecord:
		if c.index++; c.index < c.leaf.Count() {
			c.cell = c.leaf.Cell(c.index)
			return true
		}
		return c.nextLeaf(c.leaf)
	case afterLast:
		return false
	}
	return c.err == nil && c.First()
}

// Prev moves to the preceding record.
func (c *Cursor) Prev() bool {
	switch c.place {
	case onRecord:
		if c.index > 0 {
			c.index--
			c.cell = c.leaf.Cell(c.index)
			return true
		}
		return c.previousLeaf(c.leaf)
	case beforeFirst:
		return false
	}
	return c.err == nil && c.Last()
}

// start sets leaf to the root, for a new descent.
func (c *Cursor) start() bool {
	if c.err != nil {
		return false
	}
	n, err := rootNode(c.pager, c.root)
	if err != nil {
		return c.fail(err)
	}
	c.leaf, c.depth = n, 0
	return true
}

// enter adds inner node n with its child i to the path, and returns the child.
func (c *Cursor) enter(n Node, i int) (Node, error) {
	_, child, err := childNode(c.pager, n, i)
	c.path[c.depth] = step{n, i}
	c.depth++
	return child, err
}

// descend moves from n to the first or the last record below it.
func (c *Cursor) descend(n Node, first bool) bool {
	for !n.IsLeaf() {
		i := 0
		if !first {
			i = n.Count() - 1
		}
		var err error
		if n, err = c.enter(n, i); err != nil {
			return c.fail(err)
		}
	}
	switch {
	case n.Count() == 0 && c.depth > 0:
		return c.fail(emptyError(c.path[c.depth-1]))
	case n.Count() == 0 && first:
		c.place = afterLast
		return false
	case n.Count() == 0:
		c.place = beforeFirst
		return false
	case first:
		return c.land(n, 0)
	}
	return c.land(n, n.Count()-1)
}

// land puts the cursor on record i of leaf n.
func (c *Cursor) land(n Node, i int) bool {
	c.leaf, c.index, c.cell, c.place = n, i, n.Cell(i), onRecord
	return true
}

// nextLeaf moves from leaf from to the first record of the next leaf. That record must be above the last one of
// from. So even in a malformed tree a walk meets no leaf twice, and ends after at most as many leaves as there are
// pages.
func (c *Cursor) nextLeaf(from Node) bool {
	for c.depth > 0 {
		c.depth--
		s := &c.path[c.depth]
		if i := s.index + 1; i < s.node.Count() {
			c.announce(s.node, i, min(i+nearLeaves, s.node.Count()))
			n, err := c.enter(s.node, i)
			if err != nil {
				return c.fail(err)
			}
			if !c.descend(n, true) {
				return false
			}
			if up, err := ascend(c.pager, from.Cell(from.Count()-1), c.cell); err != nil || !up {
				return c.disorder(err)
			}
			return true
		}
	}
	c.place = afterLast
	return false
}

// previousLeaf is nextLeaf in the other direction.
func (c *Cursor) previousLeaf(from Node) bool {
	for c.depth > 0 {
		c.depth--
		s := &c.path[c.depth]
		if i := s.index - 1; i >= 0 {
			c.announce(s.node, max(0, i+1-nearLeaves), i+1)
			n, err := c.enter(s.node, i)
			if err != nil {
				return c.fail(err)
			}
			if !c.descend(n, false) {
				return false
			}
			if up, err := ascend(c.pager, c.cell, from.Cell(0)); err != nil || !up {
				return c.disorder(err)
			}
			return true
		}
	}
	c.place = beforeFirst
	return false
}

// announce announces the children from to to-1 of an inner node, if Apart is set. It does so at the first move from one leaf to
// another below the same parent, and at each nearLeaves-th such move after that. So a walk over leaves that are not in the
// system's cache waits for the device once for all of them, and a walk that stays in one leaf announces nothing.
func (c *Cursor) announce(n Node, from, to int) {
	if !c.Apart {
		return
	}
	p, ok := c.pager.(Prefetching)
	if !ok || n.Level() > 1 {
		c.told = 0
		return
	}
	if c.told > 0 {
		c.told--
		return
	}
	c.told = nearLeaves - 1
	p.PrefetchChildren(n, from, to)
}

// ascend reports whether the key of b is above that of a.
func ascend(p Pager, a, b Cell) (bool, error) {
	if o := bytes.Compare(a.Key(), b.Key()); o != 0 || !a.IsLong() || !b.IsLong() {
		return o < 0 || o == 0 && b.IsLong() && !a.IsLong(), nil
	}
	key, err := longKey(p, a)
	if err != nil {
		return false, err
	}
	o, err := compareCell(p, key, b)
	return o < 0, err
}

// disorder fails with err, or, if err is nil, because the leaf just entered has keys that belong elsewhere.
func (c *Cursor) disorder(err error) bool {
	if err == nil {
		s := c.path[c.depth-1]
		err = fmt.Errorf("%w: keys of page %#x are out of order with those of the leaf beside it", ErrMalformed, s.node.Child(s.index))
	}
	return c.fail(err)
}

func (c *Cursor) fail(err error) bool {
	c.err, c.place = err, nowhere
	return false
}
