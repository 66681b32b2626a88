package btree

// PageID is the name by which a parent knows a child. It means nothing to this package.
type PageID = uint64

// Node is a read-only view of one tree page: a page image, or a version in memory. It is small, passed by value,
// and owns nothing. The zero Node is not a page.
//
// A leaf consists of up to three pieces: its directory (header, heads and slots); a page image, which has the cells
// at offsets below PageSize; and a cell heap, which has the cells at offsets from PageSize on. In an image the
// directory is a part of the image, and there is no heap. An inner node is always an image; in a version, the image
// ends after its last cell.
type Node struct {
	dir  pointer // header, heads, slots
	base pointer // image, or nil if the leaf has all its cells in the heap
	heap pointer // cell heap, or nil
	meta uint64  // count, prefix, level, pieces, and whether it is even: see pack
}

// Pieces of a Node that were allocated from a Memory.
const (
	ownsDirectory = 1 << 0 // dir is a block
	ownsHeap      = 1 << 1 // heap is a block, shared by reference count
	ownsImage     = 1 << 2 // base is a block, of this version alone
)

// isEven marks an even leaf in the meta of a Node. The image of an even leaf has one slot, a version has the slots
// of all records.
const isEven = 1 << 48

func pack(level, count, prefix, owns int) uint64 {
	return uint64(count) | uint64(prefix)<<16 | uint64(level)<<32 | uint64(owns)<<40
}

// View returns a page image as a Node. It checks nothing: the image must come from this package, or have passed
// CheckPage.
func View(image []byte) Node {
	_ = image[PageSize-1]
	base := pointerTo(image)
	return viewAt(base, 0)
}

func viewAt(base pointer, owns int) Node {
	dir := add(base, MuxSize)
	h := load64(dir, 0)
	level, count, prefix := h&0xFF, h>>16&0xFFFF, h>>32&0xFFFF
	even := h >> (8 * flagsAt) & flagEven
	return Node{dir: dir, base: base, meta: count | prefix<<16 | level<<32 | uint64(owns)<<40 | even*isEven}
}

// Level returns 0 for a leaf, and for an inner node one more than the level of its children.
func (n Node) Level() int { return int(n.meta >> 32 & 0xFF) }

// IsLeaf reports whether n is a leaf.
func (n Node) IsLeaf() bool { return n.meta>>32&0xFF == 0 }

// Count returns the number of records of a leaf, or of children of an inner node.
func (n Node) Count() int { return int(n.meta & 0xFFFF) }

// prefix returns the number of leading bytes that all keys, or separators 1 and up, have in common, and that heads
// leave out.
func (n Node) prefix() int { return int(n.meta >> 16 & 0xFFFF) }

// common returns the bytes of the prefix. They stand after the directory.
func (n Node) common() []byte {
	size := leafEntryBytes
	switch {
	case !n.IsLeaf():
		size = innerEntryBytes
	case n.hasOneSlot():
		return slice(n.dir, headerBytes+n.Count()*headBytes+leafSlotBytes, n.prefix())
	}
	return slice(n.dir, headerBytes+n.Count()*size, n.prefix())
}

// even reports whether a leaf is known to be even. A leaf that is not known to be even may be even all the same; it
// then also fits a page as a leaf that is not even.
func (n Node) even() bool { return n.meta&isEven != 0 }

// hasOneSlot reports whether the directory of a leaf has only the slot of its first record, as in the image of an
// even leaf.
func (n Node) hasOneSlot() bool { return n.meta&(isEven|ownsDirectory<<40) == isEven }

func (n Node) owns(piece uint64) bool { return n.meta>>40&piece != 0 }

// IsImage reports whether n is the View of a page image that the caller of View keeps, and not a version in
// memory.
func (n Node) IsImage() bool { return n.meta>>40&0xFF == 0 }

// Borrows reports whether n reads a page image that the caller of View keeps: n is that View, or a version of a
// leaf some of whose cells still lie in the image. The image must stay unchanged for as long as n may be read.
// Node.Own makes a version that borrows nothing.
func (n Node) Borrows() bool { return n.base != nil && !n.owns(ownsImage) }

// cellBytes returns the bytes of the cells that belong to the records of n.
func (n Node) cellBytes() int { return load16(n.dir, cellBytesAt) }

// bytes returns how many bytes of a page body n takes.
func (n Node) bytes() int {
	if n.IsLeaf() {
		return leafBytes(n.Count(), n.cellBytes(), n.even())
	}
	return innerBytes(n.Count(), n.cellBytes())
}

// head returns the i-th head.
func (n Node) head(i int) uint32 { return load32(n.dir, headerBytes+i*headBytes) }

// FirstKey returns the key that orders the pages of a level: the inline part of a leaf's first key, or separator 1
// of an inner node; nil if there is none. For an inner node it allocates.
func (n Node) FirstKey() []byte {
	switch {
	case n.IsLeaf() && n.Count() > 0:
		return n.key(0)
	case !n.IsLeaf() && n.Count() > 1:
		s, _ := n.Separator(1, nil)
		return s
	}
	return nil
}

// Release frees the blocks that only n holds; a View holds none. The writer calls it once for each version, when
// no reader can reach the version any more.
func (n Node) Release(m *Memory) {
	if n.owns(ownsDirectory) {
		m.release(n.dir)
	}
	if n.owns(ownsHeap) {
		heapRelease(m, n.heap)
	}
	if n.owns(ownsImage) {
		m.release(n.base)
	}
}

// headOf returns the first four bytes of b, padded with zeros, as a big-endian number: numbers
// compare like these bytes.
func headOf(b []byte) uint32 {
	if len(b) >= 4 {
		return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	}
	var h uint32
	for i, c := range b {
		h |= uint32(c) << (24 - 8*i)
	}
	return h
}

// commonPrefix returns how many leading bytes a and b share.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	b = b[:n]
	for i, c := range a[:n] {
		if c != b[i] {
			return i
		}
	}
	return n
}
