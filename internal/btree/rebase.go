package btree

// Rebase returns a version with the records of n that has no cells in the image that n borrows. n and older are versions of one leaf, n
// the later one, and image is the page that older was encoded into: what the two have in common is in that, and the rest, in a heap of
// its own. ok is false if n and older borrow different images.
//
// A version that was changed has the cells that it keeps at the offsets where they were, in image and heap. So a cell is the same in both
// if the offset is; one without bytes, which says nothing by its offset, apart.
func (n Node) Rebase(m *Memory, older Node, image []byte) (v Node, ok bool) {
	if !n.IsLeaf() || !older.IsLeaf() || n.IsImage() || n.base == nil || n.base != older.base {
		return Node{}, false
	}
	written, moved := View(image), m.movedCells()
	for i := range older.Count() {
		raw := older.rawSlot(i)
		if rawKeyLen(raw)+rawValueLen(raw) > 0 {
			moved[rawOffset(raw)] = uint16(rawOffset(written.rawSlot(i)))
		}
	}
	count, end := n.Count(), headerBytes+n.Count()*leafEntryBytes+max(2, n.prefix())
	cells := 0 // bytes of those that older does not have
	for i := range count {
		if raw := n.rawSlot(i); moved[rawOffset(raw)] == 0 {
			cells += rawKeyLen(raw) + rawValueLen(raw)
		}
	}
	v = Node{dir: m.alloc(classOf(end)), base: written.base, heap: newHeap(m, cells)}
	v.meta = pack(0, count, n.prefix(), ownsDirectory|ownsHeap) | n.meta&isEven
	move(v.dir, 0, n.dir, 0, end)
	slots := headerBytes + count*headBytes
	for i := range count {
		raw := n.rawSlot(i)
		at := int(moved[rawOffset(raw)])
		if at == 0 {
			size := rawKeyLen(raw) + rawValueLen(raw)
			to := heapAppend(v.heap, size)
			move(v.heap, to, n.cell(rawOffset(raw)), 0, size)
			at = to + PageSize
		}
		store16(v.dir, slots+i*leafSlotBytes, at)
	}
	for i := range older.Count() {
		moved[rawOffset(older.rawSlot(i))] = 0
	}
	return v, true
}

// movedCells returns scratch for Rebase: by the offset of a cell where it is in the new image, 0 if it is not. It is all 0, and to be left so.
func (m *Memory) movedCells() []uint16 {
	if m.moved == nil {
		m.moved = make([]uint16, PageSize+maxHeap)
	}
	return m.moved
}
