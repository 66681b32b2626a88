package btree

import (
	"bytes"
	"fmt"
)

// Repack fills up leaves: it moves the records of neighbouring leaves together, so that they take as many leaves as
// a load in key order would make. It considers the leaf to which the key from belongs and the leaves after it under
// the same parent, at most the given number of leaves. It changes them if that saves one leaf in repackShare.
// Repacked.Next is the key of the first record after these leaves.
//
// No record changes. The leaves on the left keep their names, those on the right leave the tree, and parents that
// become small are merged as after deletes. Errors are as with Apply.
func Repack(e Editor, root PageID, from []byte, most int) (r Repacked, err error) {
	return repackFrom(e, root, from, most, false)
}

// Spread is Repack for a tree that continues to get records in random order. It keeps half of the leaves that
// Repack would save, and fills all leaves equally. A leaf with room can take some records, while the next record
// for a full leaf causes a split, which costs a page. Spread changes leaves if that saves one in spreadShare.
func Spread(e Editor, root PageID, from []byte, most int) (r Repacked, err error) {
	return repackFrom(e, root, from, most, true)
}

func repackFrom(e Editor, root PageID, from []byte, most int, spread bool) (r Repacked, err error) {
	n, err := rootNode(e, root)
	if err != nil || n.IsLeaf() {
		return Repacked{Leaves: 1}, err
	}
	a := &e.Memory().apply
	a.start(e)
	defer a.start(nil)
	return a.repack(root, n, from, most, spread)
}

// Repacked is the result of Repack or Spread.
type Repacked struct {
	Next    []byte // key at which the next call should begin; nil at the end of the tree
	Leaves  int    // leaves considered
	Full    int    // number of full leaves that would hold the records of these leaves
	Written int    // leaves changed
	Removed int    // leaves removed
	Begun   bool   // changes have begun: after an error the working tree may be partly changed. If false, nothing has changed
}

const (
	repackShare = 32
	spreadShare = 64
)

// repack changes the children of one node of level 1, and then the nodes above it.
func (a *applier) repack(root PageID, n Node, from []byte, most int, spread bool) (r Repacked, err error) {
	depth, id, last := 0, root, true
	for n.Level() > 1 {
		f := &a.path[depth]
		f.id, f.node, f.last = id, n, last
		f.changes, f.shrunk, f.ahead.index = len(a.changes), len(a.shrunk), 0
		if f.index, err = n.route(a.e, from, 0); err != nil {
			return r, err
		}
		last = last && f.index == n.Count()-1
		if id, n, err = childNode(a.e, n, f.index); err != nil {
			return r, err
		}
		depth++
	}
	first, err := n.route(a.e, from, 0)
	if err != nil {
		return r, err
	}
	end := min(first+most, n.Count())
	r.Leaves = end - first
	if r.Next, err = a.keyBehind(depth, n, end); err != nil {
		return r, err
	}
	if r.Next != nil && bytes.Compare(r.Next, from) <= 0 { // a caller that continues from there would never end
		return r, fmt.Errorf("%w: keys of page %#x are out of order with those of the leaf after it", ErrMalformed, n.Child(end-1))
	}
	var leaves []Node
	for i := first; i < end; i++ {
		_, c, err := childNode(a.e, n, i)
		if err != nil {
			return r, err
		}
		if c.Count() == 0 {
			return r, fmt.Errorf("%w: page %#x is empty", ErrMalformed, n.Child(i))
		}
		if i == first {
			err = a.tiesAscend(c)
		} else {
			err = a.divided(leaves[i-first-1], c, a.separatorAt(n, i), n.Child(i-1), n.Child(i))
		}
		if err != nil {
			return r, err
		}
		leaves = append(leaves, c)
	}
	pieces, share := packed(leaves, a.m.Even, 0), repackShare
	if r.Full = len(pieces); spread {
		share = spreadShare
		if kept := (len(leaves) - len(pieces)) / 2; kept > 0 {
			pieces = packed(leaves, a.m.Even, len(pieces)+kept)
		}
	}
	if r.Removed = len(leaves) - len(pieces); r.Removed*share < len(leaves) {
		r.Removed = 0
		return r, nil
	}
	r.Begun = true
	v, written, err := a.refill(n, first, leaves, pieces)
	if err != nil {
		return r, err
	}
	r.Written = written
	became := changed
	for ; depth > 0; depth-- {
		f := &a.path[depth-1]
		if became != unchanged || len(a.pieces) > 0 {
			if err := a.installChild(depth-1, id, n, v, became); err != nil {
				return r, err
			}
		}
		id, n, became = f.id, f.node, unchanged
		if len(a.changes) > f.changes || len(a.shrunk) > f.shrunk {
			if v, became, err = a.reshape(f); err != nil {
				return r, err
			}
		}
	}
	return r, a.root(root, n, v, became)
}

