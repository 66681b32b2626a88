package btree

// Stretch returns the leaf with the record under the cursor, the record's index there, and the index after the
// last record of the leaf below to (nil: no bound). A caller can iterate over these records by itself, without a
// call for each, and then set the cursor by MoveTo.
func (c *Cursor) Stretch(to []byte) (leaf Node, index, end int, err error) {
	c.mustBeValid()
	end = c.leaf.Count()
	if to != nil {
		if end, _, err = c.leaf.find(c.pager, to); err != nil {
			c.fail(err)
			return Node{}, 0, 0, err
		}
	}
	c.fetchNext()
	return c.leaf, c.index, end, nil
}

// Step is Next for the usual case that the following record is in the same leaf with its whole key and value: it
// returns them, and ok is true. Otherwise ok is false and the cursor has not moved.
func (c *Cursor) Step() (key, value []byte, ok bool) {
	if c.place != onRecord || c.index+1 >= c.leaf.Count() {
		return nil, nil, false
	}
	cell := c.leaf.Cell(c.index + 1)
	if cell.Kind() != Inline || cell.IsLong() {
		return nil, nil, false
	}
	if c.index == 0 {
		c.fetchNext()
	}
	c.index++
	c.cell = cell
	return cell.Key(), cell.Value(), true
}

// Leaf returns the leaf with the record under the cursor.
func (c *Cursor) Leaf() Node {
	c.mustBeValid()
	return c.leaf
}

// MoveTo puts the cursor on another record of the leaf that Stretch returned.
func (c *Cursor) MoveTo(index int) { c.land(c.leaf, index) }

// fetchNext prefetches the beginning of the next leaf below the same parent, so that a scan finds it in the cache.
// It ignores errors: the move to that leaf returns them.
func (c *Cursor) fetchNext() {
	if c.depth == 0 {
		return
	}
	s := &c.path[c.depth-1]
	if i := s.index + 1; i < s.node.Count() {
		if _, n, err := childNode(c.pager, s.node, i); err == nil {
			fetch(n.dir, fetchDirectory)
		}
	}
}
