package btree

import "errors"

// ErrOneLeaf: a root has two children at least.
var ErrOneLeaf = errors.New("btree: a row of one leaf does not make a tree")

// A Row is a list of leaves in the order of their keys that no inner node refers to yet: Splice makes them part
// of a tree.
type Row struct {
	entries []entry // the separator of the first one is not used
	records int64
}

// NewRowBuilder returns a Builder that makes only leaves. FinishRow ends it, not Finish.
func NewRowBuilder(sink PageSink, even bool) *Builder {
	b := NewBuilder(sink, even)
	b.row = &Row{}
	return b
}

// FinishRow hands out the last leaf and returns all of them. There is at least one record. The Builder must not be
// used afterwards.
func (b *Builder) FinishRow() (*Row, error) {
	id, err := b.putLeaf(false)
	if err != nil {
		return nil, err
	}
	b.row.entries = append(b.row.entries, entry{separator: b.leaf.low, id: id})
	b.row.records = b.count
	return b.row, nil
}

// Leaves returns the number of leaves.
func (r *Row) Leaves() int { return len(r.entries) }

// InnerPages returns a bound of the inner nodes that Splice makes or changes in a tree of the given height: the
// nodes for the leaves of the row, each at least half full, and on each level the node into which these are put.
// Splice may change more if the children of such a node have a long prefix in common that the row does not share.
func (r *Row) InnerPages(height int) int64 {
	bytes := 0
	for i := range r.entries {
		bytes += entrySize(&r.entries[i], 0) + headBytes
	}
	return int64(2*bytes/roomBytes) + 2*int64(height+2)
}

// Neighbours returns the records of the leaf to which the key belongs, as puts: before has those below the key,
// behind those at or above it. The slices are valid as long as the version of the leaf. height is that of the
// tree, 0 for a single leaf.
func Neighbours(p Pager, root PageID, key []byte) (before, behind []Op, height int, err error) {
	n, err := rootNode(p, root)
	for height = n.Level(); err == nil && !n.IsLeaf(); {
		var i int
		if i, err = n.route(p, key, 0); err == nil {
			_, n, err = childNode(p, n, i)
		}
	}
	if err != nil {
		return nil, nil, 0, err
	}
	at, _, err := n.find(p, key)
	if err != nil {
		return nil, nil, 0, err
	}
	ops, refs := make([]Op, n.Count()), make([]Ref, n.Count())
	for i := range ops {
		c := n.Cell(i)
		if ops[i].Key, err = c.WholeKey(p); err != nil {
			return nil, nil, 0, err
		}
		if ops[i].Value = c.Value(); c.Kind() != Inline {
			refs[i] = c.Ref()
			ops[i].Ref = &refs[i]
		}
	}
	return ops[:at], ops[at:], height, nil
}

// Splice replaces the leaf to which the key belongs by the leaves of a row. The row has all records of the leaf and
// others in one place among them: between two successive records of the leaf, or at one of its ends. Inner nodes
// change only on the path to the leaf, and get as many siblings as they need.
//
// If the tree is a single leaf, the row must have two leaves or more.
//
// The references of the leaf are in the row, so none is dropped. The lower bound of the leaf does not change. After a
// cut separator that bound is the leaf's first key; it is not above the key, so it is also the first key of the row.
//
// Errors are as with Apply.
func Splice(e Editor, root PageID, key []byte, row *Row) (Result, error) {
	n, err := rootNode(e, root)
	if err != nil {
		return Result{}, err
	}
	s := splicer{&e.Memory().apply, root, row}
	s.start(e)
	err = s.at(n, key)
	added := s.added
	s.start(nil)
	return Result{Added: added}, err
}

// splicer is the state of a Splice.
type splicer struct {
	*applier
	top PageID
	row *Row
}

// at splices below the root n, where the key belongs.
func (s *splicer) at(n Node, key []byte) error {
	if n.IsLeaf() {
		return s.atRoot(n)
	}
	id, last := s.top, true
	for depth := 0; ; depth++ {
		f := &s.path[depth]
		i, err := n.route(s.e, key, 0)
		if err != nil {
			return err
		}
		f.id, f.node, f.index, f.last = id, n, i, last
		f.changes, f.shrunk, f.ahead.index, f.fetched = len(s.changes), len(s.shrunk), 0, 0
		last = last && i == n.Count()-1
		if id, n, err = childNode(s.e, n, i); err != nil {
			return err
		}
		if n.IsLeaf() {
			return s.atLeaf(depth, id, n, last)
		}
	}
}

// atRoot splices into a tree that is a single leaf.
func (s *splicer) atRoot(n Node) error {
	if s.row.Leaves() < 2 {
		return ErrOneLeaf
	}
	v, err := s.splitInner(1, s.row.entries, true)
	if err != nil {
		return err
	}
	s.added += s.row.records - int64(n.Count())
	return s.root(s.top, v, v, changed)
}

// atLeaf puts the row in the place of leaf n, the current child of the last node of the path.
func (s *splicer) atLeaf(depth int, id PageID, n Node, last bool) error {
	f := &s.path[depth]
	for i, x := range s.row.entries {
		if i == 0 {
			x.separator = s.separatorAt(f.node, f.index)
		}
		s.changes = append(s.changes, change{at: f.index, insert: x})
	}
	s.changes = append(s.changes, change{at: f.index, gone: true})
	s.e.Remove(id)
	s.added += s.row.records - int64(n.Count())
	mark := len(s.entries)
	s.listEntries(f.node, s.changes[f.changes:], nil)
	s.changes = s.changes[:f.changes]
	entries := s.entries[mark:]
	s.entries = s.entries[:mark]
	v, err := s.splitInner(1, entries, last)
	if err != nil {
		return err
	}
	return climb(s.applier, s.top, depth, v, changed)
}

// climb changes the nodes above the last one of the path, whose new version is v, up to the root.
func climb(a *applier, root PageID, depth int, v Node, became state) (err error) {
	id, n := a.path[depth].id, a.path[depth].node
	for ; depth > 0; depth-- {
		f := &a.path[depth-1]
		if became != unchanged || len(a.pieces) > 0 {
			if err := a.installChild(depth-1, id, n, v, became); err != nil {
				return err
			}
		}
		id, n, became = f.id, f.node, unchanged
		if len(a.changes) > f.changes || len(a.shrunk) > f.shrunk {
			if v, became, err = a.reshape(f); err != nil {
				return err
			}
		}
	}
	return a.root(root, n, v, became)
}