// keyBehind returns a copy of the first key of child i of n, a node of level 1, or of the leaf that follows n if n
// has no such child.
func (a *applier) keyBehind(depth int, n Node, i int) ([]byte, error) {
	for ; i == n.Count(); depth-- {
		if depth == 0 {
			return nil, nil
		}
		f := &a.path[depth-1]
		n, i = f.node, f.index+1
	}
	for !n.IsLeaf() {
		_, c, err := childNode(a.e, n, i)
		if err != nil {
			return nil, err
		}
		n, i = c, 0
	}
	if n.Count() == 0 {
		return nil, fmt.Errorf("%w: a leaf below level 1 is empty", ErrMalformed)
	}
	key, err := n.Cell(0).WholeKey(a.e)
	return append([]byte{}, key...), err
}

// span is a range of records of one leaf.
type span struct{ leaf, from, to int }

// packedLeaf is the content of a leaf to be made.
type packedLeaf struct {
	spans        []span
	count, cells int
	lengths      uint32 // lengths of its first record
	even         bool   // all its records have these lengths
}

// packed divides the records of leaves into full leaves; or, if alike is not 0, into about alike leaves with equal
// shares of the bytes.
func packed(leaves []Node, even bool, alike int) (pieces []packedLeaf) {
	total, done := 0, 0
	for _, n := range leaves {
		total += n.cellBytes() + n.Count()*leafEntryBytes
	}
	p := packedLeaf{even: even}
	for l, n := range leaves {
		from := 0
		for i := range n.Count() {
			raw := n.rawSlot(i)
			size := rawKeyLen(raw) + rawValueLen(raw) + leafEntryBytes
			if shared := p.count > 0 && (done+size/2)*alike > total*(len(pieces)+1); shared || !p.add(raw) {
				p.span(l, from, i)
				pieces = append(pieces, p)
				p, from = packedLeaf{even: even}, i
				p.add(raw)
			}
			done += size
		}
		p.span(l, from, n.Count())
	}
	return append(pieces, p)
}

// add adds a record if it fits, and reports whether it did.
func (p *packedLeaf) add(raw uint64) bool {
	count, cells, even := p.count+1, p.cells+rawKeyLen(raw)+rawValueLen(raw), p.even && (p.count == 0 || rawLengths(raw) == p.lengths)
	if p.count > 0 && !leafFits(count, cells, even) {
		return false
	}
	if p.count == 0 {
		p.lengths = rawLengths(raw)
	}
	p.count, p.cells, p.even = count, cells, even
	return true
}

func (p *packedLeaf) span(leaf, from, to int) {
	if from < to {
		p.spans = append(p.spans, span{leaf, from, to})
	}
}

// refill replaces the children of n from index first on, which are leaves, by pieces, and returns the new version
// of n. If n has to be split because separators have become longer, its right siblings go on the stack of pieces.
func (a *applier) refill(n Node, first int, leaves []Node, pieces []packedLeaf) (v Node, written int, err error) {
	entries := make([]entry, 0, n.Count())
	for i := range first {
		entries = append(entries, entry{separator: a.separatorAt(n, i), id: n.Child(i)})
	}
	made := make([]Node, len(pieces)) // all leaves are made before the first Put, because a Put may free an old image
	for i := range pieces {
		p := &pieces[i]
		s := a.separatorAt(n, first)
		if i > 0 {
			before := pieces[i-1].spans[len(pieces[i-1].spans)-1]
			s = a.separatorOf(leaves[before.leaf].key(before.to-1), leaves[p.spans[0].leaf].key(p.spans[0].from))
		}
		entries = append(entries, entry{separator: s, id: n.Child(first + i)})
		if len(p.spans) == 1 && p.spans[0].leaf == i && p.count == leaves[i].Count() {
			a.e.Narrow(n.Child(first + i)) // unchanged, except for the separators on its two sides
			continue
		}
		last := p.spans[len(p.spans)-1]
		w := startLeaf(a.m, p.count, p.cells, p.cells, leaves[p.spans[0].leaf].key(p.spans[0].from), leaves[last.leaf].key(last.to-1))
		for _, s := range p.spans {
			w.records(leaves[s.leaf], s.from, s.to)
		}
		made[i] = w.finish()
		written++
	}
	for i := first + len(leaves); i < n.Count(); i++ {
		entries = append(entries, entry{separator: a.separatorAt(n, i), id: n.Child(i)})
	}
	for i := range leaves {
		switch id := n.Child(first + i); {
		case i >= len(pieces):
			a.e.Remove(id)
		case made[i].dir != nil:
			a.e.Put(id, made[i])
		}
	}
	v, err = a.splitInner(1, entries, false)
	return v, written, err
}
