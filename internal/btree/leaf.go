package btree

// Ref is stored in a leaf for a record that is not Inline: it says where the value is, and has the length of
// a long key.
type Ref struct {
	ID       PageID    // name of the run, or place of a Logged value
	ValueLen uint64    // bytes of the value
	KeyLen   uint32    // bytes of a long key, which precedes the value in the run; 0 for a short key
	Kind     ValueKind // Run, Extents or Logged
}

// RunKeyLen returns how many bytes of a key are in the run of its record, the value for Ref.KeyLen: all bytes of
// a long key, none of a short one.
func RunKeyLen(key []byte) uint32 {
	if len(key) > MaxInlineKey {
		return uint32(len(key))
	}
	return 0
}

// rawSlot returns slot i as it is stored, or would be in a leaf that is not even: offset, key length and value
// length in 16 bits each. It reads two bytes past the slot: bytes of cells in an image, and two spare bytes in the
// block of a directory.
func (n Node) rawSlot(i int) uint64 {
	at := headerBytes + n.Count()*headBytes
	if !n.hasOneSlot() {
		return load64(n.dir, at+i*leafSlotBytes)
	}
	raw := load64(n.dir, at)
	return raw + uint64(i)*(raw>>16&lengthMask+raw>>32&lengthMask)
}

func rawOffset(raw uint64) int   { return int(raw & 0xFFFF) }
func rawKeyLen(raw uint64) int   { return int(raw >> 16 & lengthMask) }
func rawLong(raw uint64) bool    { return raw>>16&keyLong != 0 }
func rawValueLen(raw uint64) int { return int(raw >> 32 & lengthMask) }
func rawKind(raw uint64) ValueKind {
	return ValueKind(raw >> (32 + kindShift) & kindMask)
}

// rawLengths returns the part of a slot that is the same in all slots of an even leaf.
func rawLengths(raw uint64) uint32 { return uint32(raw >> 16) }

// cell returns the address of the cell at an offset.
func (n Node) cell(offset int) pointer {
	if offset < PageSize {
		return add(n.base, offset)
	}
	return add(n.heap, offset-PageSize)
}

// key returns the inline part of key i of a leaf.
func (n Node) key(i int) []byte {
	raw := n.rawSlot(i)
	return slice(n.cell(rawOffset(raw)), 0, rawKeyLen(raw))
}

// Cell returns record i of a leaf.
func (n Node) Cell(i int) Cell {
	raw := n.rawSlot(i)
	return Cell{n.cell(rawOffset(raw)), raw}
}

// Cell is a record in a leaf: a small value that lives as long as the version of the leaf. The zero Cell is no
// record.
type Cell struct {
	at  pointer // key, followed by value or reference
	raw uint64  // the record's slot
}

// Key returns the key, or the first MaxInlineKey bytes of a long one.
func (c Cell) Key() []byte { return slice(c.at, 0, rawKeyLen(c.raw)) }

// IsLong reports whether the key is longer than what Key returns; WholeKey returns all of it.
func (c Cell) IsLong() bool { return rawLong(c.raw) }

// Kind says where the value is.
func (c Cell) Kind() ValueKind { return rawKind(c.raw) }

// Value returns the value of an Inline record, and nil for other records.
func (c Cell) Value() []byte {
	if c.Kind() != Inline {
		return nil
	}
	return slice(c.at, rawKeyLen(c.raw), rawValueLen(c.raw))
}

// Ref returns the reference to a value that is not Inline. For an Inline record it returns the
// zero Ref.
func (c Cell) Ref() Ref {
	if c.Kind() == Inline {
		return Ref{}
	}
	at := rawKeyLen(c.raw)
	if c.Kind() == Logged {
		return Ref{ID: load64(c.at, at), ValueLen: uint64(load16(c.at, at+placeLengthAt)), Kind: Logged}
	}
	return Ref{ID: load64(c.at, at), ValueLen: load64(c.at, at+8), KeyLen: load32(c.at, at+16), Kind: c.Kind()}
}

// ValueLen returns the length of the value in bytes, for every kind of value.
func (c Cell) ValueLen() uint64 {
	if c.Kind() == Inline {
		return uint64(rawValueLen(c.raw))
	}
	return c.Ref().ValueLen
}

// size returns the bytes of the cell.
func (c Cell) size() int { return rawKeyLen(c.raw) + rawValueLen(c.raw) }

// WholeKey returns the key. It reads a long key through p, the snapshot in which the record was found.
func (c Cell) WholeKey(p Pager) ([]byte, error) {
	if !c.IsLong() {
		return c.Key(), nil
	}
	return longKey(p, c)
}
