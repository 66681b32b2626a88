package logstore

import "errors"

// This file gives space back to the file system that the space map has taken out of use: see space.Absent and space.Reuse.

const trimBytes = 64 << 20 // bytes given back by one call, so that commits wait for at most that

// Condemn takes free segments out of use until the free pages, besides those held back, are the greater of spare
// and the pages promised. It does nothing if fewer than least segments would be gained. The caller makes sure that
// no checkpoint is in progress.
func (s *growth) Condemn(spare int64, least int) {
	s.growing.Lock()
	defer s.growing.Unlock()
	s.space.Condemn(spare, least)
}

// GiveBack gives back the space of some condemned segments whose checkpoints are done, adjacent segments at once,
// and reports whether there may be more. The caller makes sure that no checkpoint is in progress. After an error
// the file is as good as before.
func (s *growth) GiveBack() (more bool, err error) {
	s.growing.Lock()
	defer s.growing.Unlock()
	if err := s.Failed(); err != nil {
		return false, err
	}
	if left, cut := s.space.CutTo(); cut > 0 {
		s.returned.Add(cut)
		return true, s.cut(left)
	}
	first, n := s.space.Depart(max(1, uint32(trimBytes/PageSize/s.segmentPages)))
	if n == 0 {
		return s.thinNext()
	}
	s.returned.Add(uint64(n) * uint64(s.segmentPages))
	return true, s.punch(first, n)
}

// cut truncates the file to the given segments. A mapped file that cannot become shorter stays as it is, and growth
// writes over its end.
func (s *growth) cut(segments uint32) error {
	err := s.file.Truncate(int64(s.firstPage(segments)) * PageSize)
	if err != nil {
		s.space.SetUnpunchable()
	}
	return err
}

// punch gives back the space of n segments. If the file system cannot do that, only the end of the file is given
// back from now on.
func (s *growth) punch(first, n uint32) error {
	page := make([]byte, PageSize)
	for i := first; i < first+n; i++ {
		if err := s.zeroHeader(i, page); err != nil {
			return s.fail(err)
		}
	}
	err := s.file.Punch(int64(s.firstPage(first))*PageSize, int64(n)*int64(s.segmentPages)*PageSize)
	if errors.Is(err, errors.ErrUnsupported) {
		s.space.SetUnpunchable()
		return nil
	}
	return err
}

// zeroHeader overwrites the header of a segment with zeros, unless it is zero already: writing might need space.
func (s *growth) zeroHeader(n uint32, page []byte) error {
	at := int64(s.firstPage(n)+headerPage(n)) * PageSize
	if _, err := s.file.ReadAt(page, at); err != nil || isZero(page) {
		return err
	}
	clear(page)
	_, err := s.file.WriteAt(page, at)
	return err
}

// thinNext punches the pages that no reader sees in the lowest segment chosen for that whose two checkpoints are
// done, and reports whether there was one. The caller holds growing: an appender that finds the segment free
// meanwhile waits for growing before the log enters the segment.
func (s *growth) thinNext() (found bool, err error) {
	n, runs := s.space.NextThin()
	for i, r := range runs {
		err := s.file.Punch(int64(r[0])*PageSize, int64(r[1])*PageSize)
		if errors.Is(err, errors.ErrUnsupported) {
			s.space.SetUnpunchable()
			if i == 0 {
				s.space.Unholed(n)
			}
			return false, nil
		}
		if err != nil {
			return true, err
		}
		s.forgetPages(r[0], r[1])
		s.returned.Add(r[1])
	}
	return len(runs) > 0, nil
}

// forgetPages clears the checked bits of pages that have lost their space. A damaged reference to such a page then
// fails verification instead of reading zeros. The bits that say that names lie there stay set, because readers may
// still look them up.
func (s *mapping) forgetPages(a Addr, n uint64) {
	if c, o := s.chunkOf(a); c != nil {
		if b := c.bits.Load(); b != nil {
			for ; n > 0; o, n = o+1, n-1 {
				b.checked.unset(o)
				b.record.unset(o)
				b.extent.unset(o)
			}
		}
	}
}
