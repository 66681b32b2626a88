package logstore

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A value run holds one long byte string: a first page with the mux area, the length and the checksum of the
// string, then raw pages. All are adjacent and in one segment, so the string is one slice of the mapping.
//
//	byte 40  length of the payload u64 | its CRC32C u32 | form u32 | payload ...
const (
	runHeader     = 16
	runPayloadAt  = MuxSize + runHeader
	runFirstBytes = PageSize - runPayloadAt
)

var errRunLength = errors.New("length of a value run")

// RunPages returns how many pages a run with a payload of n bytes takes.
func RunPages(n int64) int64 {
	if n <= runFirstBytes {
		return 1
	}
	return 1 + (n-runFirstBytes+PageSize-1)/PageSize
}

// MaxRun returns the largest payload of a run in bytes. Such a run fits into any segment, also into segment 0,
// which begins with three other pages.
func (s *disk) MaxRun() int64 { return maxRun(uint64(s.segmentPages)) }

func maxRun(segmentPages uint64) int64 {
	return int64(segmentPages-headerPage(0)-2)*PageSize + runFirstBytes
}

// RunReserve returns how many pages to reserve for a run of the given pages: the run, and the rest of a segment
// into which it does not fit.
func RunReserve(pages int64) int64 { return 2*pages - 1 }

func runForm(p []byte) uint32 { return binary.LittleEndian.Uint32(p[MuxSize+12:]) }

func putRunHeader(p []byte, length int64, crc, form uint32) {
	binary.LittleEndian.PutUint64(p[MuxSize:], uint64(length))
	binary.LittleEndian.PutUint32(p[MuxSize+8:], crc)
	binary.LittleEndian.PutUint32(p[MuxSize+12:], form)
}

// runLength returns the length of the payload of the run whose first page is p at address a. ok is false if no
// run there can be that long.
func (s *disk) runLength(a Addr, p []byte) (int64, bool) {
	n := binary.LittleEndian.Uint64(p[MuxSize:])
	if n > uint64(s.MaxRun()) {
		return 0, false
	}
	last := a + uint64(RunPages(int64(n))) - 1
	return int64(n), s.segmentOf(last) == s.segmentOf(a) && last < s.space.End()
}

func (s *reader) verifyRun(a Addr, p []byte) error {
	n, ok := s.runLength(a, p)
	if !ok {
		return errRunLength
	}
	if pages := uint64(RunPages(n)); pages > 1 {
		s.prefetch(a+1, pages-1)
	}
	c, o := s.chunkOf(a)
	at := o*PageSize + runPayloadAt
	if crc32.Checksum(c.data[at:at+uint64(n)], castagnoli) != binary.LittleEndian.Uint32(p[MuxSize+8:]) {
		return errors.New("checksum of a value run")
	}
	return nil
}

// Run returns the payload of the run that starts at a, verified at its first touch. The slice is read-only and
// lives as long as a slice of Page does.
func (s *reader) Run(a Addr) ([]byte, error) {
	_, payload, err := s.run(a)
	return payload, err
}

// run returns the payload of the run that starts at a, and its form.
func (s *reader) run(a Addr) (form uint32, payload []byte, err error) {
	c, o := s.chunkOf(a)
	if c == nil || !c.isChecked(o) {
		p, err := s.verifyPage(a, KindRun)
		if err != nil {
			return 0, nil, err
		}
		if len(p) > PageSize || c == nil || !c.isChecked(o) { // a copy of the whole run
			n := binary.LittleEndian.Uint64(p[MuxSize:])
			return runForm(p), p[runPayloadAt : runPayloadAt+n : runPayloadAt+n], nil
		}
	}
	p := c.page(o)
	if PageKind(p) != KindRun {
		return 0, nil, s.pageError(a, "kind %d where a value run belongs", PageKind(p))
	}
	n := binary.LittleEndian.Uint64(p[MuxSize:])
	at := o*PageSize + runPayloadAt
	return runForm(p), c.data[at : at+n : at+n], nil
}
