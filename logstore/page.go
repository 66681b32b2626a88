package logstore

import (
	"encoding/binary"
	"hash/crc32"
)

// Kind says what the body of a page holds.
type Kind uint8

const (
	KindTree       Kind = 1 // a node of a tree
	KindRun        Kind = 2 // first page of a value run; raw pages follow it
	KindRecord     Kind = 3 // a stretch of a record group's redo stream
	KindFlush      Kind = 4 // a stretch of the stream that ends a flush
	KindCheckpoint Kind = 5 // a stretch of a checkpoint's stream
	kindHeader     Kind = 6 // a segment header, which belongs to no group
)

// GroupKind decides what recovery does with a group.
type GroupKind uint8

const (
	RecordGroup     GroupKind = 1 // redo records of one or more transactions
	PageGroup       GroupKind = 2 // page images, installed as soon as the group is accepted
	FlushGroup      GroupKind = 3 // a part of a flush
	CheckpointGroup GroupKind = 4 // a part of a checkpoint
)

const (
	flagLast     = 1 // bit of mux.flags: last page of its group; the commit record is valid
	flagOpen     = 2 // bit of mux.flags: the page may be rewritten with more records in its group
	flagGrows    = 4 // bit of mux.flags: checksum, end and count of the page are in one word, see growing.go
	lagUnknown   = 0xFFFF
	invalidGroup = 0 // group in a header after which the log does not continue
	firstGroup   = 1 // number of the first group of a file
	groupKindAt  = 4 // first bit of mux.flags that holds the group kind
)

// mux is the decoded mux area: the 40 bytes before each page's body.
type mux struct {
	crc    uint32
	kind   Kind
	flags  uint8
	lag    uint16
	name   PageID
	group  uint64
	pages  uint32 // last page: number of pages in the group, raw pages included; other pages: index of this page in the group
	count  uint64 // last page: number whose meaning depends on the group's kind; other pages: 0
	digest uint32 // chain digest before this page
	end    uint16 // growing page: offset in the page after its last record; other pages: 0
}

func (m *mux) last() bool           { return m.flags&flagLast != 0 }
func (m *mux) groupKind() GroupKind { return GroupKind(m.flags >> groupKindAt) }

func (m *mux) put(p []byte) {
	_ = p[MuxSize-1]
	le := binary.LittleEndian
	p[4], p[5] = byte(m.kind), m.flags
	le.PutUint16(p[6:], m.lag)
	le.PutUint64(p[8:], m.name)
	le.PutUint64(p[16:], m.group)
	le.PutUint32(p[24:], m.pages)
	le.PutUint64(p[28:], m.count)
	le.PutUint32(p[36:], m.digest)
	if m.flags&flagGrows != 0 {
		m.putGrowing(p)
	}
}

func getMux(p []byte) mux {
	_ = p[MuxSize-1]
	le := binary.LittleEndian
	m := mux{
		crc: le.Uint32(p), kind: Kind(p[4]), flags: p[5], lag: le.Uint16(p[6:]), name: le.Uint64(p[8:]),
		group: le.Uint64(p[16:]), pages: le.Uint32(p[24:]), count: le.Uint64(p[28:]), digest: le.Uint32(p[36:]),
	}
	if m.flags&flagGrows != 0 {
		m.getGrowing(p)
	}
	return m
}

// PageName returns the name in the mux area of a page.
func PageName(p []byte) PageID { return binary.LittleEndian.Uint64(p[8:]) }

// PageKind returns the kind in the mux area of a page.
func PageKind(p []byte) Kind { return Kind(p[4]) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// pageCRC covers the segment's salt, the page's address and the bytes from 4 to the end. So a stale page, a
// misplaced page and a user's value that looks like a page all fail it. The checksum of a growing page covers the
// page up to its present end.
func pageCRC(salt uint64, a Addr, p []byte) uint32 {
	if p[5]&flagGrows != 0 {
		return growingCRC(salt, a, p)
	}
	return crc32.Update(crcWord(crcWord(0, salt), a), castagnoli, p[4:PageSize])
}

// crcWord extends a CRC32C by the 8 bytes of v, little endian. (A slice passed to crc32.Update would escape to the heap.)
func crcWord(crc uint32, v uint64) uint32 {
	crc = ^crc
	for range 8 {
		crc = castagnoli[byte(crc)^byte(v)] ^ crc>>8
		v >>= 8
	}
	return ^crc
}

// chain extends the digest of the log by the checksum of one page.
func chain(digest, crc uint32) uint32 {
	digest = ^digest
	for range 4 {
		digest = castagnoli[byte(digest)^byte(crc)] ^ digest>>8
		crc >>= 8
	}
	return ^digest
}
