package logstore

import (
	"errors"
	"fmt"
	"math"
)

const (
	initialPages   = 32 // of a new file: 128 KiB
	maxGrowthPages = 64 << 20 / PageSize
	midGrowthPages = 8 << 20 / PageSize
)

// Some space is held back so that a full file never stays full. Puts are refused first; deletes still succeed, and the space of what they
// make dead becomes free again. Background work needs these parts of the held-back space for that:
//
//	checkpoint  C pages: the table and the map of the file. No dead space is reused without a checkpoint, so there are two of them
//	segment     one: dead space becomes free in whole segments only. Without it deletes from a full file of four segments found no room
//	clean       W pages: the live pages of the emptiest segments are moved together. That also changes the parents of the moved pages:
//	            in the worst case, pages in the order of single changes all over the key space, each of the I inner nodes
//	slack       D pages that deletes may take before anything is cleaned: for every page they write, a page elsewhere dies
//
// Invariants, on a file that cannot grow:
//
//  1. What commits have promised to write, and the flush of what they have made dirty, is reserved before the commits are resolved.
//  2. A put leaves two checkpoints, the segment, W and D. It counts reserved pages twice, because a flush that is killed is written again.
//  3. A delete leaves all of that except D; if cleaning gains nothing more, only two checkpoints. Everything dead then waits only for those.
//  4. Folds and cleaning leave two checkpoints.
//
// So cleaning starts with W pages of room, and with at least D dead pages besides. With N pages in the file, D of them dead and spread
// evenly, cleaning W pages frees W·D/N more than it takes and costs 2C + I besides; it gains as long as W·D > N·(2C + I). W and D are both
// the root of the right side: a tenth of the file where keys are short, and at most an eighth.
//
// A file without a limit holds back little until the device has no more room for it: see short.

// Claim says on whose behalf pages are reserved, which decides how much the reservation has to leave.
type Claim uint8

const (
	ForWrites    Claim = iota // leaves everything that is held back
	ForDeletes                // a transaction that only deletes: leaves what cleaning needs
	ForWant                   // such a transaction after cleaning did not help: leaves only what checkpoints need
	forEmergency              // leaves nothing
)

// Reserve promises pages for later appends and grows the file where free segments do not suffice. It returns ErrFull, which unwraps to the
// system's error if there was one, if the pages cannot be had. With emergency the held-back pages may be used. The caller undoes each
// Reserve by Release as the pages are appended or given up.
func (s *Store) Reserve(pages int64, emergency bool) error {
	if emergency {
		return s.reserve(pages, 0, forEmergency)
	}
	return s.reserve(pages, 0, ForWrites)
}

// ReserveFor is Reserve with a claim, provided that so many more pages remain available.
func (s *Store) ReserveFor(c Claim, pages, more int64) error { return s.reserve(pages, more, c) }

// Slack returns the number of pages that deletes may take before a file that cannot grow is cleaned.
func (s *Store) Slack() int64 {
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	return s.space.ample(ForWrites) - s.space.ample(ForDeletes)
}

// ReserveBeside is Reserve for background work that will need so many further pages later.
func (s *Store) ReserveBeside(pages, more int64) error { return s.reserve(pages, more, forEmergency) }

func (s *Store) reserve(pages, beside int64, c Claim) error {
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	if c == ForWrites && beside == 0 && s.space.credit.take(pages) || s.space.reserve(pages, beside, c) <= 0 {
		return nil
	}
	s.growing.Lock()
	defer s.growing.Unlock()
	for {
		missing := s.space.reserve(pages, beside, c)
		if missing <= 0 {
			return nil
		}
		if err := s.grow(uint64(missing)); err != nil {
			return err
		}
	}
}

// Fits reports whether so many pages could be had besides those promised and those that deletes must leave. It reserves nothing.
func (s *Store) Fits(pages int64) bool {
	sp := s.space
	sp.mu.Lock()
	lack := pages + sp.promised() + sp.ample(ForDeletes) - sp.available()
	limited, growable := sp.limited || sp.short, sp.growable()
	sp.mu.Unlock()
	if limited {
		return lack <= growable
	}
	return lack <= s.DeviceFree()/PageSize
}

