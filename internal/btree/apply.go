package btree

import (
	"bytes"
	"fmt"
)

// Result is what a batch did.
type Result struct {
	Added int64 // records inserted minus records deleted
}

// Apply changes the tree under root by a batch of ops, whose keys ascend, each once. Each page is touched once, and gets one new version
// however many of the ops change it; deleting what is not there makes none, unless the op marks. The root keeps its name.
//
// Errors come from the Editor, or from a malformed tree. After an error the working tree is of no use: some pages have the new state,
// some the old. The caller must not publish it.
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

// ascending returns an error unless the keys of ops ascend: a batch in disorder would break the order of the tree for good. Keys may come
// from a file.
func ascending(ops []Op) error {
	for i := 1; i < len(ops); i++ {
		if bytes.Compare(ops[i-1].Key, ops[i].Key) >= 0 {
			return fmt.Errorf("%w: keys of a batch do not ascend", ErrMalformed)
		}
	}
	return nil
}

// applier is the state of one Apply, and scratch space kept between calls. The stacks are shared by the frames of the path: each uses
// what lies above the length it found, and cuts back to that.
type applier struct {
	leafEdit

	path    [MaxHeight]frame
	pieces  []piece  // stack: right siblings that a child was split into, for its parent
	changes []change // stack: what became of an inner node's children
	shrunk  []int    // stack: children that may have become too small
	entries []entry  // stack: children of an inner node being rebuilt
	near    []PageID // leaves being fetched
	text    []byte   // separators made in this batch; what was handed out of it stays when it grows
}

// leafEdit is what the batch changes in the leaf at hand.
type leafEdit struct {
	e     Editor
	m     *Memory
	added int64 // records, by the batch so far

	edits  []edit
	items  []item // if it is being split
	refs   bool   // the edits change references
	marked bool   // a delete that found nothing wants a new version all the same: see Op.Marks
	even   bool   // with the edits it is even, as far as is known
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

// state is what a batch made of a node. What is changed has a new version. In any case the node may have got right siblings, which then
// are on the stack of pieces.
type state uint8

const (
	unchanged state = iota
	changed
	grown   // changed, an inner node, to which nothing has happened but that leaves below it grew: see grows
	removed // nothing is left of it
)

// piece is a right sibling of a node that was split.
type piece struct {
	separator
	node Node
}

// separator is a lower bound. If cut, it stands for the first key below its child, see layout.go.
type separator struct {
	bytes []byte
	cut   bool
}

// precedes reports whether t may come after s. If they are equal, t has to be a cut one.
func (s separator) precedes(t separator) bool {
	o := bytes.Compare(s.bytes, t.bytes)
	return o < 0 || o == 0 && t.cut
}

// frame is an inner node on the way from the root to the leaf at hand. The leaves below it get their ops from left to right; when none
// are left for it, it gets its own new version.
type frame struct {
	id              PageID
	node            Node
	index           int  // the child at hand; what those before it were is not known any more
	end             int  // ops before this one belong below the node
	last            bool // no node of its level follows it
	changes, shrunk int  // lengths of the stacks found
	fetched         int  // of level 1: children before this one were fetched, or are too far apart for that

	ahead struct { // the child after the one at hand that has ops
		index int // 0 if not known yet
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
				if err := a.settle(depth-1, id, n, v, became); err != nil {
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

// root puts what became of the root n in place. The root's name does not change: if it was split, its parts get new names and it becomes
// their parent; if it has one child left, it takes over the child's content.
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

// bear gives a new page a name.
func (a *applier) bear(n Node) PageID {
	id := a.e.New()
	a.e.Put(id, n)
	return id
}
