package logstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

// These functions decode what a file holds without opening the file as a database. Programs that inspect
// damaged files, or show the content of a file, use them. No function here reads a file; p is always the bytes
// of one page.

// A Superblock is the content of page 0 or 1.
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

// DecodeSuperblock decodes the superblock in page slot, 0 or 1. Errors wrap ErrFormat if a newer program wrote it,
// else ErrCorrupt.
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

// A SegmentHeader is the content of a segment's first page, in segment 0 of page 2.
type SegmentHeader struct {
	Segment     uint32
	Private     bool
	Successor   uint32
	Salt        uint64
	Sequence    uint64
	Predecessor uint64 // salt
	Group       uint64 // group of the page after the header; 0: the log does not continue here
	Index       uint32 // index of that page in its group
	Digest      uint32 // chain digest before that page
	UUID        [16]byte
}

// DecodeSegmentHeader decodes the header in a page, from its first copy or, if that is damaged, from its
// second. The caller compares Segment and UUID with the place where the page was found.
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

// A PageHead is the decoded mux area of a page of the log.
type PageHead struct {
	CRC    uint32
	Kind   Kind
	Group  GroupKind
	Last   bool // the last page of its group
	Open   bool
	Grows  bool   // a growing page, which has End in place of a name
	Lag    uint16 // groups before this one that may not have been durable; NoClaim: the page does not tell
	Name   PageID
	No     uint64 // number of the group
	Pages  uint32 // in the last page: number of pages in the group; in others: index of the page in the group
	Count  uint64
	Digest uint32 // chain digest before this page
	End    uint16
}

// NoClaim is the Lag of a page that does not tell which groups were durable.
const NoClaim = lagUnknown

// DecodePageHead decodes the mux area of a page. It does not check the checksum; see VerifyPage.
func DecodePageHead(p []byte) PageHead {
	m := getMux(p)
	return PageHead{m.crc, m.kind, m.groupKind(), m.last(), m.flags&flagOpen != 0, m.flags&flagGrows != 0, m.lag, m.name, m.group, m.pages, m.count, m.digest, m.end}
}

// DigestBehind returns the chain digest after the page.
func (h *PageHead) DigestBehind() uint32 { return chain(h.Digest, h.CRC) }

// InLog reports whether the page's kind and group kind occur in the log or in a private segment.
func (h *PageHead) InLog() bool {
	return h.Kind >= KindTree && h.Kind < kindHeader && h.Group >= RecordGroup && h.Group <= CheckpointGroup ||
		h.Kind == KindRun && h.Group == 0 // a run in a private segment
}

// A Seed is the start value of the checksums of a segment's pages: the CRC32C of the segment's salt.
type Seed uint32

// SeedOf returns the seed of a salt.
func SeedOf(salt uint64) Seed { return Seed(crcWord(0, salt)) }

// VerifyPage reports whether the checksum of the page at a is correct under a seed.
func VerifyPage(seed Seed, a Addr, p []byte) bool {
	m := getMux(p)
	if m.flags&flagGrows == 0 {
		return m.crc == crc32.Update(crcWord(uint32(seed), a), castagnoli, p[4:PageSize])
	}
	if !m.growingHead() {
		return false
	}
	sum := crc32.Update(crcWord(uint32(seed), a), castagnoli, p[4:growingAt])
	crc, _ := growingEnd(crc32.Update(sum, castagnoli, p[growingAt+8:m.end]), int(m.end), int(m.count))
	return m.crc == crc
}

// ImpliedSeed returns the seed under which the checksum of the page at a is correct. It does so by running the
// CRC backwards. ok is false for a growing page whose head is impossible. Any bytes imply some seed; that several
// pages of a segment imply the same seed shows that they are pages of that segment.
func ImpliedSeed(a Addr, p []byte) (seed Seed, ok bool) {
	m := getMux(p)
	r := ^m.crc
	back := func(bytes []byte) {
		for _, b := range slices.Backward(bytes) {
			i := uncrc[byte(r>>24)]
			r = (r^castagnoli[i])<<8 | uint32(i^b)
		}
	}
	if m.flags&flagGrows == 0 {
		back(p[4:PageSize])
	} else {
		if !m.growingHead() {
			return 0, false
		}
		back(p[growingAt+4 : growingAt+8]) // end and count
		back(p[growingAt+8 : m.end])
		back(p[4:growingAt])
	}
	back(binary.LittleEndian.AppendUint64(make([]byte, 0, 8), a))
	return Seed(^r), true
}

// uncrc maps the highest byte of an entry of the CRC table to the index of the entry.
var uncrc = func() (t [256]byte) {
	for i, c := range castagnoli {
		t[c>>24] = byte(i)
	}
	return t
}()

// CutGrowing clears the bytes of a growing page after its end, which do not count.
func CutGrowing(p []byte) { cutGrowing(p) }

// A RunHead is the description of a value run in the run's first page.
type RunHead struct {
	Bytes int64  // length of the payload
	CRC   uint32 // CRC32C of the payload
	List  bool   // the payload ends with a list of extents
}

// RunPayloadAt is the offset of a run's payload in the run's first page.
const RunPayloadAt = runPayloadAt

// DecodeRunHead decodes the head of a run. ok is false if a run in segments of segmentPages pages cannot have
// that length or form.
func DecodeRunHead(p []byte, segmentPages uint32) (r RunHead, ok bool) {
	n, form := binary.LittleEndian.Uint64(p[MuxSize:]), runForm(p)
	if n > uint64(segmentPages)*PageSize || form > runList {
		return r, false
	}
	return RunHead{int64(n), binary.LittleEndian.Uint32(p[MuxSize+8:]), form == runList}, true
}

// Checksum extends crc, a CRC32C of preceding bytes (0 if there are none), by b.
func Checksum(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// A Span describes a page of redo records and its raw pages. The mux area holds it in place of a name.
type Span struct {
	Values   int // number of logged values in the page
	RawPages int // number of raw pages after the page
	CRC      uint32
}

// DecodeSpan decodes a span. ok is false if no page can have it.
func DecodeSpan(name PageID) (x Span, ok bool) {
	x = Span{recordValues(name), int(uint8(name >> 8)), rawCRC(name)}
	ok = name>>16&0xFFFF == 0 && x.Values <= MaxLogged && x.RawPages < MaxSpan && (x.RawPages == 0 || x.Values > 0)
	return x, ok
}

// Offset returns the offset at which the value begins in its page, or in the raw pages after it.
func (p Place) Offset() int { return p.offset() }

// Ordinal returns the index of the value among the logged values of its page.
func (p Place) Ordinal() int { return int(p & 15) }

// SplitCheckpoint returns the translation table and the space map in the stream of a checkpoint. Zeros may
// follow the stream.
func SplitCheckpoint(stream []byte) (table, spaceMap []byte, err error) { return splitStream(stream) }

// CheckpointBytes returns the length of a checkpoint's stream that begins with b. ok is false if b is too short
// or claims an impossible length.
func CheckpointBytes(b []byte) (uint64, bool) {
	if len(b) < streamHeader {
		return 0, false
	}
	n, m := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	return n + m + streamHeader, n < 1<<48 && m < 1<<48
}
