package logstore

import (
	"errors"
	"sync/atomic"
)

// The bound is a size that the file should not pass for the sake of commits: what lives decides it, see mvcc/bound.go. It is no limit.
// A reservation that would have what is used of the file pass it is refused with ErrBound, and may be made without regard to it, by Reserve.
//
// Invariants:
//
//  1. What is used of the file passes the bound by no reservation that asks for it. It is used that counts, not the length: what the
//     housekeeping has had the file grow by beyond the bound is not for commits.
//  2. Growth ahead of need, GrowAhead and ZeroAhead, never passes the bound.
//  3. Nothing that a commit has promised, no flush and no checkpoint depends on the bound.
type bound struct{ pages atomic.Int64 } // 0: none

// ErrBound means that a reservation would have the file pass its bound.
var ErrBound = errors.New("flashdbm: the file would pass its bound")

// SetBound sets the bound in bytes; 0 is none.
func (s *Store) SetBound(bytes int64) { s.bound.pages.Store(bytes / PageSize) }

// Bound returns the bound in bytes; 0 is none.
func (s *Store) Bound() int64 { return s.bound.pages.Load() * PageSize }

// ReserveWithin is ReserveFor unless what is used of the file would pass its bound by more than so many pages: then it returns ErrBound, and
// has reserved nothing.
func (s *Store) ReserveWithin(c Claim, pages, over int64) error {
	if c == ForWrites && s.space.credit.take(pages) {
		return nil
	}
	if most := s.bound.pages.Load(); most > 0 && s.space.passes(pages, c, most+over) {
		return ErrBound
	}
	return s.reserve(pages, 0, c)
}

// FitsBound reports whether so many pages could be reserved within the bound.
func (s *Store) FitsBound(pages int64) bool {
	most := s.bound.pages.Load()
	return most == 0 || !s.space.passes(pages, ForWrites, most)
}

// passes reports whether a reservation of so many pages has what is used of the file pass so many. Free segments and condemned ones are not
// used, but for what is promised and held back. What a limit or the device refuses is not for the bound to say.
func (sp *space) passes(pages int64, c Claim, most int64) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	missing := sp.missing(pages, 0, c)
	if missing == beyond {
		return false
	}
	each := int64(sp.segmentPages - 1)
	for _, l := range sp.leaving {
		if !l.unsure {
			missing -= each
		}
	}
	more := func() int64 { // pages of segments
		if missing <= 0 {
			return missing
		}
		return (missing + each - 1) / each * (each + 1)
	}
	have := int64(sp.taken())
	if have+more() <= most {
		return false
	}
	free := len(sp.free)
	sp.collect()
	missing -= int64(len(sp.free)-free) * each
	return have+more() > most
}

// clip returns by how many of the pages wanted the file should grow that has so many and needs the missing ones, in whole segments of the
// given size: no more than it must beyond its bound.
func (b *bound) clip(have, missing, want, size uint64) uint64 {
	if most := uint64(b.pages.Load()); most > 0 {
		want = max(missing, min(want, (most-min(have, most))/size*size))
	}
	return want
}
