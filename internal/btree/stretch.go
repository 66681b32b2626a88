package btree

// Stretch returns the leaf with the record under the cursor, its index there, and the index behind the last of the leaf's records below
// to; nil is no bound. A caller that goes over them by itself, and tells the cursor by MoveTo where it is, spares a call for each.
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

// Leaf returns the leaf with the record under the cursor.
func (c *Cursor) Leaf() Node {
	c.mustBeValid()
	return c.leaf
}

// MoveTo stands the cursor on another record of the leaf that Stretch returned.
func (c *Cursor) MoveTo(index int) { c.land(c.leaf, index) }

// fetchNext reads ahead the beginning of the next leaf below the same parent: a scan finds it in the cache when it gets there. An error
// is for the move that goes there.
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
