package btree

import (
	"bytes"
	"fmt"
)

// Repack fills up leaves: the records of neighbours move together, so that as many leaves have them as a load in key order would make. It
// looks at the leaf that key from belongs in and those behind it under the same parent, at most the given number, and changes them if that saves
// one leaf in repackShare. next is the key of the first record behind what it has looked at, nil at the end of the tree.
//
// It changes no record. Leaves on the left keep their names, those on the right leave the tree; parents that become small are merged
// like after deletes. An error is as with Apply.
func Repack(e Editor, root PageID, from []byte, most int) (r Repacked, err error) {
	return repackFrom(e, root, from, most, false)
}

// Spread is Repack of a tree into which records go on coming in any order. Half of the leaves that Repack would save stay, and all of them
// are filled alike: the next record that comes to a full leaf splits it, and a page is gone for one record; a leaf that has room takes
// some. It changes leaves if that saves one in spreadShare.
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

// Repacked is what Repack did.
type Repacked struct {
	Next    []byte // where to go on; nil at the end of the tree
	Leaves  int    // looked at,
	Full    int    // and how many full ones would have their records
	Written int    // changed
	Removed int
	Begun   bool // leaves were changed: after an error there is half a version, and without it nothing has happened
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
	if r.Next != nil && bytes.Compare(r.Next, from) <= 0 { // who goes on there would go round and round
		return r, fmt.Errorf("%w: keys of page %#x are out of order with those of the leaf behind it", ErrMalformed, n.Child(end-1))
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
		if i > first {
			if err := a.divided(leaves[i-first-1], c, a.separatorAt(n, i), n.Child(i-1), n.Child(i)); err != nil {
				return r, err
			}
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
			if err := a.settle(depth-1, id, n, v, became); err != nil {
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

// keyBehind returns a copy of the first key of child i of n, a node of level 1, or of the leaf behind it if n has no such child.
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

// span is some records of a leaf.
type span struct{ leaf, from, to int }

// packedLeaf is a leaf to be made.
type packedLeaf struct {
	spans        []span
	count, cells int
	lengths      uint32 // of its first record
	even         bool   // all of them have these
}

// packed divides the records of leaves into full ones; or into about the given number that have equal shares of the bytes, if that is not 0.
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

// add counts a record in if it fits.
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

// refill puts the pieces in the place of the leaves of n from the given child on, and returns the new version of n. What does not fit into
// it is on the stack of pieces, as separators may be longer than before.
func (a *applier) refill(n Node, first int, leaves []Node, pieces []packedLeaf) (v Node, written int, err error) {
	entries := make([]entry, 0, n.Count())
	for i := range first {
		entries = append(entries, entry{separator: a.separatorAt(n, i), id: n.Child(i)})
	}
	made := make([]Node, len(pieces)) // all before any is put: an image may go with its name
	for i := range pieces {
		p := &pieces[i]
		s := a.separatorAt(n, first)
		if i > 0 {
			before := pieces[i-1].spans[len(pieces[i-1].spans)-1]
			s = a.separatorOf(leaves[before.leaf].key(before.to-1), leaves[p.spans[0].leaf].key(p.spans[0].from))
		}
		entries = append(entries, entry{separator: s, id: n.Child(first + i)})
		if len(p.spans) == 1 && p.spans[0].leaf == i && p.count == leaves[i].Count() {
			a.e.Narrow(n.Child(first + i)) // stays as it is, but for the separators beside it
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
