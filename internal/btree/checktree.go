package btree

import (
	"bytes"
	"fmt"
)

// CheckTree walks the tree under root as p shows it and checks what a page alone cannot tell: that levels go down by one, that the keys
// of a leaf follow those of the leaf before it and lie within all bounds above, that no leaf but a root is empty, and that long keys
// are what their records say. It calls visit for each page, parents before their children, in key order, and stops at its first error. It returns the number of
// records. Since levels go down and keys up, it ends on any tree, after at most as many pages as the tree can have.
func CheckTree(p Pager, root PageID, visit func(id PageID, n Node) error) (records int64, err error) {
	n, err := rootNode(p, root)
	if err != nil {
		return 0, err
	}
	c := treeCheck{pager: p, visit: visit}
	if n.IsLeaf() && n.Count() == 0 {
		return 0, visit(root, n)
	}
	err = c.node(root, n, bound{}, bound{})
	return c.records, err
}

type treeCheck struct {
	pager   Pager
	visit   func(PageID, Node) error
	records int64
	last    []byte // the key before, whole
	any     bool   // there was one
}

// bound is a separator somewhere above; without is none. A cut one gives way to the first key below its child.
type bound struct {
	separator
	set bool
}

func (c *treeCheck) node(id PageID, n Node, low, high bound) error {
	if err := c.visit(id, n); err != nil {
		return err
	}
	if n.Count() == 0 {
		return fmt.Errorf("%w: page %#x is empty", ErrMalformed, id)
	}
	if n.IsLeaf() {
		return c.leaf(id, n, low, high)
	}
	for i := range n.Count() {
		from, to := low, high
		if i > 0 {
			from = boundAt(n, i)
		}
		if i+1 < n.Count() {
			to = boundAt(n, i+1)
		}
		child, cn, err := childNode(c.pager, n, i)
		if err != nil {
			return err
		}
		if err := c.separators(id, n, i, low, high); err != nil {
			return err
		}
		if err := c.node(child, cn, from, to); err != nil {
			return err
		}
	}
	return nil
}

func boundAt(n Node, i int) bound {
	s, cut := n.Separator(i, nil)
	return bound{separator{s, cut}, true}
}

// separators checks that separator i of an inner node lies within the bounds of the node.
func (c *treeCheck) separators(id PageID, n Node, i int, low, high bound) error {
	if i == 0 {
		return nil
	}
	s := boundAt(n, i)
	if low.set && !low.precedes(s.separator) || high.set && !s.precedes(high.separator) {
		return fmt.Errorf("%w: separator %d of page %#x is out of its bounds", ErrMalformed, i, id)
	}
	return nil
}

func (c *treeCheck) leaf(id PageID, n Node, low, high bound) error {
	for i := range n.Count() {
		key, err := n.Cell(i).WholeKey(c.pager)
		if err != nil {
			return err
		}
		switch {
		case c.any && bytes.Compare(c.last, key) >= 0:
			return fmt.Errorf("%w: record %d of page %#x is out of order", ErrMalformed, i, id)
		case low.set && bytes.Compare(key, low.bytes) < 0:
			return fmt.Errorf("%w: record %d of page %#x is below its bound", ErrMalformed, i, id)
		case high.set && !belowHigh(key, high):
			return fmt.Errorf("%w: record %d of page %#x is not below its bound", ErrMalformed, i, id)
		}
		c.last, c.any = append(c.last[:0], key...), true
		c.records++
	}
	return nil
}

// belowHigh reports whether key may lie before the child with the lower bound high. Of keys that start with a cut bound, the order of
// keys tells: the next child's first one is above.
func belowHigh(key []byte, high bound) bool {
	return bytes.Compare(key, high.bytes) < 0 || high.cut && bytes.HasPrefix(key, high.bytes)
}
