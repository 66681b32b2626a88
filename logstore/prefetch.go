package logstore

import (
	"slices"

	"flashdbm/logstore/vfs"
)

// The mapping is read in places that the system cannot guess. Where a touched page is not in the system's cache, the
// system reads as much around it as its read-ahead allows, 128 KiB to 8 MiB, until it has guessed wrong a hundred
// times. So a page, run or span is asked for by its exact place before its first touch, which verifies it. Those who
// know several places ask for all of them first, and the device reads them at the same time.
//
// A page that was touched before is not asked for: that would take a system call for each read of a page.

// prefetch makes the system begin to read n pages from a on.
func (s *disk) prefetch(a Addr, n uint64) {
	vfs.Prefetch(s.file, int64(a)*PageSize, int64(n)*PageSize)
}

// touch makes the system begin to read a page of the given kind that is about to be verified, with the pages that
// may belong to it.
func (s *disk) touch(a Addr, kind Kind) {
	n := uint64(1)
	if kind == KindRecord {
		n = min(MaxSpan, s.firstPage(s.segmentOf(a)+1)-a)
	}
	s.prefetch(a, n)
}

// prefetchGap is how many pages that nobody has asked for are read along, between two that are read together. More:
// the device transfers more for nothing. Fewer: it makes more reads. 16 KiB take it a third longer than 4.
const prefetchGap = 4

// Prefetch makes the system begin to read those tree pages that Page has not returned yet, in one read where they are
// close together. It sorts the addresses.
func (s *reader) Prefetch(pages []Addr) {
	slices.Sort(pages)
	var from, end Addr
	for _, a := range pages {
		c, o := s.chunkOf(a)
		if c == nil || c.isChecked(o) || c.isUnsynced(o) {
			continue
		}
		if end > 0 && a > end+prefetchGap {
			s.prefetch(from, end-from)
			end = 0
		}
		if end == 0 {
			from = a
		}
		end = a + 1
	}
	if end > 0 {
		s.prefetch(from, end-from)
	}
}

// Ahead announces a call of Logged. A place that was touched before is loaded into the processor's cache; several
// such loads overlap. Otherwise the system begins to read the page, unless it is the page of before, the place that
// was announced before: then it is being read.
//
//go:noinline
func (s *reader) Ahead(place, before Place) (sum byte) {
	a, at := place.Addr(), place.offset()
	c, o := s.chunkOf(a)
	if c == nil {
		return 0
	}
	b := c.bits.Load()
	switch {
	case b != nil && b.record.has(o):
		return c.data[min(o*PageSize+uint64(at), uint64(len(c.data)-1))]
	case before.Addr() != a && !c.isUnsynced(o) && s.InFile(a, 1):
		s.touch(a, KindRecord)
	}
	return 0
}
