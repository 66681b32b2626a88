package btree

import "fmt"

// edit replaces skip records (0 or 1) of a leaf, from index at on, by the record of a put or by
// nothing.
type edit struct {
	at, skip int
	op       *Op // nil: delete
	cellLen  int
}

// leaf applies ops to leaf n. last says that n is the last leaf of the tree.
func (a *applier) leaf(n Node, ops []Op, last bool) (Node, state, error) {
	if last && len(ops) >= leastAppended {
		if v, became, done, err := a.appendLeaves(n, ops); done || err != nil {
			return v, became, err
		}
	}
	count, cells, added, err := a.edit(n, ops)
	edits := a.edits
	switch {
	case err != nil:
		return Node{}, unchanged, err
	case len(edits) == 0 && a.marked:
		return n.Own(a.m), changed, nil
	case len(edits) == 0:
		return Node{}, unchanged, nil
	case count == 0:
		return Node{}, removed, nil
	case !leafFits(count, cells, a.even):
		if err := a.tiesAscend(n); err != nil {
			return Node{}, unchanged, err
		}
		v, became := a.splitLeaf(n, last)
		return v, became, nil
	}
	v, ok := a.patchLeaf(n, count, cells, added)
	if !ok {
		v = a.rewriteLeaf(n, count, cells)
	}
	return v, changed, nil
}

// edit fills edits with what ops change in leaf n, and sets even if the result is known to be even. It returns the
// number of records after the edits, the bytes of their cells, and how many of these bytes are new.
func (a *leafEdit) edit(n Node, ops []Op) (count, cells, added int, err error) {
	a.edits, a.refs, a.marked = a.edits[:0], false, false
	count, cells = n.Count(), n.cellBytes()
	old := count
	at, found := 0, false
	for j := range ops {
		op := &ops[j]
		if at < old || j == 0 { // otherwise the previous op was already past the last record
			if at, found, err = n.find(a.e, op.Key); err != nil {
				return 0, 0, 0, err
			}
		}
		e := edit{at: at}
		switch {
		case found:
			c := n.Cell(at)
			if c.IsLong() {
				if err := a.tiesAscend(n); err != nil {
					return 0, 0, 0, err
				}
			}
			if c.Kind() != Inline {
				ref := c.Ref()
				if !op.Delete && op.Ref != nil && ref == *op.Ref {
					continue // redo of a record that the leaf has already
				}
				a.e.Drop(ref)
				a.refs = true
			}
			cells -= c.size()
			e.skip = 1
			count--
		case op.Delete:
			a.marked = a.marked || op.Marks
			continue
		}
		if !op.Delete {
			e.op, e.cellLen = op, op.cellLen()
			a.refs = a.refs || op.Ref != nil
			cells += e.cellLen
			added += e.cellLen
			count++
		}
		a.edits = append(a.edits, e)
	}
	a.added += int64(count - old)
	a.even = a.m.Even && count > 1 && a.staysEven(n)
	return count, cells, added, nil
}

// losesFirst reports whether the edits delete the first record of the leaf.
func (a *leafEdit) losesFirst() bool {
	return len(a.edits) > 0 && a.edits[0].at == 0 && a.edits[0].skip > 0 && a.edits[0].op == nil
}

// tiesAscend returns an error unless long keys of leaf n with the same inline part are in order. CheckPage cannot
// check that order, because it does not read the runs. If such keys are equal or out of order, a search finds only
// some of them. The others would appear later: when a record between them is removed, when the leaf takes over the
// range before its own, or when another leaf begins with one of them.
func (a *leafEdit) tiesAscend(n Node) error {
	before, long := false, false
	for i := range n.Count() {
		if before, long = long, rawLong(n.rawSlot(i)); !before || !long {
			continue
		}
		up, err := ascend(a.e, n.Cell(i-1), n.Cell(i))
		if err != nil {
			return err
		}
		if !up {
			return fmt.Errorf("%w: two long keys of a page are out of order", ErrMalformed)
		}
	}
	return nil
}

// staysEven reports whether the records of n (known to be even, or fewer than two) and those of the edits all have
// the same lengths.
func (a *leafEdit) staysEven(n Node) bool {
	if n.Count() > 1 && !n.even() {
		return false
	}
	var lengths uint32
	known := n.Count() > 0
	if known {
		lengths = rawLengths(n.rawSlot(0))
	}
	for i := range a.edits {
		op := a.edits[i].op
		if op == nil {
			continue
		}
		if l := op.lengths(); !known {
			lengths, known = l, true
		} else if l != lengths {
			return false
		}
	}
	return true
}

