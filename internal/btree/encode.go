package btree

import "encoding/binary"

// Encode writes n into the body of a page image, the last BodySize bytes of the page. The result depends only on
// the records or children of n, and on even. A leaf that can be even is written as an even one if even is set, or
// if it would not fit the page otherwise.
func (n Node) Encode(body []byte, even bool) {
	if len(body) != BodySize {
		panic("btree: body of a page has the wrong size")
	}
	if n.IsLeaf() {
		n.encodeLeaf(body, even)
		return
	}
	clear(body[copy(body, slice(n.dir, 0, n.bytes())):])
}

// EncodeEmptyLeaf writes the body of a leaf without records: the root of an empty tree.
func EncodeEmptyLeaf(body []byte) { clear(body[:BodySize]) }

func (n Node) encodeLeaf(body []byte, even bool) {
	count, prefix := n.Count(), n.exactPrefix()
	even = (even || leafBytes(count, n.cellBytes(), false) > BodySize) && n.isEven()
	le := binary.LittleEndian
	body[levelAt], body[flagsAt] = 0, 0
	start := leafBytes(count, 0, even)
	if even {
		body[flagsAt] = flagEven
	}
	le.PutUint16(body[countAt:], uint16(count))
	le.PutUint16(body[prefixAt:], uint16(prefix))
	heads := body[headerBytes:]
	slots := heads[count*headBytes:]
	at := start
	for i := range count {
		raw := n.rawSlot(i)
		cell := slice(n.cell(rawOffset(raw)), 0, rawKeyLen(raw)+rawValueLen(raw))
		le.PutUint32(heads[i*headBytes:], headOf(cell[prefix:rawKeyLen(raw)]))
		if i == 0 || !even {
			le.PutUint16(slots[i*leafSlotBytes:], uint16(MuxSize+at))
			le.PutUint32(slots[i*leafSlotBytes+2:], rawLengths(raw))
		}
		at += copy(body[at:], cell)
	}
	le.PutUint16(body[cellBytesAt:], uint16(at-start))
	clear(body[at:])
}

// isEven reports whether a leaf can be even: all records have the same lengths.
func (n Node) isEven() bool {
	if n.even() || n.Count() < 2 {
		return n.even()
	}
	lengths := rawLengths(n.rawSlot(0))
	for i := 1; i < n.Count(); i++ {
		if rawLengths(n.rawSlot(i)) != lengths {
			return false
		}
	}
	return true
}

// exactPrefix returns how many leading bytes the inline parts of all keys of a leaf share. The prefix of a version
// may be shorter, because it is not raised when records are removed.
func (n Node) exactPrefix() int {
	if n.Count() < 2 {
		return 0
	}
	return commonPrefix(n.key(0), n.key(n.Count()-1))
}

// LeafBytes returns the number of records in the body of a leaf's image, the bytes of their cells, and the bytes
// that their logged values take elsewhere.
func LeafBytes(body []byte) (records, bytes, logged int) {
	le := binary.LittleEndian
	records, bytes = int(le.Uint16(body[countAt:])), int(le.Uint16(body[cellBytesAt:]))
	slot, step := body[headerBytes+records*headBytes:], leafSlotBytes
	if body[flagsAt]&flagEven != 0 {
		step = 0
	}
	at := leafBytes(records, 0, step == 0)
	for i := range records {
		lengths := slot[i*step+2:]
		key, value := int(le.Uint16(lengths)&lengthMask), int(le.Uint16(lengths[2:]))
		if ValueKind(value>>kindShift&kindMask) == Logged {
			logged += int(le.Uint16(body[at+key+placeLengthAt:]))
		}
		at += key + value&lengthMask
	}
	return records, bytes, logged
}