// Room returns the number of pages that cleaning could reserve: those of the file as it is and, if the file has a limit, those that it may
// still grow by. What puts and deletes leave is meant for cleaning, whether it is allocated or not. (Cleaning that counted the allocated
// pages only moved three pages at a time, gained nothing, and made the file count as full.)
func (s *Store) Room() int64 {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	room := sp.available() - sp.promised()
	if sp.limited {
		room += sp.growable()
	}
	return room
}

// PutRoom returns the number of pages that may still be reserved for puts, all at once: those of the file as it is and those that it may grow
// by, as its limit and what the device had left when it was asked last say.
func (s *Store) PutRoom() int64 {
	sp := s.space
	sp.mu.Lock()
	room := sp.available() - 2*sp.promised() - sp.ample(ForWrites)
	grow, limited := sp.growable(), sp.limited
	sp.mu.Unlock()
	if device := s.DeviceFree() / PageSize; !limited || device > 0 {
		grow = min(grow, device)
	}
	return max(room+grow, 0)
}

// CheckpointPages estimates the number of pages of a checkpoint.
func (s *Store) CheckpointPages() int64 {
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	return s.space.checkpointPages()
}

// SetInner sets the number of inner nodes of the tree.
func (s *Store) SetInner(pages int64) {
	s.space.mu.Lock()
	s.space.inner = pages
	s.space.mu.Unlock()
}

// checkpointPages estimates the number of pages of a checkpoint.
func (sp *space) checkpointPages() int64 {
	bytes := sp.names*tableEntrySize + int64(len(sp.segments))*int64(mapEntrySize+sp.words*8) + sp.logged*int64(sp.segmentPages*2+2+sp.words*8)
	return bytes/BodySize + 2
}

// keep returns the number of held-back pages that are allocated in advance.
func (sp *space) keep() int64 {
	if sp.short {
		return sp.ample(ForWrites)
	}
	return sp.heldBack(ForWrites)
}

// heldBack returns the number of pages that a claim must leave in the file as it is, and for which the file grows.
func (sp *space) heldBack(c Claim) int64 {
	n := 2 * sp.checkpointPages()
	switch c {
	case forEmergency:
		return 0
	case ForWrites:
		n += 8
		if sp.whole() > 1 {
			n += int64(sp.segmentPages) * (32 + int64(sp.allocated())) / 32
		}
	}
	return n
}

// ample returns the number of pages that a claim must leave on a file that cannot grow.
func (sp *space) ample(c Claim) int64 {
	if c == ForWant || c == forEmergency {
		return sp.heldBack(c)
	}
	all, c2 := int64(sp.pages), 2*sp.checkpointPages()
	if sp.limited && !sp.short {
		all = int64(sp.maxPages)
	}
	overhead := c2 + max(sp.inner, sp.livePages/innerShare)
	each := min(int64(math.Sqrt(float64(all*overhead))), all/8)
	n := c2 + max(each, 8)
	if all > int64(sp.segmentPages) {
		n += int64(sp.segmentPages)
	}
	if c == ForWrites {
		n += each
	}
	return n
}

const innerShare = 200 // assumed pages of a tree per inner node, until SetInner tells

// growable returns how many more pages could be appended if the file grew as far as its limit and the device allow.
func (sp *space) growable() int64 {
	if sp.short {
		return 0
	}
	return sp.allowed()
}

// allowed returns how many more pages could be appended if the file grew as far as its limit allows.
func (sp *space) allowed() int64 {
	size := sp.segmentPages
	segments := int64(sp.maxPages/size) - int64(sp.whole()) + int64(sp.punched)
	for _, c := range sp.leaving {
		if !c.unsure {
			segments++
		}
	}
	if sp.successor == 0 || sp.segments[sp.successor].state == segmentAbsent {
		segments-- // the log can only enter it once there is another one
	}
	return max(segments, 0) * int64(size-1)
}

// beyond returns what a reservation lacks that no growth of the file could provide.
const beyond = math.MaxInt64

