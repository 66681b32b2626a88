package logstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// What stands in a file can be decoded without opening it as a database: by programs that look at a damaged file, or that show what a file
// holds. Nothing here reads a file; p is always the bytes of a page.

// A Superblock is what pages 0 and 1 hold.
type Superblock struct {
	SegmentPages uint32
	Compatible   uint64 // feature flags
	Incompatible uint64
	UUID         [16]byte
	Number       uint64   // of the checkpoint
	Run          Position // where the checkpoint's first group starts
	FirstGroup   uint64   // of the checkpoint
	LastGroup    uint64
	Start        Position // where the scan of the log starts
	Lineage      uint64
}

// Keyspaces reports whether the keys of the file are those of keyspaces.
func (s *Superblock) Keyspaces() bool { return s.Incompatible&featureKeyspaces != 0 }

// DecodeSuperblock decodes the superblock in page slot, 0 or 1. Errors wrap ErrFormat if a newer program wrote it, else ErrCorrupt.
func DecodeSuperblock(slot int, p []byte) (Superblock, error) {
	s, err := getSuperblock(p)
	if err == nil && s.number%2 != uint64(slot) {
		err = fmt.Errorf("%w: misplaced superblock", ErrCorrupt)
	}
	if err == errNoSuperblock {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return Superblock{s.segmentPages, s.compatible, s.incompatible, s.uuid, s.number, s.run, s.runFirst, s.runLast, s.start, s.lineage}, err
}

// A SegmentHeader is what the first page of a segment holds; in segment 0 page 2.
type SegmentHeader struct {
	Segment     uint32
	Private     bool
	Successor   uint32
	Salt        uint64
	Sequence    uint64
	Predecessor uint64 // salt
	Group       uint64 // of the page behind the header; 0: void
	Index       uint32 // of that page in its group
	Digest      uint32 // before that page
	UUID        [16]byte
}

// DecodeSegmentHeader decodes the header in a page, from its first copy or else its second. Whether it is of the segment and of the file that
// it was found in is for the caller to compare.
func DecodeSegmentHeader(p []byte) (SegmentHeader, bool) {
	if len(p) < PageSize {
		return SegmentHeader{}, false
	}
	h, ok := getHeaderCopy(p[:headerSize])
	if !ok {
		h, ok = getHeaderCopy(p[headerCopyAt:])
	}
	return SegmentHeader{h.segment, h.private, h.successor, h.salt, h.sequence, h.predecessor, h.group, h.index, h.digest, h.uuid}, ok
}

// A PageHead is what the mux area of a page of the log says.
type PageHead struct {
	CRC    uint32
	Kind   Kind
	Group  GroupKind
	Last   bool // of its group
	Open   bool
	Grows  bool   // the page is a growing one: it has End, and no name
	Lag    uint16 // groups; NoClaim: the page says nothing of what is durable
	Name   PageID
	No     uint64 // of the group
	Pages  uint32 // of the last page: pages in the group; of others: index of the page in the group
	Count  uint64
	Digest uint32 // before this page
	End    uint16
}

// NoClaim is a Lag that says nothing.
const NoClaim = lagUnknown

// DecodePageHead decodes the mux area of a page, whose checksum VerifyPage compares.
func DecodePageHead(p []byte) PageHead {
	m := getMux(p)
	return PageHead{m.crc, m.kind, m.groupKind(), m.last(), m.flags&flagOpen != 0, m.flags&flagGrows != 0, m.lag, m.name, m.group, m.pages, m.count, m.digest, m.end}
}

// InLog reports whether kind and group kind are those of a page of the log.
func (h *PageHead) InLog() bool {
	return h.Kind >= KindTree && h.Kind < kindHeader && h.Group >= RecordGroup && h.Group <= CheckpointGroup ||
		h.Kind == KindRun && h.Group == 0 // of a private segment
}

// A Seed is what the checksums of a segment's pages begin with: the CRC32C of its salt.
type Seed uint32

// SeedOf returns the seed of a salt.
func SeedOf(salt uint64) Seed { return Seed(crcWord(0, salt)) }

// VerifyPage reports whether the checksum of the page at a is right under a seed.
func VerifyPage(seed Seed, a Addr, p []byte) bool {
	m := getMux(p)
	if m.flags&flagGrows == 0 {
		return m.crc == crc32.Update(crcWord(uint32(seed), a), castagnoli, p[4:PageSize])
	}
	if m.kind != KindRecord || m.flags != growingFlags || m.end < MuxSize || m.end > PageSize {
		return false
	}
	sum := crc32.Update(crcWord(uint32(seed), a), castagnoli, p[4:growingAt])
	crc, _ := growingEnd(crc32.Update(sum, castagnoli, p[growingAt+8:m.end]), int(m.end), int(m.count))
	return m.crc == crc
}

// ImpliedSeed returns the seed under which the checksum of the page at a is right; ok is false for a growing page, of which this function does not
// know how. Any bytes have one: that several pages of a segment have the same shows that they are pages of the segment.
func ImpliedSeed(a Addr, p []byte) (seed Seed, ok bool) {
	m := getMux(p)
	if m.flags&flagGrows != 0 {
		return 0, false
	}
	r := ^m.crc
	back := func(b byte) {
		i := uncrc[byte(r>>24)]
		r = (r^castagnoli[i])<<8 | uint32(i^b)
	}
	for i := PageSize - 1; i >= 4; i-- {
		back(p[i])
	}
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], a)
	for i := len(word) - 1; i >= 0; i-- {
		back(word[i])
	}
	return Seed(^r), true
}

