package btree

// Op is one change of a batch: put or delete a record.
type Op struct {
	Key    []byte // the whole key, even if it is long
	Value  []byte // of a put without Ref; FitsInline holds
	Ref    *Ref   // of a put whose value, with the key if it is long, the caller has written elsewhere
	Delete bool   // a delete: Value and Ref are ignored
	Marks  bool   // of a delete: the leaf gets a new version even if it has no such record
}

// inlineKey returns the part of the key that goes into the leaf.
func (op *Op) inlineKey() []byte { return op.Key[:min(len(op.Key), MaxInlineKey)] }

// cellLen returns the bytes of the cell of a put. It panics if no leaf can have the record.
func (op *Op) cellLen() int {
	if op.Ref != nil && op.Ref.Kind == Logged {
		if op.Ref.KeyLen != 0 || !FitsInline(len(op.Key), int(op.Ref.ValueLen)) {
			panic("btree: reference does not belong to its record")
		}
		return len(op.Key) + loggedBytes
	}
	if op.Ref != nil {
		if op.Ref.KeyLen != RunKeyLen(op.Key) || op.Ref.Kind != Run && op.Ref.Kind != Extents || op.Ref.ValueLen > MaxValue || len(op.Key) > MaxKey {
			panic("btree: reference does not belong to its record")
		}
		return len(op.inlineKey()) + refBytes
	}
	if !FitsInline(len(op.Key), len(op.Value)) {
		panic("btree: record too large for its leaf")
	}
	return len(op.Key) + len(op.Value)
}

// put writes the cell of a put and returns the slot of a cell at the given offset.
func (op *Op) put(cell pointer, offset int) uint64 {
	key := op.inlineKey()
	copy(slice(cell, 0, len(key)), key)
	if op.Ref == nil {
		copy(slice(cell, len(key), len(op.Value)), op.Value)
	} else if op.Ref.Kind == Logged {
		store64(cell, len(key), op.Ref.ID)
		store16(cell, len(key)+placeLengthAt, int(op.Ref.ValueLen))
	} else {
		store64(cell, len(key), op.Ref.ID)
		store64(cell, len(key)+8, op.Ref.ValueLen)
		store32(cell, len(key)+16, op.Ref.KeyLen)
	}
	return uint64(offset) | uint64(op.lengths())<<16
}

// lengths returns the slot of a put without its offset: see rawLengths.
func (op *Op) lengths() uint32 {
	keyLen, valueLen := len(op.inlineKey()), len(op.Value)
	if op.Ref != nil {
		valueLen = refBytes
		if op.Ref.Kind == Logged {
			valueLen = loggedBytes
		}
		valueLen |= int(op.Ref.Kind) << kindShift
	}
	if len(op.Key) > MaxInlineKey {
		keyLen |= keyLong
	}
	return uint32(keyLen) | uint32(valueLen)<<16
}