// missing returns how many pages are lacking for a reservation of pages that leaves beside further pages in addition to what its claim leaves.
func (sp *space) missing(pages, beside int64, c Claim) int64 {
	promised := sp.promised()
	need := pages + beside + promised
	if sp.limited || sp.short {
		all := need + sp.ample(c)
		if c == ForWrites {
			all += promised
		}
		if lack := all - sp.available(); lack > 0 && lack > sp.growable() {
			if sp.short && lack <= max(sp.allowed(), int64(sp.maxPages-sp.pages)) {
				return lack // the device may have room again
			}
			return beyond
		}
	}
	return need + sp.heldBack(c) - sp.available()
}

// reserve promises pages, or returns the number of pages that are lacking.
func (sp *space) reserve(pages, beside int64, c Claim) (missing int64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if missing = sp.missing(pages, beside, c); missing > 0 {
		sp.collect()
		missing = sp.missing(pages, beside, c)
	}
	if missing <= 0 {
		sp.reserved += pages
		if c == ForWrites && beside == 0 && pages <= creditPages/creditShare { // the next reservation may be alike
			sp.lend()
		}
	}
	return missing
}

// Release undoes Reserve for so many pages.
func (s *Store) Release(pages int64) {
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	if s.space.reserved -= pages; s.space.reserved < s.space.credit.pages.Load() {
		panic("logstore: more pages released than reserved")
	}
}

// grow makes more of the file usable: condemned segments first, then punched ones, and at last a longer file. Newly allocated space is synced
// before anything refers to it. The caller holds growing.
func (s *Store) grow(missing uint64) error {
	if err := s.Failed(); err != nil {
		return err
	}
	if missing == beyond {
		return fmt.Errorf("%w: %s would exceed MaxFileSize", ErrFull, s.path)
	}
	if s.space.spare(int64(missing)) {
		return nil
	}
	size, limit := uint64(s.segmentPages), s.space.maxPages
	from := s.space.end()
	roundUp := func(n uint64) uint64 { return (n + size - 1) / size * size }
	have := s.space.have()
	want := min(roundUp(s.bound.clip(have, missing, max(missing, have/32, min(have/8, midGrowthPages)), size)), maxGrowthPages/size*size+size)
	if first, n := s.space.hole(uint32(want / size)); n > 0 {
		most, err := s.allocate(uint64(first)*size, uint64(n)*size, size)
		if err == nil {
			s.space.filled(first, uint32(most/size))
			return nil
		}
		if IsFull(err) {
			if found, rerr := s.recall(); found || rerr != nil {
				return rerr
			}
		}
		return err
	}
	least := roundUp(from+1) - from
	if from+least > limit || missing > limit-from {
		return fmt.Errorf("%w: %s would exceed MaxFileSize", ErrFull, s.path)
	}
	got, err := s.allocate(from, min(roundUp(from+want), limit/size*size)-from, least)
	if err != nil {
		return err
	}
	if err := s.mapTo(from + got); err != nil {
		return s.fail(err)
	}
	s.space.grown(from + got)
	return nil
}

// allocate reserves space for the pages from the given one on, and syncs it. If the device lacks room it settles for fewer pages, but not less
// than the given least number. It returns the number of pages allocated.
func (s *Store) allocate(from, pages, least uint64) (uint64, error) {
	if err := s.shorter(); err != nil {
		return 0, s.fail(err)
	}
	err := s.file.Allocate(int64(from)*PageSize, int64(pages)*PageSize)
	if isNoSpace(err) && pages > least {
		pages = least
		err = s.file.Allocate(int64(from)*PageSize, int64(pages)*PageSize)
	}
	s.space.setShort(isNoSpace(err))
	s.NoteDevice()
	if isNoSpace(err) {
		return 0, &fullError{path: s.path, cause: err}
	}
	if err != nil {
		return 0, s.fail(err)
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	return pages, s.datasync()
}

func (sp *space) setShort(short bool) {
	sp.mu.Lock()
	if sp.short = short; short {
		sp.takeBack()
	}
	sp.mu.Unlock()
}

// fullError is ErrFull with the reason that the system gave.
type fullError struct {
	path  string
	cause error
}

func (e *fullError) Error() string   { return ErrFull.Error() + ": " + e.path + ": " + e.cause.Error() }
func (e *fullError) Unwrap() []error { return []error{ErrFull, e.cause} }

// IsFull reports whether an error means that the file or the device lacks space.
func IsFull(err error) bool { return errors.Is(err, ErrFull) }
