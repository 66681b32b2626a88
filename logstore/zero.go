package logstore

import "time"

// A sync of pages written into space that is only allocated, or not even that, also writes the file system's own records: it takes 184 or
// 234 µs, where a sync of pages written over older pages takes 97 µs. So while groups are small, the segments that the log enters next are
// filled with zeros in advance. Reused segments do not need that.
//
// The log may still reach a segment that was never written: behind large groups or a flush, or in a new file. A small group that is going to
// be synced then writes zeros into the next 64 pages as well, because there a sync of 64 pages takes as long as a sync of one.
const (
	smallGroup = 8 // pages: a larger group gains nothing from zeros
	zeroAhead  = 2 // segments
	growFrom   = 8 // segments of a file when it first grows ahead of commits that are not synced
	askedAgain = 8 // further reservations like the last one that are expected

	zeroPause = 2 * time.Millisecond // pause between two writes of 64 pages, because a sync waits for all dirty pages of the file
)

// zeroPages is written where zeros are wanted. It never changes.
var zeroPages [partPages * PageSize]byte

// zeros returns the zeros to be written behind the group, whose pages have their places.
func (g *Group) zeros() []byte {
	s, t := g.s, &g.s.tail
	if t.page <= t.fresh {
		return nil
	}
	t.fresh = t.page
	if !s.opts.Synced || len(g.pages) > smallGroup {
		return nil
	}
	first := s.firstPage(t.header.segment)
	if end := min(s.space.end()-first, uint64(s.segmentPages)); t.page < end {
		t.fresh = min(t.page+partPages, end)
	}
	return zeroPages[:(t.fresh-t.page)*PageSize]
}

// ZeroDue reports without a lock whether ZeroAhead probably has something to do.
func (s *Store) ZeroDue() bool { return s.zeroDue.Load() }

// ForgoZeros makes ZeroAhead not due until a small group enters another segment.
func (s *Store) ForgoZeros() { s.zeroDue.Store(false) }

// ZeroAhead fills the free segments that the log enters next with zeros, if they were never written. If there are too few, the file grows
// first, so that no commit has to wait for growth and then writes into space that is only allocated. ZeroAhead is background work and appends
// nothing; one goroutine calls it.
func (s *Store) ZeroAhead() error {
	s.zeroDue.Store(false)
	if err := s.growAhead((zeroAhead + 1) * int64(s.segmentPages)); err != nil && !IsFull(err) {
		return err
	}
	for range zeroAhead {
		n, ok := s.space.takeBlank()
		if !ok {
			return nil
		}
		err := s.zero(n)
		s.space.giveBlank(n, err == nil)
		if err != nil {
			return s.fail(err)
		}
	}
	return nil
}

// GrowDue reports whether a commit will soon have to wait for the file to grow, given that the last commit reserved so many pages. A small
// file stays as small as possible.
func (s *Store) GrowDue(pages int64) bool {
	sp := s.space
	if sp.end() < growFrom*uint64(sp.segmentPages) {
		return false
	}
	more := int64(sp.segmentPages) + sp.again(pages)
	sp.mu.Lock()
	due := !sp.limited && !sp.short && sp.missing(more, 0, ForWrites) > 0
	sp.mu.Unlock()
	return due && s.FitsBound(more)
}

// GrowAhead makes the file grow so far that GrowDue is false, as ZeroAhead does where commits are synced.
func (s *Store) GrowAhead(pages int64) error {
	if err := s.growAhead(int64(s.segmentPages) + s.space.again(pages)); !IsFull(err) {
		return err
	}
	return nil
}

// again returns the number of pages that the file should have for more reservations of the given size. Each growth syncs everything written
// since the previous one, and commits continue meanwhile.
func (sp *space) again(pages int64) int64 { return min(askedAgain*pages, int64(sp.have()/2)) }

// growAhead grows the file until so many pages are available besides those reserved and held back, unless the file would pass its bound.
func (s *Store) growAhead(pages int64) error {
	s.growing.Lock()
	defer s.growing.Unlock()
	for {
		missing := s.space.missingAhead(pages)
		if missing <= 0 || !s.FitsBound(pages) {
			return nil
		}
		if err := s.grow(uint64(missing)); err != nil {
			return err
		}
	}
}

// missingAhead returns how many of so many pages are lacking besides those reserved and held back.
func (sp *space) missingAhead(pages int64) int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.missing(pages, 0, ForWrites)
}

func (s *Store) zero(n uint32) error {
	for o := headerPage(n); o < uint64(s.segmentPages); o += partPages {
		pages := min(partPages, uint64(s.segmentPages)-o)
		a := s.firstPage(n) + o
		if err := s.notShortened(); err != nil {
			return err
		}
		if _, err := s.file.WriteAt(zeroPages[:pages*PageSize], int64(a)*PageSize); err != nil {
			return err
		}
		if err := s.WriteOut(a, int64(pages)); err != nil {
			return err
		}
		time.Sleep(zeroPause)
	}
	return nil
}

// takeBlank takes the first never written segment, among those that the log enters next, off the free list, if reservations can do without it
// meanwhile.
func (sp *space) takeBlank() (uint32, bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.available()-sp.promised()-sp.keep() < 2*int64(sp.segmentPages) {
		return 0, false
	}
	for i := len(sp.free) - 1; i >= max(0, len(sp.free)-zeroAhead); i-- {
		if n := sp.free[i]; sp.segments[n].blank {
			sp.free = append(sp.free[:i], sp.free[i+1:]...)
			return n, true
		}
	}
	return 0, false
}

// giveBlank returns the segment to the free list.
func (sp *space) giveBlank(n uint32, zeroed bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.segments[n].blank = !zeroed
	sp.release(n)
}
