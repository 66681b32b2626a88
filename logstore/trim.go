package logstore

import (
	"errors"
	"maps"
)

// Free segments that the log does not need are given back to the file system: those at the end of the file are cut off, others punched.
// Either way the segment is absent from then on, and comes back by growth only: allocated and synced before anything refers to it.
//
//   - A segment is condemned first: it leaves the free list, so the reuse rule holds for it, and counts as absent. Nothing happens to
//     its space until both valid superblocks are of checkpoints begun after that. So whichever of them a recovery starts from, neither
//     its space map nor its table nor the log behind it leads there, be the space still there or not.
//   - Until then growth takes it back as it is: its space was never given up. A recovery that finds it in the log has found it used.
//   - Its header is zeroed before it is punched, so that whoever reads the file beside us finds no header before pages that are gone.
//   - Nothing is synced here. A power cut may bring back what was cut off or punched: pages of a segment that is absent, under a salt
//     that no map knows. That is what a free segment holds anyway.
//   - What fails stays as it is: an absent segment may have space, of which nothing is known. Recovery does not know either of a segment
//     that is absent in the map, and so gives back what there may be.
type condemned struct {
	checkpoint uint64 // newest when it was condemned
	unsure     bool   // it may have no space
}

const trimBytes = 64 << 20 // given back at a time

// Condemn takes free segments out of use until only spare pages, or those that are promised, are free beside those held back. It does nothing where
// less than the least number of segments is to be gained. No checkpoint is under way.
func (s *Store) Condemn(spare int64, least int) {
	s.growing.Lock()
	defer s.growing.Unlock()
	s.space.condemn(spare, least, s.newestNumber(), s.unpunchable.Load())
}

func (sp *space) condemn(spare int64, least int, newest uint64, onlyTail bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	each := int64(sp.segmentPages - 1)
	surplus := int((sp.available() - sp.keep() - max(sp.promised(), spare)) / each)
	if surplus < least {
		return
	}
	last := sp.whole() // of the segments at the end that are absent or go with the others
	keep := sp.free[:0]
	for _, n := range sp.free { // highest first
		for last > 0 && sp.segments[last-1].state == segmentAbsent {
			last--
		}
		if surplus == 0 || n == 0 || onlyTail && n+1 != last {
			keep = append(keep, n)
			continue
		}
		sp.segments[n].state = segmentAbsent
		sp.leaving[n] = condemned{checkpoint: newest}
		surplus--
	}
	sp.free = keep
}

// Surplus returns the bytes that Condemn would take out of use.
func (s *Store) Surplus(spare int64) int64 {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return max(0, sp.available()-sp.keep()-max(sp.promised(), spare)) * PageSize
}

// Returning returns the bytes of dead segments that wait for nothing but another checkpoint. No checkpoint is under way.
func (s *Store) Returning() int64 {
	newest := s.newest()
	if newest == nil {
		return 0
	}
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	run := sp.runs[newest.number%2]
	var pages int64
	for n := range sp.whole() {
		if g := &sp.segments[n]; g.state == segmentUsed && g.live == 0 && g.names == 0 && !sp.visible(g) &&
			g.written < newest.start.Group && n != sp.tail && n != sp.successor && !run[n] {
			pages += int64(sp.segmentPages) - sp.holesOf(n)
		}
	}
	return pages * PageSize
}

// Outdated returns the bytes of dead pages that wait for redo to start later, so for a flush of all and two checkpoints. No checkpoint is
// under way.
func (s *Store) Outdated() int64 {
	start := s.oldestStart()
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	var pages int64
	for n := range sp.whole() {
		if g := &sp.segments[n]; g.state == segmentUsed && g.sequence != 0 && g.written >= start && n != sp.tail && n != sp.successor {
			pages += int64(sp.segmentPages) - int64(g.live)
		}
	}
	return pages * PageSize
}

// Leaving returns the bytes of condemned segments whose space two more checkpoints let go.
func (s *Store) Leaving() int64 {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return int64(len(sp.leaving)) * int64(sp.segmentPages) * PageSize
}

// GiveBack gives the space of some condemned segments back that are old enough, neighbours at once, and reports whether there may be
// more. No checkpoint is under way. An error has done no harm.
func (s *Store) GiveBack() (more bool, err error) {
	s.growing.Lock()
	defer s.growing.Unlock()
	if err := s.Failed(); err != nil {
		return false, err
	}
	oldest := s.newestNumber()
	for _, sb := range s.supers {
		if sb != nil {
			oldest = min(oldest, sb.number)
		}
	}
	end := s.space.end()
	if cut := s.space.cutTo(oldest); cut > 0 {
		s.returned.Add(end - s.space.end())
		return true, s.cut(cut)
	}
	first, n := s.space.depart(oldest, max(1, uint32(trimBytes/PageSize/s.segmentPages)))
	if n == 0 {
		return s.thinNext(oldest)
	}
	s.returned.Add(uint64(n) * uint64(s.segmentPages))
	return true, s.punch(first, n)
}