// uncrc leads from the highest byte of an entry of the CRC's table to the entry.
var uncrc = func() (t [256]byte) {
	for i, c := range castagnoli {
		t[c>>24] = byte(i)
	}
	return t
}()

// CutGrowing clears what counts for nothing in a growing page.
func CutGrowing(p []byte) { cutGrowing(p) }

// A RunHead is what the first page of a value run says of it.
type RunHead struct {
	Bytes int64  // of the payload
	CRC   uint32 // of the payload
	List  bool   // the payload ends with a list of extents
}

// RunPayloadAt is where the payload of a run begins in its first page.
const RunPayloadAt = runPayloadAt

// DecodeRunHead decodes the head of a run; ok is false if no run in a segment of segmentPages pages is that long, or has that form.
func DecodeRunHead(p []byte, segmentPages uint32) (r RunHead, ok bool) {
	n, form := binary.LittleEndian.Uint64(p[MuxSize:]), runForm(p)
	if n > uint64(segmentPages)*PageSize || form > runList {
		return r, false
	}
	return RunHead{int64(n), binary.LittleEndian.Uint32(p[MuxSize+8:]), form == runList}, true
}

// Checksum is the CRC32C of b behind what has the CRC32C crc; 0 for nothing.
func Checksum(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// A Span is what the mux area of a page of redo records has in place of a name.
type Span struct {
	Values   int // logged values in the page
	RawPages int // behind it
	CRC      uint32
}

// DecodeSpan decodes a span; ok is false if no page has such a one.
func DecodeSpan(name PageID) (x Span, ok bool) {
	x = Span{recordValues(name), int(uint8(name >> 8)), rawCRC(name)}
	ok = name>>16&0xFFFF == 0 && x.Values <= MaxLogged && x.RawPages < MaxSpan && (x.RawPages == 0 || x.Values > 0)
	return x, ok
}

// Offset returns where in the page, and its raw pages, the value begins.
func (p Place) Offset() int { return p.offset() }

// Ordinal returns the number of the value among the logged values of its page.
func (p Place) Ordinal() int { return int(p & 15) }

// SplitCheckpoint returns the translation table and the space map of a checkpoint's stream. The stream may have zeros behind it.
func SplitCheckpoint(stream []byte) (table, spaceMap []byte, err error) { return splitStream(stream) }

// CheckpointBytes returns how long the stream of a checkpoint is that begins with b.
func CheckpointBytes(b []byte) (uint64, bool) {
	if len(b) < streamHeader {
		return 0, false
	}
	n, m := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	return n + m + streamHeader, n < 1<<48 && m < 1<<48
}
