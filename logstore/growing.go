package logstore

import (
	"encoding/binary"
	"hash/crc32"
)

// A growing page is an open page (see lastPage) whose checksum, end and count are one word of eight bytes. So it gets longer by one store
// of that word, behind those of the records: at each moment it is whole. The word is where other pages have their name.
//
//	 8  checksum, of all but this word and the four bytes that are its place in other pages, up to end, and then of end and count
//	12  end, in the page, behind the last record
//	14  count of the records
//
// What lies behind the end counts for nothing, and may be anything.
const (
	growingAt    = 8
	growingFlags = flagLast | flagOpen | flagGrows | uint8(RecordGroup)<<groupKindAt // all such pages have these, and no other has flagGrows
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

// putCRC stores a page's checksum in its place.
func putCRC(p []byte, crc uint32) {
	at := 0
	if p[5]&flagGrows != 0 {
		at = growingAt
	}
	binary.LittleEndian.PutUint32(p[at:], crc)
}

// putWord stores the word of a growing page.
func putWord(p []byte, word uint64) { binary.LittleEndian.PutUint64(p[growingAt:], word) }

// growingSum is the checksum of a growing page so far, without end and count; more records behind it are added by crc32.Update. p ends where
// they do.
func growingSum(salt uint64, a Addr, p []byte) uint32 {
	crc := crc32.Update(crcWord(crcWord(0, salt), a), castagnoli, p[4:growingAt])
	return crc32.Update(crc, castagnoli, p[growingAt+8:])
}

// growingEnd makes the checksum out of that, and the word.
func growingEnd(sum uint32, end, count int) (crc uint32, word uint64) {
	var b [4]byte
	binary.LittleEndian.PutUint16(b[:], uint16(end))
	binary.LittleEndian.PutUint16(b[2:], uint16(count))
	crc = sum ^ 0xFFFFFFFF
	for _, c := range b { // a slice given to crc32.Update would be allocated
		crc = castagnoli[byte(crc)^c] ^ crc>>8
	}
	crc ^= 0xFFFFFFFF
	return crc, uint64(crc) | uint64(end)<<32 | uint64(count)<<48
}

// growingCRC is pageCRC of a growing page. For one that cannot be it is not the checksum that it has.
func growingCRC(salt uint64, a Addr, p []byte) uint32 {
	m := getMux(p)
	if m.kind != KindRecord || m.flags != growingFlags || m.end < MuxSize || m.end > PageSize {
		return ^m.crc
	}
	crc, _ := growingEnd(growingSum(salt, a, p[:m.end]), int(m.end), int(m.count))
	return crc
}

// cutGrowing clears what counts for nothing in a page that was read.
func cutGrowing(p []byte) {
	if p[5]&flagGrows != 0 {
		clear(p[max(MuxSize, min(int(getMux(p).end), PageSize)):PageSize])
	}
}
