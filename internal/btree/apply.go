package btree

import (
	"bytes"
	"fmt"
)

// Result is the outcome of a batch.
type Result struct {
	Added int64 // records inserted minus records deleted
}

// Apply applies to the tree under root a batch of ops whose keys ascend strictly. Each page is visited once, and
// gets one new version, even if many ops change it. Deleting an absent key makes no new version, unless the op
// has Marks. The root keeps its name.
//
// Errors come from the Editor, or wrap ErrMalformed. After an error some pages have the new state and some the old:
// the caller must discard the working tree and not publish it.
func Apply(e Editor, root PageID, ops []Op) (Result, error) {
	if len(ops) == 0 {
		return Result{}, nil
	}
	n, err := rootNode(e, root)
	if err != nil {
		return Result{}, err
	}
	if err := ascending(ops); err != nil {
		return Result{}, err
	}
	a := &e.Memory().apply
	a.start(e)
	err = a.run(root, n, ops)
	added := a.added
	a.start(nil)
	return Result{Added: added}, err
}

// ascending returns an error unless the keys of ops ascend strictly. A batch out of order would break the order of
// the tree permanently. The check is needed because the keys may come from a file.
func ascending(ops []Op) error {
	for i := 1; i < len(ops); i++ {
		if bytes.Compare(ops[i-1].Key, ops[i].Key) >= 0 {
			return fmt.Errorf("%w: keys of a batch do not ascend", ErrMalformed)
		}
	}
	return nil
}

// applier is the state of one Apply, and scratch space kept between calls. The frames of the path share the stacks:
// each frame uses the entries above the length that it found, and cuts the stack back to that length.
type applier struct {
	leafEdit

	path    [MaxHeight]frame
	pieces  []piece  // stack: right siblings that a child was split into, for its parent
	changes []change // stack: changes to the children of inner nodes
	shrunk  []int    // stack: children that may have become too small
	entries []entry  // stack: children of the inner node being rebuilt
	near    []PageID // children being fetched together
	text    []byte   // separators made in this batch; slices of it stay valid when it grows
}

// leafEdit has the changes of the batch to the current leaf.
type leafEdit struct {
	e     Editor
	m     *Memory
	added int64 // records added less records deleted, so far in this batch

	edits  []edit
	items  []item // its records, if it is being split
	refs   bool   // the edits add or remove references
	marked bool   // a delete with Op.Marks found no record: the leaf gets a new version all the same
	even   bool   // the leaf with the edits is known to be even
}

func (a *applier) start(e Editor) {
	a.e, a.m, a.added = e, nil, 0
	if e != nil {
		a.m = e.Memory()
	}
	clear(a.edits) // they refer to the caller's ops
	a.edits, a.pieces, a.changes, a.shrunk, a.entries = a.edits[:0], a.pieces[:0], a.changes[:0], a.shrunk[:0], a.entries[:0]
	a.text = a.text[:0]
}

// state is the effect of a batch on a node. A node that is neither unchanged nor removed has a new version. In
// each state the node may have been split: its new right siblings are then on the stack of pieces.
type state uint8

const (
	unchanged state = iota
	changed
	grown   // an inner node with a new version, in which only leaves below it grew: see grows
	removed // the node has no records left
)

// piece is a new right sibling of a node that was split.
type piece struct {
	separator
	node Node
}

// separator is the lower bound of a child. A cut separator stands for the first key below the child: see
// layout.go.
type separator struct {
	bytes []byte
	cut   bool
}

// precedes reports whether t may follow s in a node: s is below t, or equal to t and t is cut.
func (s separator) precedes(t separator) bool {
	o := bytes.Compare(s.bytes, t.bytes)
	return o < 0 || o == 0 && t.cut
}

// frame is an inner node on the path from the root to the current leaf. The leaves below it get their ops from left
// to right; when no ops are left for it, the node itself gets its new version.
type frame struct {
	id              PageID
	node            Node
	index           int  // index of the current child; the children before it may have new versions already
	end             int  // index of the first op that does not belong below the node
	last            bool // the node is the last of its level
	changes, shrunk int  // lengths of the two stacks when the frame began
	fetched         int  // at level 1: children before this index were fetched, or have too few ops to be fetched together

	ahead struct { // the next child after the current one that has ops, found by lookAhead
		index int // 0: not found yet
		id    PageID
		node  Node
	}
}

// run applies all ops.
func (a *applier) run(root PageID, n Node, ops []Op) error {
	depth, id, last := 0, root, true
	done, end := 0, len(ops)
	for {
		for !n.IsLeaf() {
			f := &a.path[depth]
			f.id, f.node, f.index, f.end, f.last = id, n, 0, end, last
			f.changes, f.shrunk, f.ahead.index, f.fetched = len(a.changes), len(a.shrunk), 0, 0
			depth++
			var err error
			if id, n, end, last, err = a.next(f, ops, done); err != nil {
				return err
			}
		}
		if depth > 0 {
			a.lookAhead(&a.path[depth-1], ops, end)
		}
		v, became, err := a.leaf(n, ops[done:end], last)
		if err != nil {
			return err
		}
		if depth > 0 && a.losesFirst() {
			if err := a.cutRises(depth, n); err != nil {
				return err
			}
		}
		for done = end; ; depth-- {
			if depth == 0 {
				return a.root(root, n, v, became)
			}
			f := &a.path[depth-1]
			if became != unchanged || len(a.pieces) > 0 {
				if err := a.installChild(depth-1, id, n, v, became); err != nil {
					return err
				}
			}
			if done < f.end {
				if id, n, end, last, err = a.next(f, ops, done); err != nil {
					return err
				}
				break
			}
			id, n, became = f.id, f.node, unchanged
			if len(a.changes) > f.changes || len(a.shrunk) > f.shrunk {
				if v, became, err = a.reshape(f); err != nil {
					return err
				}
			}
		}
	}
}

// root installs v, the new version of the root n. The root keeps its name: if it was split, its parts get new
// names and the root becomes their parent; if it has a single child left, it takes over the content of that
// child.
func (a *applier) root(root PageID, n, v Node, became state) error {
	if became == removed {
		a.e.Put(root, EmptyLeaf(a.m))
		return nil
	}
	for level := n.Level() + 1; len(a.pieces) > 0; level++ {
		if level > MaxHeight {
			return fmt.Errorf("%w: more than %d levels", ErrMalformed, MaxHeight)
		}
		if became == unchanged {
			v = n.Own(a.m) // the image belongs to the name of the root
		}
		a.entries = append(a.entries[:0], entry{id: a.bear(v)})
		for _, p := range a.pieces {
			a.entries = append(a.entries, entry{separator: p.separator, id: a.bear(p.node)})
		}
		a.pieces = a.pieces[:0]
		var err error
		if v, err = a.splitInner(level, a.entries, true); err != nil {
			return err
		}
		became = changed
	}
	if became == unchanged {
		return nil
	}
	top, under := v, PageID(0)
	for !top.IsLeaf() && top.Count() == 1 {
		id, child, err := childNode(a.e, top, 0)
		if err != nil {
			return err
		}
		if top != v {
			a.e.Remove(under)
		}
		top, under = child, id
	}
	if top != v {
		v.Release(a.m)
		v = top.Own(a.m)
		a.e.Remove(under)
	}
	a.e.Put(root, v)
	return nil
}

// bear gives a new page a new name.
func (a *applier) bear(n Node) PageID {
	id := a.e.New()
	a.e.Put(id, n)
	return id
}
