package logstore

import (
	"slices"

	"flashdbm/logstore/vfs"
)

// Where a page of the mapping is not in the system's cache, the system reads as much around it as its read-ahead allows,
// 128 KiB to 8 MiB, until it has guessed wrong a hundred times. That serves those who read the file in its order: scans
// of records that were written in key order, Check. A lookup needs one leaf and one page of the log, so it asks for
// them by their places before their first touch, which verifies them. Those who know several places ask for all of
// them first, and the device reads them at the same time.
//
// A page that was touched before is not asked for: that would take a system call for each read of a page.

// prefetch makes the system begin to read n pages from a on.
func (s *disk) prefetch(a Addr, n uint64) {
	vfs.Prefetch(s.file, int64(a)*PageSize, int64(n)*PageSize)
}

// TouchPage makes the system begin to read a tree page, and no other, if no reader has touched it.
func (s *reader) TouchPage(a Addr) {
	if c, o := s.chunkOf(a); c != nil && !c.isChecked(o) && !c.isUnsynced(o) && s.InFile(a, 1) {
		s.prefetch(a, 1)
	}
}

// Touch makes the system begin to read the page of a logged value, which takes up to MaxSpan pages of the file, if no
// reader has touched it.
func (s *reader) Touch(place Place) {
	a := place.Addr()
	c, o := s.chunkOf(a)
	if c == nil {
		return
	}
	if b := c.bits.Load(); (b == nil || !b.record.has(o) && !b.unsynced.has(o)) && s.InFile(a, 1) {
		s.prefetch(a, min(MaxSpan, s.firstPage(s.segmentOf(a)+1)-a))
	}
}

// prefetchGap is the largest number of unneeded pages between two needed ones that are read together with them in one
// read. More: the device transfers more bytes in vain. Fewer: it makes more reads. Reading 16 KiB takes the device a
// third longer than reading 4 KiB.
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

// Ahead loads the beginning of a logged value that Logged is going to return into the processor's cache, if its page was
// touched before. Several such loads overlap.
//
//go:noinline
func (s *reader) Ahead(place Place) (sum byte) {
	a, at := place.Addr(), place.offset()
	if c, o := s.chunkOf(a); c != nil {
		if b := c.bits.Load(); b != nil && b.record.has(o) {
			return c.data[min(o*PageSize+uint64(at), uint64(len(c.data)-1))]
		}
	}
	return 0
}
