package btree

// Layout of an inner node's directory: heads | slots | children.

func (n Node) innerSlot(i int) uint32 {
	return load32(n.dir, headerBytes+n.Count()*headBytes+i*innerSlotBytes)
}

func innerOffset(raw uint32) int { return int(raw & 0xFFFF) }
func innerLen(raw uint32) int    { return int(raw >> 16 & lengthMask) }
func innerCut(raw uint32) bool   { return raw>>16&separatorCut != 0 }

// Child returns the name of the i-th child of an inner node.
func (n Node) Child(i int) PageID {
	return load64(n.dir, headerBytes+n.Count()*(headBytes+innerSlotBytes)+i*childBytes)
}

// tail returns the bytes of a separator after the common prefix and the head.
func (n Node) tail(raw uint32) []byte {
	return slice(n.base, innerOffset(raw), max(0, innerLen(raw)-headBytes))
}

// Separator appends separator i, the lower bound of child i, to b. If cut is true, the bound is the first key below
// the child, and the bytes appended are not above that key. Separator 0 is empty.
func (n Node) Separator(i int, b []byte) (separator []byte, cut bool) {
	if i == 0 {
		return b, false
	}
	raw := n.innerSlot(i)
	b = append(b, n.common()...)
	h, l := n.head(i), innerLen(raw)
	for j := range min(l, headBytes) {
		b = append(b, byte(h>>(24-8*j)))
	}
	return append(b, n.tail(raw)...), innerCut(raw)
}

// WithChildren returns a new version of an inner node with the same separators, whose child i has the name f(i, its
// present name).
func (n Node) WithChildren(m *Memory, f func(i int, id PageID) PageID) Node {
	v := n.ownImage(m)
	at := headerBytes + v.Count()*(headBytes+innerSlotBytes)
	for i := range v.Count() {
		store64(v.dir, at+i*childBytes, f(i, n.Child(i)))
	}
	return v
}

// ownImage returns a copy of an inner node in a block of its own.
func (n Node) ownImage(m *Memory) Node {
	bytes := n.bytes()
	image := m.alloc(classOf(MuxSize + bytes))
	move(image, MuxSize, n.dir, 0, bytes)
	return viewAt(image, ownsImage)
}
