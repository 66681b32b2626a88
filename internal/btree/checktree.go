package btree

import (
	"bytes"
	"fmt"
)

// CheckTree walks the tree under root in snapshot p and checks what CheckPage cannot check in a single page: the
// level of each page is one below its parent's, the keys of a leaf are above those of the previous leaf and within
// the bounds of all its ancestors, only the root may be an empty leaf, and the runs of long keys hold these keys.
// It calls visit for each page in key order, parents before their children, and stops at the first error. It
// returns the number of records. Because levels descend and keys ascend, it ends on any tree, after at most as
// many pages as such a tree can have.
func CheckTree(p Pager, root PageID, visit func(id PageID, n Node) error) (records int64, err error) {
	return CheckWhole(p, root, visit, func(f Fault) error { return f.Err })
}

// A Fault is damage that CheckWhole found, with the keys that it covers.
type Fault struct {
	Page      PageID // name of the damaged page, or of the leaf that has the damaged record
	Low, High []byte // keys that the page should hold: from Low on and below High; an empty High is above all keys. The caller may keep the slices
	Record    bool   // only the record with the key Low is damaged; if its key cannot be read whole, Low is the part in the leaf
	Err       error
}

// CheckWhole is CheckTree that continues after damage. It calls fault for each damaged page and for each record
// whose key cannot be read, and ends when fault returns an error. It skips the subtree of a damaged page, and the
// rest of a leaf after the first key out of order. An error of visit counts as damage of its page. In a malformed
// tree nodes may share children, and there may be many more paths than pages: visit should return an error for a
// page that it sees a second time.
func CheckWhole(p Pager, root PageID, visit func(id PageID, n Node) error, fault func(Fault) error) (records int64, err error) {
	c := treeCheck{pager: p, visit: visit, fault: fault}
	n, err := rootNode(p, root)
	if err != nil {
		return 0, c.found(root, bound{}, bound{}, err)
	}
	if n.IsLeaf() && n.Count() == 0 {
		if err := visit(root, n); err != nil {
			return 0, c.found(root, bound{}, bound{}, err)
		}
		return 0, nil
	}
	err = c.node(root, n, bound{}, bound{})
	return c.records, err
}

type treeCheck struct {
	pager   Pager
	visit   func(PageID, Node) error
	fault   func(Fault) error
	records int64
	last    []byte // the whole key of the record before
	any     bool   // there was a record before
}

// found reports damage of a page with the given bounds. An error that it returns ends the walk.
func (c *treeCheck) found(id PageID, low, high bound, err error) error {
	return c.fault(Fault{Page: id, Low: bytes.Clone(low.bytes), High: bytes.Clone(high.bytes), Err: err})
}

// bound is a separator of an ancestor; set is false if there is none. A cut separator stands for the first key
// below its child.
type bound struct {
	separator
	set bool
}

func (c *treeCheck) node(id PageID, n Node, low, high bound) error {
	if err := c.visit(id, n); err != nil {
		return c.found(id, low, high, err)
	}
	if n.Count() == 0 {
		return c.found(id, low, high, fmt.Errorf("%w: page %#x is empty", ErrMalformed, id))
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
			if err = c.found(child, from, to, err); err != nil {
				return err
			}
			continue
		}
		if err := c.separators(id, n, i, low, high); err != nil {
			if err = c.found(id, from, to, err); err != nil {
				return err
			}
			continue
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
		cell := n.Cell(i)
		key, err := cell.WholeKey(c.pager)
		if err != nil {
			if err = c.fault(Fault{Page: id, Low: bytes.Clone(cell.Key()), Record: true, Err: err}); err != nil {
				return err
			}
			continue
		}
		wrong := ""
		switch {
		case c.any && bytes.Compare(c.last, key) >= 0:
			wrong = "out of order"
		case low.set && bytes.Compare(key, low.bytes) < 0:
			wrong = "below its bound"
		case high.set && !belowHigh(key, high):
			wrong = "not below its bound"
		}
		if wrong != "" {
			return c.found(id, low, high, fmt.Errorf("%w: record %d of page %#x is %s", ErrMalformed, i, id, wrong))
		}
		c.last, c.any = append(c.last[:0], key...), true
		c.records++
	}
	return nil
}

// belowHigh reports whether key may lie before the child with the lower bound high. If high is cut and key starts
// with it, key may be on either side; the comparison with the next child's first key then tells.
func belowHigh(key []byte, high bound) bool {
	return bytes.Compare(key, high.bytes) < 0 || high.cut && bytes.HasPrefix(key, high.bytes)
}
