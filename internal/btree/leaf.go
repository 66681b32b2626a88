package btree

// Ref is what a leaf holds of a record that does not fit it: where the value is, and the rest of a long key.
type Ref struct {
	ID       PageID    // name of the run
	ValueLen uint64    // bytes of the value
	KeyLen   uint32    // bytes of the key, which precedes the value in the run, if the key is long; else 0
	Kind     ValueKind // Run or Extents
}

// RunKeyLen returns how many bytes of a key the run of its record holds, which is Ref.KeyLen: all of a long key, none of a short one.
func RunKeyLen(key []byte) uint32 {
	if len(key) > MaxInlineKey {
		return uint32(len(key))
	}
	return 0
}

// rawSlot returns the i-th slot as it is stored, or would be: offset, key length and value length in 16 bits each. It reads two bytes past
// the slot. Those are cells in an image; a directory's block has two bytes to spare.
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

// rawLengths returns what all slots of an even leaf have in common.
func rawLengths(raw uint64) uint32 { return uint32(raw >> 16) }

// cell returns where the cell at an offset is.
func (n Node) cell(offset int) pointer {
	if offset < PageSize {
		return add(n.base, offset)
	}
	return add(n.heap, offset-PageSize)
}

// key returns the inline part of the i-th key of a leaf.
func (n Node) key(i int) []byte {
	raw := n.rawSlot(i)
	return slice(n.cell(rawOffset(raw)), 0, rawKeyLen(raw))
}

// Cell returns the i-th record of a leaf.
func (n Node) Cell(i int) Cell {
	raw := n.rawSlot(i)
	return Cell{n.cell(rawOffset(raw)), raw}
}

// Cell is a record in a leaf. It is a small value and lives as long as the version it is of. The zero Cell is no record.
type Cell struct {
	at  pointer // key, then value or reference
	raw uint64  // slot
}

// Key returns the key, or the first MaxInlineKey bytes of a long one.
func (c Cell) Key() []byte { return slice(c.at, 0, rawKeyLen(c.raw)) }

// IsLong reports whether the key is longer than what Key returns; WholeKey has it all.
func (c Cell) IsLong() bool { return rawLong(c.raw) }

// Kind says where the value is.
func (c Cell) Kind() ValueKind { return rawKind(c.raw) }

// Value returns the value of an Inline record. Of others it returns nil.
func (c Cell) Value() []byte {
	if c.Kind() != Inline {
		return nil
	}
	return slice(c.at, rawKeyLen(c.raw), rawValueLen(c.raw))
}

// Ref returns where the value is if it is not Inline. For Inline records it is the zero Ref.
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

// ValueLen returns the bytes of the value, wherever it is.
func (c Cell) ValueLen() uint64 {
	if c.Kind() == Inline {
		return uint64(rawValueLen(c.raw))
	}
	return c.Ref().ValueLen
}

// size returns the bytes of the cell.
func (c Cell) size() int { return rawKeyLen(c.raw) + rawValueLen(c.raw) }

// WholeKey returns the key, fetching a long one through p, the snapshot that the record was found in.
func (c Cell) WholeKey(p Pager) ([]byte, error) {
	if !c.IsLong() {
		return c.Key(), nil
	}
	return longKey(p, c)
}
