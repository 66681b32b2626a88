package space

import (
	"sync/atomic"

	"flashdbm/logstore/format"
)

// bound is the size that commits should not make the file exceed. The caller derives it from the live bytes
// (mvcc/bound.go). It is not a limit: a reservation after which the used part of the file would exceed the
// bound is refused, and the caller may then repeat it without regard to the bound.
//
// Invariants:
//
//  1. No reservation that respects the bound makes the used part of the file exceed it. The used part counts,
//     not the length: pages by which background work has made the file grow beyond the bound are not available
//     to commits.
//  2. Growth ahead of need never exceeds the bound.
//  3. Nothing that a commit has promised, no flush and no checkpoint depends on the bound.
type bound struct{ pages atomic.Int64 } // 0: none

// SetBound sets the bound in bytes; 0 means that there is none.
func (sp *Reservations) SetBound(bytes int64) { sp.bound.pages.Store(bytes / format.PageSize) }

// Bound returns the bound in bytes; 0 means that there is none.
func (sp *Reservations) Bound() int64 { return sp.bound.pages.Load() * format.PageSize }

// FitsBound reports whether the pages could be reserved within the bound.
func (sp *Reservations) FitsBound(pages int64) bool { return !sp.passes(pages, ForWrites, 0) }

// ReserveWithin promises pages, unless the used part of the file would then exceed the bound by more than over
// pages. In that case passes is true and nothing is promised.
func (sp *Map) ReserveWithin(c Claim, pages, over int64) (missing int64, passes bool) {
	if c == ForWrites && sp.credit.take(pages) {
		return 0, false
	}
	if sp.passes(pages, c, over) {
		return 0, true
	}
	return sp.Reserve(pages, 0, c), false
}

// passes reports whether the used part of the file would exceed the bound by more than over pages after a
// reservation. Free and condemned segments are not used; promised and held-back pages are. If the limit or the
// device would refuse the reservation, passes is false, because that is not the bound's decision.
func (sp *Reservations) passes(pages int64, c Claim, over int64) bool {
	most := sp.bound.pages.Load()
	if most == 0 {
		return false
	}
	most += over
	sp.mu.Lock()
	defer sp.mu.Unlock()
	missing := sp.missing(pages, 0, c)
	if missing == Beyond {
		return false
	}
	each := int64(sp.segmentPages - 1)
	missing -= sp.absent.sparable() * each
	more := func() int64 { // pages of segments
		if missing <= 0 {
			return missing
		}
		return (missing + each - 1) / each * (each + 1)
	}
	have := int64(sp.absent.taken())
	if have+more() <= most {
		return false
	}
	free := len(sp.free)
	sp.reuse.collect()
	missing -= int64(len(sp.free)-free) * each
	return have+more() > most
}

// Clip limits the growth of a file of have pages to its bound: it returns how many of the wanted pages the file
// should grow by, in whole segments, but at least the missing pages.
func (sp *Map) Clip(have, missing, want uint64) uint64 {
	if most := uint64(sp.bound.pages.Load()); most > 0 {
		want = max(missing, min(want, (most-min(have, most))/sp.segmentPages*sp.segmentPages))
	}
	return want
}
