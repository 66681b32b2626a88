package logstore

import (
	"errors"
	"sync/atomic"
)

// The bound is a size that the file should not pass for the sake of commits: what lives decides it, see mvcc/bound.go. It is no limit.
// A reservation that would have the file pass it is refused with ErrBound, and may then be made without regard to it, by Reserve.
//
// Invariants:
//
//  1. Within the bound, and for what fits into free or condemned segments, ReserveWithin is Reserve.
//  2. Growth ahead of need, GrowAhead and ZeroAhead, never passes the bound.
//  3. Nothing that a commit has promised, no flush and no checkpoint depends on the bound.
type bound struct{ pages atomic.Int64 } // 0: none

// ErrBound means that a reservation would have the file pass its bound.
var ErrBound = errors.New("flashdbm: the file would pass its bound")

// SetBound sets the bound in bytes; 0 is none.
func (s *Store) SetBound(bytes int64) { s.bound.pages.Store(bytes / PageSize) }

// Bound returns the bound in bytes; 0 is none.
func (s *Store) Bound() int64 { return s.bound.pages.Load() * PageSize }

// ReserveWithin is ReserveFor unless the file would have to pass its bound for that: then it returns ErrBound, and has reserved nothing.
func (s *Store) ReserveWithin(c Claim, pages int64) error {
	if c == ForWrites && s.space.credit.take(pages) {
		return nil
	}
	if missing := s.space.reserve(pages, 0, c); missing <= 0 {
		return nil
	} else if s.passes(missing) {
		return ErrBound
	}
	return s.reserve(pages, 0, c)
}

// FitsBound reports whether so many pages could be reserved within the bound.
func (s *Store) FitsBound(pages int64) bool {
	sp := s.space
	sp.mu.Lock()
	missing := sp.missing(pages, 0, ForWrites)
	sp.mu.Unlock()
	return missing <= 0 || !s.passes(missing)
}

// passes reports whether growth by so many pages has the file pass its bound. What a limit or the device refuses is not for the bound to say.
func (s *Store) passes(missing int64) bool {
	most := s.bound.pages.Load()
	if most == 0 || missing == beyond {
		return false
	}
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for _, c := range sp.leaving {
		if !c.unsure {
			missing -= int64(sp.segmentPages - 1)
		}
	}
	size := int64(sp.segmentPages)
	return missing > 0 && int64(sp.pages-sp.punched*sp.segmentPages)+(missing+size-1)/size*size > most
}

// clip returns by how many of the pages wanted the file should grow that has so many and needs the missing ones: no more than it must beyond
// its bound. All are whole segments.
func (b *bound) clip(have, missing, want uint64) uint64 {
	if most := uint64(b.pages.Load()); most > 0 && have+want > most {
		return max(missing, min(want, most-min(have, most)))
	}
	return want
}
