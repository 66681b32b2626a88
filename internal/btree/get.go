package btree

// Get returns the record with the given key in the tree under root, if there is one. The Cell lives as long as the
// snapshot p. Get takes no lock, and does not allocate unless p does.
func Get(p Pager, root PageID, key []byte) (Cell, bool, error) {
	n, err := rootNode(p, root)
	if err != nil {
		return Cell{}, false, err
	}
	for !n.IsLeaf() {
		i, err := n.route(p, key, 0)
		if err != nil {
			return Cell{}, false, err
		}
		if _, n, err = childNode(p, n, i); err != nil {
			return Cell{}, false, err
		}
	}
	return n.lookup(p, key)
}

// Leaf returns the name of the leaf below root in which the record with the given key is, or would be. It does not
// read the leaf.
func Leaf(p Pager, root PageID, key []byte) (PageID, error) {
	n, err := rootNode(p, root)
	if err != nil {
		return 0, err
	}
	id := root
	for !n.IsLeaf() {
		i, err := n.route(p, key, 0)
		if err != nil {
			return 0, err
		}
		if n.Level() == 1 {
			return n.Child(i), nil
		}
		if id, n, err = childNode(p, n, i); err != nil {
			return 0, err
		}
	}
	return id, nil
}