// patchLeaf makes a version of a leaf that shares the cells of n and adds those of the edits. It returns false if
// rewriteLeaf is better: see heapFor.
func (a *leafEdit) patchLeaf(n Node, count, cells, added int) (Node, bool) {
	heap, ok := a.heapFor(n, cells, added)
	if !ok {
		return Node{}, false
	}
	old, prefix := n.Count(), a.patchedPrefix(n, count)
	v := Node{dir: newDirectory(a.m, count, cells, prefix, a.firstKey(n)), base: n.base, heap: heap}
	v.meta = pack(0, count, prefix, ownsDirectory|ownsHeap)
	if a.even {
		v.meta |= isEven
	}
	heads, slots := headerBytes, headerBytes+count*headBytes
	from, to := 0, 0 // numbers of records of n and of v already handled
	for i := range a.edits {
		e := &a.edits[i]
		if k := e.at - from; k > 0 {
			move(v.dir, heads+to*headBytes, n.dir, heads+from*headBytes, k*headBytes)
			v.copySlots(to, n, from, k)
			to += k
		}
		from = e.at + e.skip
		if e.op == nil {
			continue
		}
		at := heapAppend(heap, e.cellLen)
		raw := e.op.put(add(heap, at), at+PageSize)
		key := e.op.inlineKey()
		store32(v.dir, heads+to*headBytes, headOf(key[prefix:]))
		storeSlot(v.dir, slots+to*leafSlotBytes, raw)
		to++
	}
	if k := old - from; k > 0 {
		move(v.dir, heads+to*headBytes, n.dir, heads+from*headBytes, k*headBytes)
		v.copySlots(to, n, from, k)
	}
	if prefix != n.prefix() {
		v.setHeads()
	}
	return v, true
}

// copySlots copies k slots of n, from index from on, to index to of v, a version that no reader has yet.
func (v Node) copySlots(to int, n Node, from, k int) {
	at := headerBytes + v.Count()*headBytes + to*leafSlotBytes
	if !n.hasOneSlot() {
		move(v.dir, at, n.dir, headerBytes+n.Count()*headBytes+from*leafSlotBytes, k*leafSlotBytes)
		return
	}
	for i := from; i < from+k; i++ {
		storeSlot(v.dir, at, n.rawSlot(i))
		at += leafSlotBytes
	}
}

func storeSlot(dir pointer, at int, raw uint64) {
	store32(dir, at, uint32(raw))
	store16(dir, at+4, int(raw>>32))
}

// patchedPrefix returns the common prefix of the patched leaf. Only a new first or last record can make it shorter;
// records between them have it, too. When records are removed, a longer prefix may become possible; only a rewrite
// makes use of it.
func (a *leafEdit) patchedPrefix(n Node, count int) int {
	first, last := &a.edits[0], &a.edits[len(a.edits)-1]
	switch {
	case count < 2:
		return 0
	case n.Count() < 2:
		return commonPrefix(a.firstKey(n), a.lastKey(n))
	case n.prefix() == 0 || first.at+first.skip > 0 && last.at < n.Count():
		return n.prefix()
	}
	return min(n.prefix(), commonPrefix(a.firstKey(n), a.lastKey(n)))
}

// firstKey returns the inline part of the first key of n after the edits. At least one record must be left.
func (a *leafEdit) firstKey(n Node) []byte {
	i := 0
	for j := range a.edits {
		e := &a.edits[j]
		if e.at > i {
			break
		}
		if e.op != nil {
			return e.op.inlineKey()
		}
		i++
	}
	return n.key(i)
}

// lastKey returns the inline part of the last key of n after the edits. At least one record must be left.
func (a *leafEdit) lastKey(n Node) []byte {
	i := n.Count()
	for j := len(a.edits) - 1; j >= 0; j-- {
		e := &a.edits[j]
		if e.at+e.skip < i {
			break
		}
		if e.op != nil {
			return e.op.inlineKey()
		}
		i--
	}
	return n.key(i - 1)
}

// heapFor returns a cell heap that has all cells of n's heap at their offsets and room for added more bytes, with a
// reference for the caller. It returns false if a rewrite of the leaf is better. cells are the bytes of all cells
// of the leaf after the edits.
func (a *leafEdit) heapFor(n Node, cells, added int) (pointer, bool) {
	h := n.heap
	switch {
	case h == nil:
		if added > maxBorrowedHeap-heapHeader {
			return nil, false
		}
		return newHeap(a.m, added), true
	case heapRoom(h) >= added:
		heapHold(h)
		return h, true
	}
	used := heapUsed(h)
	garbage := used - heapHeader - (cells - added)
	limit := maxHeap
	if n.base != nil {
		garbage, limit = 0, maxBorrowedHeap // most cells lie in the image, so a rewrite would save little more than the heap
	}
	if used+added > limit || garbage > cells/2 {
		return nil, false
	}
	grown := newHeap(a.m, min(2*used+added, limit)-heapHeader)
	move(grown, heapHeader, h, heapHeader, used-heapHeader)
	store16(grown, heapUsedAt, used)
	return grown, true
}

// maxBorrowedHeap, in bytes, is the largest heap of a leaf that has most of its cells in a page image. Beyond that,
// the leaf is rewritten without the image. A larger bound keeps more dead cells in memory; a smaller one copies the
// leaf more often.
const maxBorrowedHeap = 2048

// rewriteLeaf makes a version of a leaf with the edits, in a compact heap of its own.
func (a *leafEdit) rewriteLeaf(n Node, count, cells int) Node {
	w := startLeaf(a.m, count, cells, spareCells(cells), a.firstKey(n), a.lastKey(n))
	from := 0
	for i := range a.edits {
		e := &a.edits[i]
		w.records(n, from, e.at)
		if e.op != nil {
			w.op(e.op, e.cellLen)
		}
		from = e.at + e.skip
	}
	w.records(n, from, n.Count())
	return w.finish()
}
