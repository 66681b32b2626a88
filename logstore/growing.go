package logstore

import (
	"encoding/binary"
	"hash/crc32"
)

// A growing page is an open page (see lastPage) in which the checksum, the end and the count are one word of
// eight bytes. A single store of that word, after the store of the records, makes the page longer, so the page
// is whole at every moment. The word is at the offset where other pages have their name.
//
//	 8  checksum: of all bytes up to end except this word and the four bytes where other pages have their checksum, then of end and count
//	12  end: offset in the page after the last record
//	14  count of the records
//
// Bytes after the end do not count and may have any value.
const (
	growingAt    = 8
	growingFlags = flagLast | flagOpen | flagGrows | uint8(RecordGroup)<<groupKindAt // every growing page has exactly these flags, and no other page has flagGrows
)

func (m *mux) putGrowing(p []byte) {
	le := binary.LittleEndian
	le.PutUint32(p[growingAt:], 0)
	le.PutUint16(p[growingAt+4:], m.end)
	le.PutUint16(p[growingAt+6:], uint16(m.count))
	le.PutUint64(p[28:], 0)
}

func (m *mux) getGrowing(p []byte) {
	le := binary.LittleEndian
	m.crc, m.end, m.count, m.name = le.Uint32(p[growingAt:]), le.Uint16(p[growingAt+4:]), uint64(le.Uint16(p[growingAt+6:])), 0
}

// growingHead reports whether a page with flagGrows has a head that a growing page can have.
func (m *mux) growingHead() bool {
	return m.kind == KindRecord && m.flags == growingFlags && m.end >= MuxSize && m.end <= PageSize
}

// putCRC stores a page's checksum at the offset that the page's form has for it.
func putCRC(p []byte, crc uint32) {
	at := 0
	if p[5]&flagGrows != 0 {
		at = growingAt
	}
	binary.LittleEndian.PutUint32(p[at:], crc)
}

// putWord stores the word of a growing page.
func putWord(p []byte, word uint64) { binary.LittleEndian.PutUint64(p[growingAt:], word) }

// growingSum is the checksum of a growing page before end and count are added to it. p ends after the last
// record; crc32.Update adds further records.
func growingSum(salt uint64, a Addr, p []byte) uint32 {
	crc := crc32.Update(crcWord(crcWord(0, salt), a), castagnoli, p[4:growingAt])
	return crc32.Update(crc, castagnoli, p[growingAt+8:])
}

// growingEnd adds end and count to a growingSum and returns the checksum and the page's word.
func growingEnd(sum uint32, end, count int) (crc uint32, word uint64) {
	var b [4]byte
	binary.LittleEndian.PutUint16(b[:], uint16(end))
	binary.LittleEndian.PutUint16(b[2:], uint16(count))
	crc = sum ^ 0xFFFFFFFF
	for _, c := range b { // crc32.Update would make the slice escape to the heap
		crc = castagnoli[byte(crc)^c] ^ crc>>8
	}
	crc ^= 0xFFFFFFFF
	return crc, uint64(crc) | uint64(end)<<32 | uint64(count)<<48
}

// growingCRC is pageCRC for a growing page. For a page whose head is impossible it returns a checksum that
// differs from the stored one.
func growingCRC(salt uint64, a Addr, p []byte) uint32 {
	m := getMux(p)
	if !m.growingHead() {
		return ^m.crc
	}
	crc, _ := growingEnd(growingSum(salt, a, p[:m.end]), int(m.end), int(m.count))
	return crc
}

// cutGrowing clears the bytes after the end of a growing page that was read.
func cutGrowing(p []byte) {
	if p[5]&flagGrows != 0 {
		clear(p[max(MuxSize, min(int(getMux(p).end), PageSize)):PageSize])
	}
}
