package btree

import "encoding/binary"

// Encode writes n into the body of a page image, its last BodySize bytes. What it writes depends only on the records or children of n.
func (n Node) Encode(body []byte) {
	if len(body) != BodySize {
		panic("btree: body of a page has the wrong size")
	}
	if n.IsLeaf() {
		n.encodeLeaf(body)
		return
	}
	clear(body[copy(body, slice(n.dir, 0, n.bytes())):])
}

// EncodeEmptyLeaf writes the body of a leaf without records, the root of an empty tree.
func EncodeEmptyLeaf(body []byte) { clear(body[:BodySize]) }

func (n Node) encodeLeaf(body []byte) {
	count, prefix := n.Count(), n.exactPrefix()
	le := binary.LittleEndian
	body[levelAt], body[flagsAt] = 0, 0
	le.PutUint16(body[countAt:], uint16(count))
	le.PutUint16(body[prefixAt:], uint16(prefix))
	heads := body[headerBytes:]
	slots := heads[count*headBytes:]
	at := headerBytes + count*leafEntryBytes
	for i := range count {
		raw := n.rawSlot(i)
		cell := slice(n.cell(rawOffset(raw)), 0, rawKeyLen(raw)+rawValueLen(raw))
		le.PutUint32(heads[i*headBytes:], headOf(cell[prefix:rawKeyLen(raw)]))
		le.PutUint16(slots[i*leafSlotBytes:], uint16(MuxSize+at))
		le.PutUint32(slots[i*leafSlotBytes+2:], uint32(raw>>16))
		at += copy(body[at:], cell)
	}
	le.PutUint16(body[cellBytesAt:], uint16(at-headerBytes-count*leafEntryBytes))
	clear(body[at:])
}

// exactPrefix returns how many bytes the inline parts of all keys of a leaf share. The prefix of a version may be shorter, since it is
// not raised when records leave.
func (n Node) exactPrefix() int {
	if n.Count() < 2 {
		return 0
	}
	return commonPrefix(n.key(0), n.key(n.Count()-1))
}
