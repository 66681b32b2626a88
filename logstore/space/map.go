package space

import (
	"math"

	"flashdbm/logstore/format"
)

// A Map is the space of one file. Its parts are described in the package's documentation.
type Map struct {
	table
	Log
	Absent
	Readers
	Usage
	Reuse
	Reservations
}

// New returns the map of an empty file. maxBytes limits the file; 0 means no limit. The map takes its memory from
// spare, which may be nil.
func New(segmentPages uint32, maxBytes int64, spare *SegmentTable) *Map {
	m := &Map{table: table{segmentPages: uint64(segmentPages), words: (uint64(segmentPages) + 63) / 64, segments: spare.take()}}
	m.Log.table = &m.table
	m.Absent = Absent{table: &m.table, log: &m.Log, leaving: map[uint32]condemned{}}
	m.Readers.table = &m.table
	m.Usage = Usage{table: &m.table, readers: &m.Readers}
	m.Reuse = Reuse{table: &m.table, log: &m.Log, absent: &m.Absent, readers: &m.Readers, thin: map[uint32]thinned{}}
	r := &m.Reservations
	r.table, r.log, r.absent, r.usage, r.reuse = &m.table, &m.Log, &m.Absent, &m.Usage, &m.Reuse
	r.maxPages = math.MaxUint32 * uint64(segmentPages)
	if maxBytes > 0 {
		r.maxPages, r.limited = uint64(maxBytes)/format.PageSize, true
	}
	return m
}

// Leave hands the memory of the map to a SegmentTable. The caller makes sure that the map is not used any more.
func (sp *Map) Leave(t *SegmentTable) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	t.leave(sp.segments)
	sp.segments = nil
}

// End returns the number of pages of the file, punched ones included.
func (sp *Map) End() Addr {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.pages
}

// Have returns the number of pages of the file that have their space.
func (sp *Map) Have() uint64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.taken()
}

// SaltOf returns the salt of the segment that holds a page; ok is false if the page is not allocated.
func (sp *Map) SaltOf(a Addr) (salt uint64, ok bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if g, _ := sp.find(a); g != nil && a < sp.pages && g.state != segmentAbsent {
		return g.salt, true
	}
	return 0, false
}

// SetSalt records the salt of a private segment that an accepted group lists.
func (sp *Map) SetSalt(segment uint32, salt uint64) {
	sp.mu.Lock()
	sp.segments[segment].salt = salt
	sp.mu.Unlock()
}

// MaxPages returns the number of pages that the file may have.
func (sp *Map) MaxPages() uint64 { return sp.maxPages }

// Whole returns the number of segments that are allocated from first to last page.
func (sp *Map) Whole() uint32 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.whole()
}

// Collect puts every segment that has become reusable on the free list.
func (sp *Map) Collect() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.collect()
}
