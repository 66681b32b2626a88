package space

// Space is prepared before it is needed: the file grows ahead of reservations, and free segments are filled
// with zeros before the log enters them.
const (
	growFrom   = 8 // length in segments below which a file does not grow ahead of commits that are not synced
	askedAgain = 8 // number of further reservations like the last one for which the file grows ahead
)

// Ahead returns the number of pages that the file should have available after a reservation of the given size:
// a segment, plus those of askedAgain more such reservations, but at most half of the file for these. Each
// growth syncs everything written since the previous growth, and commits continue meanwhile.
func (sp *Map) Ahead(pages int64) int64 {
	return int64(sp.segmentPages) + min(askedAgain*pages, int64(sp.Have()/2))
}

// GrowDue reports whether a commit will soon have to wait for the file to grow, given what the last commit
// reserved. A small file stays as small as possible.
func (sp *Map) GrowDue(pages int64) bool {
	more := sp.Ahead(pages)
	sp.mu.Lock()
	due := sp.pages >= growFrom*sp.segmentPages && !sp.limited && !sp.short && sp.missing(more, 0, ForWrites) > 0
	sp.mu.Unlock()
	return due && sp.FitsBound(more)
}

// Missing returns how many of the pages are lacking, besides those promised and held back.
func (sp *Map) Missing(pages int64) int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.missing(pages, 0, ForWrites)
}

// TakeBlank looks at the next segments that the log will enter, as many as next says, and takes the first one
// that was never written off the free list. It takes none if reservations cannot do without it meanwhile.
func (sp *Map) TakeBlank(next int) (uint32, bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.available()-sp.promised()-sp.keep() < 2*int64(sp.segmentPages) {
		return 0, false
	}
	for i := len(sp.free) - 1; i >= max(0, len(sp.free)-next); i-- {
		if n := sp.free[i]; sp.segments[n].blank {
			sp.free = append(sp.free[:i], sp.free[i+1:]...)
			return n, true
		}
	}
	return 0, false
}

// GiveBlank returns the segment to the free list. zeroed tells whether it was filled with zeros.
func (sp *Map) GiveBlank(n uint32, zeroed bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.segments[n].blank = !zeroed
	sp.release(n)
}
