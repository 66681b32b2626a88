package logstore

import "time"

// A sync of pages written into space that is only allocated, or not even that, also writes the file system's own
// records: it takes 184 or 234 µs, where a sync of pages written over older pages takes 97 µs. So while groups are
// small, the segments that the log enters next are filled with zeros in advance. Reused segments do not need that.
//
// The log may still reach a segment that was never written: after large groups or a flush, or in a new file. A
// small group that is going to be synced then writes zeros into the next 64 pages as well, because there a sync of
// 64 pages takes as long as a sync of one.
const (
	smallGroup = 8 // pages: a larger group gains nothing from zeros
	zeroAhead  = 2 // segments

	zeroPause = 2 * time.Millisecond // pause between two writes of 64 pages, because a sync waits for all dirty pages of the file
)

// zeroPages is written where zeros are wanted. It never changes.
var zeroPages [partPages * PageSize]byte

// zeros returns the zeros to be written after the group, whose pages have their places.
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
	if end := min(s.space.End()-first, uint64(s.segmentPages)); t.page < end {
		t.fresh = min(t.page+partPages, end)
	}
	return zeroPages[:(t.fresh-t.page)*PageSize]
}

// ZeroDue reports without a lock whether ZeroAhead probably has something to do.
func (s *growth) ZeroDue() bool { return s.zeroDue.Load() }

// ForgoZeros makes ZeroAhead not due until a small group enters another segment.
func (s *growth) ForgoZeros() { s.zeroDue.Store(false) }

// ZeroAhead fills the free segments that the log enters next with zeros, if they were never written. If there are
// too few, the file grows first, so that no commit has to wait for growth and then writes into space that is only
// allocated. ZeroAhead is background work and appends nothing; one goroutine calls it.
func (s *growth) ZeroAhead() error {
	s.zeroDue.Store(false)
	if err := s.growAhead((zeroAhead + 1) * int64(s.segmentPages)); err != nil && !IsFull(err) {
		return err
	}
	for range zeroAhead {
		n, ok := s.space.TakeBlank(zeroAhead)
		if !ok {
			return nil
		}
		err := s.zero(n)
		s.space.GiveBlank(n, err == nil)
		if err != nil {
			return s.fail(err)
		}
	}
	return nil
}

// GrowDue reports whether a commit will soon have to wait for the file to grow, given what the last commit
// reserved. A small file stays as small as possible.
func (s *growth) GrowDue(pages int64) bool { return s.space.GrowDue(pages) }

// GrowAhead makes the file grow so far that GrowDue is false, as ZeroAhead does where commits are synced.
func (s *growth) GrowAhead(pages int64) error {
	if err := s.growAhead(s.space.Ahead(pages)); !IsFull(err) {
		return err
	}
	return nil
}

// growAhead grows the file until the pages are available besides those reserved and held back, unless the file
// would pass its bound.
func (s *growth) growAhead(pages int64) error {
	return s.growUntil(func() int64 {
		missing := s.space.Missing(pages)
		if missing > 0 && !s.space.FitsBound(pages) {
			return 0
		}
		return missing
	})
}

func (s *growth) zero(n uint32) error {
	for o := headerPage(n); o < uint64(s.segmentPages); o += partPages {
		pages := min(partPages, uint64(s.segmentPages)-o)
		a := s.firstPage(n) + o
		if err := s.write(zeroPages[:pages*PageSize], a); err != nil {
			return err
		}
		if err := s.WriteOut(a, int64(pages)); err != nil {
			return err
		}
		time.Sleep(zeroPause)
	}
	return nil
}
