package btree

import (
	"bytes"
	"fmt"
)

// Cut removes the records from from on and below to (nil: all that follow). The subtrees between the leaf of from
// and the leaf of to are removed whole, without a search for each record. Each of their pages is read once, for its
// number of records and for its references, which are passed to Editor.Drop. Inner nodes change only on the two
// paths, and where small nodes are merged. In the two leaves at the ends, the records are deleted by a batch.
//
// Errors are as with Apply.
func Cut(e Editor, root PageID, from, to []byte) (Result, error) {
	if to != nil && bytes.Compare(from, to) >= 0 {
		return Result{}, nil
	}
	var r Result
	c := cutter{a: &e.Memory().apply, root: root, from: from, to: to}
	for _, c.left = range []bool{true, false} {
		for again := true; again; {
			c.a.start(e)
			var err error
			again, err = c.beside()
			r.Added += c.a.added
			c.a.start(nil)
			if err != nil {
				return r, err
			}
		}
	}
	edges, err := deletesOf(e, root, from, to)
	if err != nil {
		return r, err
	}
	d, err := Apply(e, root, edges)
	r.Added += d.Added
	return r, err
}

// cutter is the state of a Cut.
type cutter struct {
	a        *applier
	root     PageID
	from, to []byte
	left     bool // the current path leads to the key from, otherwise to the key to
}

// beside removes the children of one node that lie between the path to the key from and the path to the key to.
// The node is the first on the current path that has such children. beside reports whether there was one.
//
// Invariant: a child between the two paths has only keys of the range. The path to the key from leads through
// an earlier child, so every key that a search can find below the child is above from; the same holds for to.
func (c *cutter) beside() (cut bool, err error) {
	a, from, to, left := c.a, c.from, c.to, c.left
	n, err := rootNode(a.e, c.root)
	if err != nil || !left && to == nil { // the path to the end has nothing on its right
		return false, err
	}
	depth, id, last := 0, c.root, true
	for together := true; !n.IsLeaf(); depth++ {
		f := &a.path[depth]
		f.id, f.node, f.last = id, n, last
		f.changes, f.shrunk, f.ahead.index, f.fetched = len(a.changes), len(a.shrunk), 0, 0
		i, j := -1, n.Count() // the children between i and j are removed
		if left || together {
			if i, err = n.route(a.e, from, 0); err != nil {
				return false, err
			}
		}
		if to != nil && (!left || together) {
			if j, err = n.route(a.e, to, 0); err != nil {
				return false, err
			}
		}
		switch {
		case i+1 < j:
			return true, c.children(depth, i+1, j)
		case i > j:
			return false, fmt.Errorf("%w: separators of page %#x are out of order", ErrMalformed, id)
		}
		together = together && i == j
		if f.index = j; left {
			f.index = i
		}
		last = last && f.index == n.Count()-1
		if id, n, err = childNode(a.e, n, f.index); err != nil {
			return false, err
		}
	}
	return false, nil
}

// children removes the children first to end-1 of the last node of the path, and then changes the nodes above it.
func (c *cutter) children(depth, first, end int) error {
	a := c.a
	f := &a.path[depth]
	for i := first; i < end; i++ {
		c.ahead(f.node, i, (i-first)%nearLeaves, end)
		if err := c.removeAll(f.node.Child(i), f.node.Level()-1); err != nil {
			return err
		}
		a.changes = append(a.changes, change{at: i, gone: true})
	}
	v, became, err := a.reshape(f)
	if err != nil {
		return err
	}
	return climb(a, c.root, depth, v, became)
}

// removeAll removes the pages of a subtree and drops the references of its leaves.
func (c *cutter) removeAll(id PageID, level int) error {
	a := c.a
	n, err := a.entryNode(level, id)
	if err != nil {
		return err
	}
	if n.IsLeaf() {
		a.added -= int64(n.Count())
		dropAll(a.e, n)
	}
	for i := 0; !n.IsLeaf() && i < n.Count(); i++ {
		c.ahead(n, i, i%nearLeaves, n.Count())
		if err := c.removeAll(n.Child(i), level-1); err != nil {
			return err
		}
	}
	a.e.Remove(id)
	return nil
}

// ahead announces the children from i to end-1, at most nearLeaves of them, to the Editor if done is 0: once for
// each such group.
func (c *cutter) ahead(n Node, i, done, end int) {
	if done > 0 {
		return
	}
	a := c.a
	a.near = a.near[:0]
	for j := i; j < min(i+nearLeaves, end); j++ {
		a.near = append(a.near, n.Child(j))
	}
	a.e.Ahead(a.near)
}

// dropAll drops the references of a leaf.
func dropAll(e Editor, n Node) {
	if n.Count() > 0 && n.even() && n.Cell(0).Kind() == Inline { // all records of an even leaf have the same kind
		return
	}
	for i := range n.Count() {
		if c := n.Cell(i); c.Kind() != Inline {
			e.Drop(c.Ref())
		}
	}
}

// deletesOf returns a delete for each record of a range.
func deletesOf(e Editor, root PageID, from, to []byte) (ops []Op, err error) {
	var c Cursor
	c.Reset(e, root)
	for ok := c.Seek(from); ok; ok = c.Next() {
		key := c.Key()
		if c.Err() != nil || to != nil && bytes.Compare(key, to) >= 0 {
			break
		}
		ops = append(ops, Op{Key: bytes.Clone(key), Delete: true}) // copied: the page may be freed before the deletes are applied
	}
	return ops, c.Err()
}
