package logstore

import (
	"encoding/binary"
	"hash/crc32"
)

const headerSize = 512

const headerPrivate = 1 // of the header's flags: the segment is off the chain and holds extents of large values

// header is the first page of a segment, all of it in one 512-byte sector. It is written before any page of its segment.
type header struct {
	segment     uint32
	private     bool
	successor   uint32 // segment where the log goes on; allocated before its own header is written
	salt        uint64 // random, drawn anew at each reuse
	sequence    uint64 // one more than the predecessor's
	predecessor uint64 // the predecessor's salt
	group       uint64 // group of the page after the header
	index       uint32 // index of that page in its group
	digest      uint32 // chain digest before that page
	uuid        [16]byte
}

func (h *header) put(p []byte) {
	le := binary.LittleEndian
	clear(p[:PageSize])
	p[4] = byte(kindHeader)
	if h.private {
		p[5] = headerPrivate
	}
	le.PutUint32(p[8:], h.segment)
	le.PutUint32(p[12:], h.successor)
	le.PutUint64(p[16:], h.salt)
	le.PutUint64(p[24:], h.sequence)
	le.PutUint64(p[32:], h.predecessor)
	le.PutUint64(p[40:], h.group)
	le.PutUint32(p[48:], h.index)
	le.PutUint32(p[52:], h.digest)
	copy(p[56:72], h.uuid[:])
	le.PutUint32(p, crc32.Checksum(p[4:headerSize], castagnoli))
}

// getHeader decodes a segment header; ok is false if it is no header, damaged, of another segment or of another file.
func getHeader(p []byte, segment uint32, uuid [16]byte) (h header, ok bool) {
	le := binary.LittleEndian
	if len(p) < headerSize || Kind(p[4]) != kindHeader || le.Uint32(p) != crc32.Checksum(p[4:headerSize], castagnoli) {
		return h, false
	}
	h = header{
		segment: le.Uint32(p[8:]), private: p[5]&headerPrivate != 0, successor: le.Uint32(p[12:]), salt: le.Uint64(p[16:]),
		sequence: le.Uint64(p[24:]), predecessor: le.Uint64(p[32:]), group: le.Uint64(p[40:]), index: le.Uint32(p[48:]),
		digest: le.Uint32(p[52:]), uuid: [16]byte(p[56:72]),
	}
	return h, h.segment == segment && h.uuid == uuid
}
