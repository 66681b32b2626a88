package btree

// Rebase returns a version with the records of n that has no cells in the image that n borrows. n and older are
// versions of one leaf, n the later one, and image is the page into which older was encoded. Cells that n shares
// with older are taken from image; the others go to a heap of their own. ok is false if n and older borrow
// different images.
//
// A changed version keeps the cells that it shares with its predecessor at their offsets in image and heap. So n
// and older share a cell if and only if they have a cell at the same offset; an exception are cells of no bytes,
// whose offset says nothing.
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
	cells := 0 // bytes of the cells that older does not have
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

// movedCells returns scratch space for Rebase, indexed by the offset of a cell: its offset in the new image, 0 if
// it is not there. It is all zero, and the caller must leave it so.
func (m *Memory) movedCells() []uint16 {
	if m.moved == nil {
		m.moved = make([]uint16, PageSize+maxHeap)
	}
	return m.moved
}
