package btree

import "fmt"

// Result is what a batch did.
type Result struct {
	Added int64 // records inserted minus records deleted
}

// Apply changes the tree under root by a batch of ops, whose keys ascend, each once. Each page is touched once, and gets one new version
// however many of the ops change it; deleting what is not there makes none. The root keeps its name.
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
	a := &e.Memory().apply
	a.start(e)
	o, err := a.node(n, ops, true)
	if err == nil {
		err = a.root(root, n, o)
	}
	added := a.added
	a.start(nil)
	return Result{Added: added}, err
}

// applier is the state of one Apply, and scratch space kept between calls. The stacks are shared by all levels of the recursion: each
// level uses what lies above the length it found, and cuts back to that.
type applier struct {
	e     Editor
	m     *Memory
	added int64

	edits   []edit   // of the leaf at hand
	items   []item   // of the leaf being split
	pieces  []piece  // stack: right siblings that a child was split into, for its parent
	changes []change // stack: what became of an inner node's children
	shrunk  []int    // stack: children that may have become too small
	entries []entry  // stack: children of an inner node being rebuilt
	text    []byte   // separators made in this batch; what was handed out of it stays when it grows
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

// outcome is what a batch made of a node. If the node had to be split, its right siblings are on the stack of pieces.
type outcome struct {
	node   Node // the new version, if changed
	state  state
	shrunk bool // it lost records or children, so it may be too small
}

type state uint8

const (
	unchanged state = iota
	changed
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

func (a *applier) node(n Node, ops []Op, last bool) (outcome, error) {
	if n.IsLeaf() {
		return a.leaf(n, ops, last)
	}
	return a.inner(n, ops, last)
}

// root puts the outcome of the root in place. The root's name does not change: if it was split, its parts get new names and it becomes
// their parent; if it has one child left, it takes over the child's content.
func (a *applier) root(root PageID, n Node, o outcome) error {
	if o.state == removed {
		a.e.Put(root, EmptyLeaf(a.m))
		return nil
	}
	for level := n.Level() + 1; len(a.pieces) > 0; level++ {
		if level > MaxHeight {
			return fmt.Errorf("%w: more than %d levels", ErrMalformed, MaxHeight)
		}
		if o.state == unchanged {
			o.node = n.Own(a.m) // the image belongs to the name of the root
		}
		a.entries = append(a.entries[:0], entry{id: a.bear(o.node)})
		for _, p := range a.pieces {
			a.entries = append(a.entries, entry{separator: p.separator, id: a.bear(p.node)})
		}
		a.pieces = a.pieces[:0]
		o = a.splitInner(level, a.entries, true)
	}
	if o.state == unchanged {
		return nil
	}
	top, under := o.node, PageID(0)
	for !top.IsLeaf() && top.Count() == 1 {
		id, child, err := childNode(a.e, top, 0)
		if err != nil {
			return err
		}
		if top != o.node {
			a.e.Remove(under)
		}
		top, under = child, id
	}
	if top != o.node {
		o.node.Release(a.m)
		o.node = top.Own(a.m)
		a.e.Remove(under)
	}
	a.e.Put(root, o.node)
	return nil
}

// bear gives a new page a name.
func (a *applier) bear(n Node) PageID {
	id := a.e.New()
	a.e.Put(id, n)
	return id
}
