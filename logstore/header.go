package logstore

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	headerSize   = 512
	headerCopyAt = PageSize / 2 // offset of the second copy in the header's page
)

// headerPrivate is a flag: the segment is off the chain and holds extents of large values.
const headerPrivate = 1

// header is the first page of a segment, written before any other page of the segment.
//
//   - It takes one 512-byte sector, so a power cut leaves the old one or the new one.
//   - The page holds two copies. The first counts if it is whole. If its sector is damaged, the second counts: without
//     the salt, which is in the header, no checksum of a page of the segment could be verified.
type header struct {
	segment     uint32
	private     bool
	successor   uint32 // segment where the log continues; allocated before its own header is written
	salt        uint64 // random, drawn again at each reuse
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
		p[5] |= headerPrivate
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
	copy(p[headerCopyAt:], p[:headerSize])
}

// getHeader decodes the header in the first page of a segment. ok is false if the page has no header of this
// segment of this file.
func getHeader(p []byte, segment uint32, uuid [16]byte) (h header, ok bool) {
	if len(p) < PageSize {
		return h, false
	}
	if h, ok = getHeaderCopy(p[:headerSize]); !ok {
		h, ok = getHeaderCopy(p[headerCopyAt:])
	}
	return h, ok && h.segment == segment && h.uuid == uuid
}

func getHeaderCopy(p []byte) (h header, ok bool) {
	le := binary.LittleEndian
	if Kind(p[4]) != kindHeader || le.Uint32(p) != crc32.Checksum(p[4:headerSize], castagnoli) {
		return h, false
	}
	return header{
		segment: le.Uint32(p[8:]), private: p[5]&headerPrivate != 0, successor: le.Uint32(p[12:]),
		salt: le.Uint64(p[16:]), sequence: le.Uint64(p[24:]), predecessor: le.Uint64(p[32:]), group: le.Uint64(p[40:]),
		index: le.Uint32(p[48:]), digest: le.Uint32(p[52:]), uuid: [16]byte(p[56:72]),
	}, true
}
