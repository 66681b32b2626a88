package space

import (
	"slices"
	"sync"

	"flashdbm/logstore/format"
)

type (
	Addr   = format.Addr
	PageID = format.PageID
)

// table is what all parts of a Map share: the segments of the file, and which of them are free.
type table struct {
	mu           sync.Mutex // guards the whole Map
	segmentPages uint64
	words        uint64 // words of a segment's bitmap
	segments     []segment
	free         []uint32 // free segments, highest number first: the lowest is taken first, so that the end of the file can be cut off
	pages        uint64   // allocated pages of the file
	short        bool     // the device had no room when the file last tried to grow
}

// whole returns the number of segments that are allocated from first to last page.
func (sp *table) whole() uint32 { return uint32(sp.pages / sp.segmentPages) }

func (sp *table) extendTo(segments uint32) {
	if n := int(segments) - len(sp.segments); n > 0 {
		sp.segments = append(sp.segments, make([]segment, n)...)
	}
}

// at returns the segment of a page and the page's index in it.
func (sp *table) at(a Addr) (g *segment, o uint64) {
	return &sp.segments[a/sp.segmentPages], a % sp.segmentPages
}

// find is at for an address that need not be in the table; g is nil if it is not.
func (sp *table) find(a Addr) (g *segment, o uint64) {
	if a/sp.segmentPages >= uint64(len(sp.segments)) {
		return nil, 0
	}
	return sp.at(a)
}

// within returns the bitmap and allocates it if it is nil.
func (sp *table) within(b *bitmap) bitmap {
	if *b == nil {
		*b = make(bitmap, sp.words)
	}
	return *b
}

// release puts an allocated segment on the free list.
func (sp *table) release(n uint32) {
	sp.segments[n].state = segmentFree
	i, _ := slices.BinarySearchFunc(sp.free, n, func(a, b uint32) int { return int(int64(b) - int64(a)) })
	sp.free = slices.Insert(sp.free, i, n)
}

// take pops the lowest free segment.
func (sp *table) take() (uint32, bool) {
	if len(sp.free) == 0 {
		return 0, false
	}
	n := sp.free[len(sp.free)-1]
	sp.free = sp.free[:len(sp.free)-1]
	return n, true
}
