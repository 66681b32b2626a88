package btree

import (
	"fmt"
	"slices"
)

// change is a change to the children of an inner node: the child at index at left, or insert comes before it.
type change struct {
	at     int
	gone   bool
	insert entry
	grew   bool // insert is a part of a leaf that grew: see grows
}

// entry is a child of an inner node being built. The separator of the first entry is not used.
type entry struct {
	separator
	id    PageID
	small bool // the child should be merged with a neighbour if one has room
}

// Merging, in bytes of a page body: a node with less than smallBytes is merged with a neighbour under the same
// parent if both together have at most mergedBytes and, for leaves, at most mergedCount records, which leaves with
// very short records reach first. With these bounds, a few inserts or deletes after a merge do not undo it.
const (
	smallBytes  = BodySize / 3
	mergedBytes = BodySize * 8 / 10
	mergedCount = maxLeafCount * 8 / 10
)

// next moves the frame to the child to which the first op that is not done belongs. It returns the child and the
// end of the child's ops.
func (a *applier) next(f *frame, ops []Op, done int) (id PageID, child Node, end int, last bool, err error) {
	if f.ahead.index > 0 {
		f.index, id, child, f.ahead.index = f.ahead.index, f.ahead.id, f.ahead.node, 0
	} else {
		if f.index, err = f.node.route(a.e, ops[done].Key, f.index); err != nil {
			return 0, Node{}, 0, false, err
		}
		if f.index >= f.fetched && f.node.Level() == 1 {
			a.approach(f, f.index, ops, done)
		}
		if id, child, err = childNode(a.e, f.node, f.index); err != nil {
			return 0, Node{}, 0, false, err
		}
	}
	end, last = f.end, f.index == f.node.Count()-1
	if !last && end-done > 1 {
		end, err = a.belowNext(f.node, f.index, ops[:f.end], done)
	}
	return id, child, end, last && f.last, err
}

// approach fetches children of a node of level 1, from child i on, and the first ops for them, if the ops left for
// the node are at least half as many as its children from i on. To find a leaf takes several loads from memory,
// each of which depends on the one before; when many leaves are fetched at once, their loads overlap.
func (a *applier) approach(f *frame, i int, ops []Op, next int) {
	n, some := f.node, f.end-next
	rest := n.Count() - i
	if some < rest/2 {
		f.fetched = n.Count()
		return
	}
	f.fetched = min(i+nearLeaves, n.Count())
	a.near = a.near[:0]
	for j := i; j < f.fetched; j++ {
		a.near = append(a.near, n.Child(j))
	}
	a.e.Ahead(a.near)
	for j := i; j < f.fetched; j++ {
		if _, c, err := childNode(a.e, n, j); err == nil { // next will return the error
			fetchLeaf(c)
		}
	}
	near := min(some*len(a.near)/rest, nearOps)
	for j := range ops[next : next+near] {
		op := &ops[next+j]
		fetchBytes(op.Key)
		fetchBytes(op.Value)
	}
}

const (
	nearLeaves = 16 // leaves fetched together
	nearOps    = 64 // ops fetched together, at most
)

// fetchBytes fetches the beginning of b.
func fetchBytes(b []byte) {
	if len(b) > 0 {
		fetch(pointerTo(b), min(len(b), fetchCell))
	}
}

// fetchLeaf fetches the bytes that a change of a leaf reads first.
func fetchLeaf(n Node) {
	if n.IsImage() {
		fetch(n.dir, fetchDirectory)
		return
	}
	fetch(n.dir, min(headerBytes+n.Count()*leafEntryBytes, fetchDirectory))
	fetch(n.heap, heapHeader)
}

// lookAhead finds the next leaf that has ops, after the current one, and fetches its directory while the current
// leaf is worked on. next is the leaf's first op. If it fails, method next tries again and returns the error.
func (a *applier) lookAhead(f *frame, ops []Op, next int) {
	if next == f.end {
		return
	}
	i, err := f.node.route(a.e, ops[next].Key, f.index+1)
	if err != nil {
		return
	}
	if i >= f.fetched {
		a.approach(f, i, ops, next)
	}
	id, n, err := childNode(a.e, f.node, i)
	if err != nil {
		return
	}
	if id == f.node.Child(f.index) {
		return // happens only in a malformed tree, where n could be freed when the current child gets its new version
	}
	f.ahead.index, f.ahead.id, f.ahead.node = i, id, n
	if i < f.fetched {
		return
	}
	fetchLeaf(n)
}

