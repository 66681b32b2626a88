package btree

// leafWriter makes a version of a leaf from scratch, with a cell heap of its own and without an image.
type leafWriter struct {
	m      *Memory
	dir    pointer
	heap   pointer
	count  int // records that the leaf will have
	prefix int
	next   int // records written so far
}

// spareCells returns the room of a new heap for cells bytes of cells: a quarter more, because a leaf that was
// changed once tends to be changed again, but not more than the largest heap has.
func spareCells(cells int) int { return min(cells+cells/4, maxHeap-heapHeader) }

// newDirectory returns the directory of a leaf whose first key begins with first and whose common prefix has prefix
// bytes. The caller has to write heads and slots. The prefix is stored after the slots, so that a search can
// compare it without reading cells; an image has it in the same place, as the beginning of the first cell. Two more
// bytes follow for rawSlot, which reads up to two bytes past the last slot.
func newDirectory(m *Memory, count, cells, prefix int, first []byte) pointer {
	end := headerBytes + count*leafEntryBytes
	dir := m.alloc(classOf(end + max(2, prefix)))
	store64(dir, 0, uint64(count)<<(8*countAt)|uint64(prefix)<<(8*prefixAt)|uint64(cells)<<(8*cellBytesAt))
	copy(slice(dir, end, prefix), first)
	return dir
}

// startLeaf begins a leaf of count records with cells bytes of cells. first and last are the inline parts of the
// first and the last key. The heap gets room for capacity bytes.
func startLeaf(m *Memory, count, cells, capacity int, first, last []byte) leafWriter {
	w := leafWriter{m: m, heap: newHeap(m, capacity), count: count}
	if count > 1 {
		w.prefix = commonPrefix(first, last)
	}
	w.dir = newDirectory(m, count, cells, w.prefix, first)
	return w
}

func (w *leafWriter) putSlot(raw uint64) {
	storeSlot(w.dir, headerBytes+w.count*headBytes+w.next*leafSlotBytes, raw)
	w.next++
}

// records copies the records from to to-1 of leaf n.
func (w *leafWriter) records(n Node, from, to int) {
	for i := from; i < to; {
		// Cells that lie back to back, as in an image, are copied in one go.
		first := n.rawSlot(i)
		start := rawOffset(first)
		end := start + rawKeyLen(first) + rawValueLen(first)
		j := i + 1
		for ; j < to; j++ {
			raw := n.rawSlot(j)
			if rawOffset(raw) != end {
				break
			}
			end += rawKeyLen(raw) + rawValueLen(raw)
		}
		at := heapAppend(w.heap, end-start)
		move(w.heap, at, n.cell(start), 0, end-start)
		shift := uint64(at + PageSize - start)
		for ; i < j; i++ {
			raw := n.rawSlot(i)
			w.putSlot(raw&^0xFFFF | (raw+shift)&0xFFFF)
		}
	}
}

// op adds the record of a put.
func (w *leafWriter) op(op *Op, cellLen int) {
	at := heapAppend(w.heap, cellLen)
	w.putSlot(op.put(add(w.heap, at), at+PageSize))
}

// finish returns the leaf.
func (w *leafWriter) finish() Node {
	n := w.node()
	n.setHeads()
	if n.isEven() {
		n.meta |= isEven
	}
	return n
}

// node returns the leaf. Its heads must be set before or after the call.
func (w *leafWriter) node() Node {
	if w.next != w.count {
		panic("btree: leaf has other records than announced")
	}
	return Node{dir: w.dir, heap: w.heap, meta: pack(0, w.count, w.prefix, ownsDirectory|ownsHeap)}
}

// setHeads writes the heads of a version that no reader has yet.
func (n Node) setHeads() {
	prefix := n.prefix()
	for i := range n.Count() {
		store32(n.dir, headerBytes+i*headBytes, headOf(n.key(i)[prefix:]))
	}
}

// Own returns a version with the records or children of n that depends on no page image and shares nothing with n.
func (n Node) Own(m *Memory) Node {
	if !n.IsLeaf() {
		return n.ownImage(m)
	}
	if n.Count() == 0 {
		return EmptyLeaf(m)
	}
	cells := n.cellBytes()
	w := startLeaf(m, n.Count(), cells, spareCells(cells), n.key(0), n.key(n.Count()-1))
	w.records(n, 0, n.Count())
	return w.finish()
}

// Share returns a version with the records or children of n, to be installed under another name. A leaf in memory
// shares its cells with n, in the heap and in the image; the copy of a View is the View itself.
func (n Node) Share(m *Memory) Node {
	switch {
	case !n.IsLeaf():
		return n.ownImage(m)
	case n.IsImage():
		return n
	}
	end := headerBytes + n.Count()*leafEntryBytes + max(2, n.prefix())
	dir := m.alloc(classOf(end))
	move(dir, 0, n.dir, 0, end)
	if n.heap != nil {
		heapHold(n.heap)
	}
	n.dir = dir
	return n
}

// EmptyLeaf returns a version of a leaf without records.
func EmptyLeaf(m *Memory) Node {
	w := startLeaf(m, 0, 0, 0, nil, nil)
	return w.finish()
}
