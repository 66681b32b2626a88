package logstore

import "time"

// A sync of pages written into space that is allocated only, or not even that, has the file system's own records to write as well:
// 184 and 234 µs where one into space written before takes 97. So while groups are small, the segments that come next are filled with
// zeros ahead of the log. Reused segments need none of that.
//
// Where the log is in a segment that was never written all the same, behind large groups or a flush, or in a new file, a small group that
// is to be synced brings zeros for the next 64 pages along: a sync of 64 pages takes as long as one of a page into such space.
const (
	smallGroup = 8 // pages: a larger group gains nothing
	zeroAhead  = 2 // segments
	growFrom   = 8 // segments that a file has when it first grows ahead of commits that are not synced
	askedAgain = 8 // reservations that are expected to come after the last one

	zeroPause = 2 * time.Millisecond // between two writes of 64 pages: a sync waits for all dirty pages of the file
)

// zeroPages are written where zeros are. Never changed.
var zeroPages [partPages * PageSize]byte

// zeros returns what is to be written behind the group, whose pages have their places.
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

// ZeroDue reports whether ZeroAhead has something to do, as far as is known without a lock.
func (s *Store) ZeroDue() bool { return s.zeroDue.Load() }

// ForgoZeros says that ZeroAhead is not due until a small group enters another segment.
func (s *Store) ForgoZeros() { s.zeroDue.Store(false) }

// ZeroAhead fills the free segments that the log enters next with zeros, if they were never written; if there are none to spare, the
// file grows first, lest a commit has to wait for that and then writes into space that was only allocated. It is background work, without
// the baton; one goroutine calls it.
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

// GrowDue reports whether a commit will soon have to wait for the file to grow, where the last one has reserved so many pages. A small file
// stays as small as it can be.
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

// GrowAhead makes sure that there is more than that beyond what is reserved, as ZeroAhead does where commits are synced.
func (s *Store) GrowAhead(pages int64) error {
	if err := s.growAhead(int64(s.segmentPages) + s.space.again(pages)); !IsFull(err) {
		return err
	}
	return nil
}

// again returns how many pages the file should have for more reservations of so many: each growth syncs all that was written since the one
// before, and commits go on meanwhile.
func (sp *space) again(pages int64) int64 { return min(askedAgain*pages, int64(sp.have()/2)) }

// growAhead makes sure that there are so many pages beyond what is reserved and held back, unless the file would pass its bound.
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

// missingAhead returns how many of so many pages are not there beyond what is reserved and held back.
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

// takeBlank takes the first blank segment of those that the log enters next off the free list, if reservations can do without it
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

// giveBlank puts the segment back.
func (sp *space) giveBlank(n uint32, zeroed bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.segments[n].blank = !zeroed
	sp.release(n)
}
