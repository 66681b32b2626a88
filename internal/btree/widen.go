package btree

import (
	"bytes"
	"cmp"
	"fmt"
)

// A record on the wrong side of a separator is hidden: a search for its key takes the other side, so neither Get
// nor Delete finds it. Only a malformed tree has such records. They must stay hidden, or a deleted key could
// reappear. So wherever a batch removes a separator, the subtree that takes over the range is checked first: it
// must have nothing that the separator hid. The check costs a descent along one edge of the subtree, mostly to
// pages that merging has read already.

// widened returns an error if a remaining child of n has records that were hidden by a separator which the changes
// remove.
func (a *applier) widened(n Node, changes []change) error {
	var before PageID
	stays, run := false, false // stays: an earlier child remains; run: the children between that one and the current one are removed
	for i := range n.Count() {
		gone := false
		for ; len(changes) > 0 && changes[0].at == i; changes = changes[1:] {
			if changes[0].gone {
				gone = true
			} else {
				before, stays = changes[0].insert.id, true
			}
		}
		var err error
		switch {
		case gone && stays && !run:
			err = a.endsBelow(before, n.Level()-1, bound{a.separatorAt(n, i), true})
		case !gone && !stays && i > 0:
			err = a.startsAt(n.Child(i), n.Level()-1, a.separatorAt(n, i))
		}
		if err != nil {
			return err
		}
		run = gone
		if !gone {
			before, stays = n.Child(i), true
		}
	}
	return nil
}

// endsBelow returns an error unless everything in a subtree that a search for a key at or above high can reach is
// below high: the last separators of its inner nodes and the last key of its last leaf.
func (a *applier) endsBelow(id PageID, level int, high bound) error {
	n, err := a.entryNode(level, id)
	for ; err == nil && !n.IsLeaf(); id, n, err = childNode(a.e, n, n.Count()-1) {
		if i := n.Count() - 1; i > 0 && !a.separatorAt(n, i).precedes(high.separator) {
			return hiddenError(id)
		}
	}
	if err != nil {
		return err
	}
	// The inline part of a long key is longer than any separator.
	if n.Count() > 0 && !belowHigh(n.Cell(n.Count()-1).Key(), high) {
		return hiddenError(id)
	}
	return nil
}

// startsAt is endsBelow for the other edge: no key that a search for a key below low can reach may be below
// low.
func (a *applier) startsAt(id PageID, level int, low separator) error {
	n, err := a.entryNode(level, id)
	for ; err == nil && !n.IsLeaf(); id, n, err = childNode(a.e, n, 0) {
		if n.Count() < 2 {
			continue
		}
		s := a.separatorAt(n, 1)
		if !low.precedes(s) {
			return hiddenError(id)
		}
		if low.cut && s.cut && bytes.Equal(low.bytes, s.bytes) { // a search compares with the first key below child 1
			if up, err := a.firstKeysAscend(n); err != nil || !up {
				return cmp.Or(err, hiddenError(id))
			}
		}
	}
	if err != nil {
		return err
	}
	if n.Count() > 0 && bytes.Compare(n.Cell(0).Key(), low.bytes) < 0 {
		return hiddenError(id)
	}
	return a.tiesAscend(n)
}

// firstKeysAscend reports whether the first key below child 0 of n is below that of child 1.
func (a *applier) firstKeysAscend(n Node) (bool, error) {
	c, err := leftmost(a.e, n, 0)
	if err != nil {
		return false, err
	}
	d, err := leftmost(a.e, n, 1)
	if err != nil {
		return false, err
	}
	return ascend(a.e, c, d)
}

// cutRises is called before the first record of n is removed, the current leaf below the first depth frames. If the
// lower bound of the leaf is a cut separator, it stands for the leaf's first key. Then the range of the leaf before
// it widens, and that leaf must end below the removed record.
func (a *applier) cutRises(depth int, n Node) error {
	changes := a.changes // of the frames up to the current one
	for ; depth > 0; depth-- {
		f := &a.path[depth-1]
		before, ok := f.before(changes[f.changes:])
		if changes = changes[:f.changes]; !ok {
			continue // the leaf becomes the first below this node: its lower bound is a separator further up
		}
		if !innerCut(f.node.innerSlot(f.index)) {
			return nil
		}
		return a.endsBelowLeaf(before, f.node.Level()-1, n)
	}
	return nil
}

// endsBelowLeaf is endsBelow with the first record of leaf r in the place of a separator.
func (a *applier) endsBelowLeaf(id PageID, level int, r Node) error {
	n, err := a.entryNode(level, id)
	for ; err == nil && !n.IsLeaf(); id, n, err = childNode(a.e, n, n.Count()-1) {
		if i := n.Count() - 1; i > 0 && bytes.Compare(a.separatorAt(n, i).bytes, r.key(0)) > 0 {
			return hiddenError(id)
		}
	}
	if err != nil || n.Count() == 0 {
		return err
	}
	up, err := ascend(a.e, n.Cell(n.Count()-1), r.Cell(0))
	if err == nil && !up {
		err = hiddenError(id)
	}
	return err
}

// before returns the child before the current one of a frame, with the changes so far applied, if there is one. An
// entry inserted at an index comes before the child that was there.
func (f *frame) before(changes []change) (PageID, bool) {
	for i := f.index; ; i-- {
		last := len(changes) - 1
		switch {
		case last >= 0 && changes[last].at == i && changes[last].gone:
			last--
		case i < f.index:
			return f.node.Child(i), true
		}
		if last >= 0 && changes[last].at == i {
			return changes[last].insert.id, true
		}
		if i == 0 {
			return 0, false
		}
		changes = changes[:last+1]
	}
}

func hiddenError(id PageID) error {
	return fmt.Errorf("%w: keys of page %#x are out of its bounds", ErrMalformed, id)
}