// belowNext returns the end of the ops, from done on, that belong below child i, which is not the last child. The
// op at done belongs there.
func (a *applier) belowNext(n Node, i int, ops []Op, done int) (int, error) {
	// Ops before low belong below child i. The search starts in small steps, because most batches are sparse.
	low, high := done+1, done+1
	for step := 1; ; step *= 2 {
		if high >= len(ops) {
			high = len(ops)
			break
		}
		above, err := n.reachesSeparator(a.e, ops[high].Key, i+1)
		if err != nil {
			return 0, err
		}
		if above {
			break
		}
		low, high = high+1, high+step
	}
	for low < high { // ops from high on do not belong below child i
		mid := int(uint(low+high) >> 1)
		above, err := n.reachesSeparator(a.e, ops[mid].Key, i+1)
		if err != nil {
			return 0, err
		}
		if above {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low, nil
}

// installChild installs v, the new version of the frame's current child, whose old version is n. It notes the resulting
// changes to the frame's node. All entries on the stack of pieces are right siblings of that child.
func (a *applier) installChild(depth int, id PageID, n, v Node, became state) error {
	f := &a.path[depth]
	grew := became == changed && n.IsLeaf() && a.grows(depth)
	switch became {
	case removed:
		a.e.Remove(id)
		a.changes = append(a.changes, change{at: f.index, gone: true})
	case unchanged: // the child was split and keeps its version
		a.e.Narrow(id)
	case changed, grown:
		switch {
		case became == grown && len(a.pieces) == 0:
			a.e.Grow(id, id, v)
		case grew:
			a.e.Grow(f.id, id, v)
		case n.IsLeaf() && len(a.pieces) == 0 && !a.refs && !a.cutBefore(depth):
			a.e.Update(id, v)
		default:
			a.e.Put(id, v)
		}
		if b := v.bytes(); b < smallBytes && b < n.bytes() {
			a.shrunk = append(a.shrunk, f.index)
		}
	}
	if err := a.checkPieces(f); err != nil {
		return err
	}
	for _, p := range a.pieces {
		sibling := a.e.New()
		if grew {
			a.e.Grow(f.id, sibling, p.node)
		} else {
			a.e.Put(sibling, p.node)
		}
		a.changes = append(a.changes, change{at: f.index + 1, insert: entry{separator: p.separator, id: sibling}, grew: grew})
	}
	clear(a.pieces)
	a.pieces = a.pieces[:0]
	return nil
}

// grows reports whether the current leaf of the frame, which has changed, was split and nothing else happened to
// it: see Editor.Grow. A leaf after a cut separator does not count, because its bound may have risen with its
// first key. Nor does a leaf directly below the root, because the root is not a page that grows.
func (a *applier) grows(depth int) bool {
	return len(a.pieces) > 0 && depth > 0 && !a.refs && !a.cutBefore(depth)
}

// onlyGrew reports whether all the changes are parts of leaves that grew.
func onlyGrew(changes []change) bool {
	return !slices.ContainsFunc(changes, func(c change) bool { return !c.grew })
}

// cutBefore reports whether the separator before the current child of the frame is cut, so that the lower bound is
// the child's own first key.
func (a *applier) cutBefore(depth int) bool {
	for ; depth >= 0; depth-- {
		if f := &a.path[depth]; f.index > 0 {
			return innerCut(f.node.innerSlot(f.index))
		}
	}
	return false
}

// checkPieces returns an error unless the current child was split within its bounds. A split can leave the bounds
// only if the child had keys that do not belong there.
func (a *applier) checkPieces(f *frame) error {
	if len(a.pieces) == 0 {
		return nil
	}
	first, last := a.pieces[0].separator, a.pieces[len(a.pieces)-1].separator
	i := f.index
	if i > 0 && !a.separatorAt(f.node, i).precedes(first) ||
		i+1 < f.node.Count() && !last.precedes(a.separatorAt(f.node, i+1)) {
		return fmt.Errorf("%w: keys of page %#x are out of its bounds", ErrMalformed, f.node.Child(i))
	}
	return nil
}

// reshape makes the new version of an inner node from the changes to its children.
func (a *applier) reshape(f *frame) (Node, state, error) {
	n, changes, shrunk, became := f.node, a.changes[f.changes:], a.shrunk[f.shrunk:], changed
	a.changes, a.shrunk = a.changes[:f.changes], a.shrunk[:f.shrunk]
	if err := a.widened(n, changes); err != nil {
		return Node{}, unchanged, err
	}
	merge, err := a.canMerge(n, len(changes) > 0, shrunk)
	switch {
	case err != nil:
		return Node{}, unchanged, err
	case len(changes) == 0 && !merge:
		return Node{}, unchanged, nil
	case !merge:
		if onlyGrew(changes) {
			became = grown
		}
		if v, ok := a.patchInner(n, changes); ok {
			return v, became, nil
		}
	}
	mark := len(a.entries)
	a.listEntries(n, changes, shrunk)
	entries := a.entries[mark:]
	a.entries = a.entries[:mark]
	if merge {
		if entries, err = a.mergeSmall(n.Level()-1, entries); err != nil {
			return Node{}, unchanged, err
		}
	}
	switch {
	case len(entries) == 0:
		return Node{}, removed, nil
	case len(entries) == n.Count() && len(changes) == 0:
		return Node{}, unchanged, nil // nothing could be merged after all
	}
	ascending := f.last && len(changes) > 0 && changes[0].at == n.Count()
	v, err := a.splitInner(n.Level(), entries, ascending)
	return v, became, err
}

// listEntries pushes the children of n, with the changes applied, onto the stack of entries.
func (a *applier) listEntries(n Node, changes []change, shrunk []int) {
	for i := 0; ; i++ {
		gone := false
		for ; len(changes) > 0 && changes[0].at == i; changes = changes[1:] {
			if changes[0].gone {
				gone = true
			} else {
				a.entries = append(a.entries, changes[0].insert)
			}
		}
		if i == n.Count() {
			return
		}
		small := len(shrunk) > 0 && shrunk[0] == i
		if small {
			shrunk = shrunk[1:]
		}
		if !gone {
			a.entries = append(a.entries, entry{separator: a.separatorAt(n, i), id: n.Child(i), small: small})
		}
	}
}

// separatorAt returns separator i of n with its prefix, copied for the rest of the batch.
func (a *applier) separatorAt(n Node, i int) separator {
	at := len(a.text)
	var cut bool
	a.text, cut = n.Separator(i, a.text)
	return separator{a.text[at:len(a.text):len(a.text)], cut}
}
