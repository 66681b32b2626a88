package btree

import (
	"bytes"
	"fmt"
)

// canMerge reports whether one of the children that became small fits together with a neighbour. If children were
// added or removed (moved), it does not compare sizes and returns true if any child became small; mergeSmall then
// finds out.
func (a *applier) canMerge(n Node, moved bool, shrunk []int) (bool, error) {
	if moved {
		return len(shrunk) > 0, nil
	}
	for _, i := range shrunk {
		_, c, err := childNode(a.e, n, i)
		if err != nil {
			return false, err
		}
		for _, j := range [2]int{i + 1, i - 1} {
			if j < 0 || j >= n.Count() {
				continue
			}
			_, neighbour, err := childNode(a.e, n, j)
			if err != nil {
				return false, err
			}
			if a.fitTogether(c, neighbour) {
				return true, nil
			}
		}
	}
	return false, nil
}

// mergeSmall merges small entries, nodes of the given level, with their neighbours, as long as there are small ones
// that fit, and returns the remaining entries. Of two merged nodes the right one is removed.
func (a *applier) mergeSmall(level int, entries []entry) ([]entry, error) {
	for i := 0; i < len(entries); i++ {
		for entries[i].small {
			merged, err := a.merge(level, entries, i)
			if !merged && err == nil && i > 0 {
				if merged, err = a.merge(level, entries, i-1); merged {
					i--
				}
			}
			if err != nil {
				return nil, err
			}
			if !merged {
				break
			}
			entries = append(entries[:i+1], entries[i+2:]...)
		}
	}
	return entries, nil
}

// merge merges entry i with entry i+1 if there is one and they fit. In the slice it changes only
// entries[i].small.
func (a *applier) merge(level int, entries []entry, i int) (bool, error) {
	if i+1 >= len(entries) {
		return false, nil
	}
	left, right := &entries[i], &entries[i+1]
	l, err := a.entryNode(level, left.id)
	if err != nil {
		return false, err
	}
	r, err := a.entryNode(level, right.id)
	if err != nil {
		return false, err
	}
	if !a.fitTogether(l, r) {
		return false, nil
	}
	if left.id == right.id {
		return false, fmt.Errorf("%w: page %#x is a child twice", ErrMalformed, left.id)
	}
	if level == 0 {
		if err := a.divided(l, r, right.separator, left.id, right.id); err != nil {
			return false, err
		}
	}
	var v Node
	if level == 0 {
		v = a.mergeLeaves(l, r)
	} else {
		both := make([]entry, 0, l.Count()+r.Count())
		for j := range l.Count() {
			both = append(both, entry{separator: a.separatorAt(l, j), id: l.Child(j)})
		}
		for j := range r.Count() {
			both = append(both, entry{separator: a.separatorAt(r, j), id: r.Child(j)})
		}
		both[l.Count()].separator = right.separator
		if innerSize(both) > mergedBytes {
			return false, nil
		}
		if v, err = a.splitInner(level, both, false); err != nil {
			return false, err
		}
	}
	a.e.Put(left.id, v)
	a.e.Remove(right.id)
	left.small = v.bytes() < smallBytes
	return true, nil
}

// divided returns an error unless all keys of leaf l are below separator s, all keys of leaf r are at or above it, and the
// long keys of r ascend. A search does not find a record on the wrong side of a separator, so the record cannot be deleted. It
// must not reappear because the separator is removed (see widen.go).
func (a *applier) divided(l, r Node, s separator, left, right PageID) error {
	// The inline part of a long key is longer than any separator.
	ok := (l.Count() == 0 || belowHigh(l.key(l.Count()-1), bound{s, true})) && (r.Count() == 0 || bytes.Compare(r.key(0), s.bytes) >= 0)
	if err := a.tiesAscend(r); err != nil {
		return err
	}
	if ok && l.Count() > 0 && r.Count() > 0 {
		var err error
		if ok, err = ascend(a.e, l.Cell(l.Count()-1), r.Cell(0)); err != nil {
			return err
		}
	}
	if !ok {
		return fmt.Errorf("%w: keys of pages %#x and %#x are out of order, or out of their bounds", ErrMalformed, left, right)
	}
	return nil
}

// fitTogether reports whether l and r may be merged, judged by their present sizes. For inner nodes that is not
// certain, because their separators may get longer.
func (a *applier) fitTogether(l, r Node) bool {
	if !l.IsLeaf() || !r.IsLeaf() {
		return l.bytes()+r.bytes()-headerBytes <= mergedBytes
	}
	even := a.m.Even && (l.even() || l.Count() == 1) && (r.even() || r.Count() == 1) && rawLengths(l.rawSlot(0)) == rawLengths(r.rawSlot(0))
	count := l.Count() + r.Count()
	return count <= mergedCount && leafBytes(count, l.cellBytes()+r.cellBytes(), even) <= mergedBytes
}

// mergeLeaves makes a leaf of the records of l and r.
func (a *applier) mergeLeaves(l, r Node) Node {
	switch {
	case l.Count() == 0:
		return r.Own(a.m)
	case r.Count() == 0:
		return l.Own(a.m)
	}
	cells := l.cellBytes() + r.cellBytes()
	w := startLeaf(a.m, l.Count()+r.Count(), cells, spareCells(cells), l.key(0), r.key(r.Count()-1))
	w.records(l, 0, l.Count())
	w.records(r, 0, r.Count())
	return w.finish()
}

// entryNode returns the newest image of a child.
func (a *applier) entryNode(level int, id PageID) (Node, error) {
	c, err := a.e.Node(id)
	if err == nil && c.Level() != level {
		err = levelError(id, c.Level(), level)
	}
	return c, err
}