// cutTo forgets the absent segments at the end of the file if all their checkpoints are past, and returns how many segments are left, 0
// if nothing is to be cut off.
func (sp *space) cutTo(oldest uint64) (segments uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	end := sp.whole()
	n := end
	for n > 1 && sp.segments[n-1].state == segmentAbsent && n-1 != sp.tail && n-1 != sp.successor {
		if c, ok := sp.leaving[n-1]; ok && c.checkpoint >= oldest {
			break
		}
		n--
	}
	if n == end || n <= 1 {
		return 0
	}
	maps.DeleteFunc(sp.leaving, func(k uint32, _ condemned) bool { return k >= n })
	sp.pages = uint64(n) * sp.segmentPages
	sp.countPunched()
	return n
}

// cut makes the file end with so many segments. Where a mapped file cannot get shorter it stays as it is, and is grown over later.
func (s *Store) cut(segments uint32) error {
	err := s.file.Truncate(int64(s.firstPage(segments)) * PageSize)
	if err != nil {
		s.unpunchable.Store(true)
	}
	return err
}

// depart forgets up to so many condemned neighbours whose checkpoints are past.
func (sp *space) depart(oldest uint64, most uint32) (first, n uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	past := func(n uint32) bool {
		c, ok := sp.leaving[n]
		return ok && c.checkpoint < oldest
	}
	end := sp.whole()
	for first < end && !past(first) {
		first++
	}
	for first+n < end && n < most && past(first+n) {
		delete(sp.leaving, first+n)
		n++
	}
	if n == 0 {
		return 0, 0
	}
	sp.countPunched()
	return first, n
}

// punch gives the space of n segments back. On a file system that cannot, only the end of the file is given back from now on.
func (s *Store) punch(first, n uint32) error {
	page := make([]byte, PageSize)
	for i := first; i < first+n; i++ {
		if err := s.zeroHeader(i, page); err != nil {
			return s.fail(err)
		}
	}
	err := s.file.Punch(int64(s.firstPage(first))*PageSize, int64(n)*int64(s.segmentPages)*PageSize)
	if errors.Is(err, errors.ErrUnsupported) {
		s.unpunchable.Store(true)
		return nil
	}
	return err
}

// zeroHeader makes the header of a segment zero, unless it is: there may be no space for it.
func (s *Store) zeroHeader(n uint32, page []byte) error {
	at := int64(s.firstPage(n)+headerPage(n)) * PageSize
	if _, err := s.file.ReadAt(page, at); err != nil || isZero(page) {
		return err
	}
	clear(page)
	_, err := s.file.WriteAt(page, at)
	return err
}

// spare takes back condemned segments until pages more are free, and reports whether there were any.
func (sp *space) spare(pages int64) (took bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for n := uint32(0); n < sp.whole() && pages > 0 && len(sp.leaving) > 0; n++ {
		if c, ok := sp.leaving[n]; ok && !c.unsure {
			delete(sp.leaving, n)
			sp.segments[n].dead = true
			sp.release(n)
			pages -= int64(sp.segmentPages - 1)
			took = true
		}
	}
	return took
}

// hole finds absent neighbours within the file that growth fills before it makes the file longer: the log's successor first, for no other
// is of use without it, else the lowest, at most so many.
func (sp *space) hole(most uint32) (first, n uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	end := sp.whole()
	if sp.successor < end && sp.segments[sp.successor].state == segmentAbsent {
		first = sp.successor
	} else if sp.punched == 0 {
		return 0, 0
	} else {
		first = 1
		for first < end && !sp.isHole(first) {
			first++
		}
	}
	for first+n < end && n < most && sp.isHole(first+n) {
		n++
	}
	return first, n
}

func (sp *space) isHole(n uint32) bool {
	if sp.segments[n].state != segmentAbsent || n == sp.tail {
		return false
	}
	c, ok := sp.leaving[n]
	return !ok || c.unsure
}

// countPunched counts the segments within the file that have no space, as far as is known.
func (sp *space) countPunched() {
	sp.punched = 0
	for n := range sp.whole() {
		if sp.segments[n].state == segmentAbsent {
			sp.punched++
		}
	}
	for _, c := range sp.leaving {
		if !c.unsure {
			sp.punched--
		}
	}
}

// recovered notes that all absent segments within the file are so as of the given checkpoint.
func (sp *space) recovered(checkpoint uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for n := range sp.whole() {
		if sp.segments[n].state == segmentAbsent && n != sp.successor {
			sp.leaving[n] = condemned{checkpoint: checkpoint, unsure: true}
		}
	}
	sp.countPunched()
}

// filled notes that the given segments have space.
func (sp *space) filled(first, n uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for i := first; i < first+n; i++ {
		delete(sp.leaving, i)
		g := &sp.segments[i]
		g.dead, g.blank = true, true
		if i == sp.successor {
			g.state = segmentFree
		} else {
			sp.release(i)
		}
	}
	sp.countPunched()
}
