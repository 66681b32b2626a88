package logstore

import (
	"errors"
	"maps"
)

// Free segments that the log does not need are given back to the file system: segments at the end of the file are cut off, others punched.
// Such a segment is *absent* from then on and returns only when the file grows: its space is allocated and synced before anything refers
// to it.
//
//   - A segment is condemned first: it leaves the free list (so the reuse rule holds for it) and counts as absent. Its space is not touched
//     until both valid superblocks are of checkpoints begun after that. So whichever superblock a recovery starts from, neither its space
//     map, nor its table, nor the log behind it refers to the segment, whether the space is still there or not.
//   - Until then growth takes a condemned segment back as it is, because its space was never given up. A recovery that finds the segment in
//     the log finds it used.
//   - The header is zeroed before the segment is punched, so that a process that reads the file beside the writer finds no header in front
//     of pages that are gone.
//   - Nothing is synced here. A power cut may bring back what was cut off or punched: pages of an absent segment, under a salt that no map
//     knows. Free segments hold such pages anyway.
//   - After a failure the segment stays absent, although it may still have space that nothing records. Recovery does not know whether a
//     segment that the map calls absent has space, and so gives it back once more.
type condemned struct {
	checkpoint uint64 // newest checkpoint when the segment was condemned
	unsure     bool   // the segment may have no space
}

const trimBytes = 64 << 20 // bytes given back by one call, so that commits wait for at most that

// Condemn takes free segments out of use until the free pages, besides those held back, are the greater of spare and the pages promised. It does
// nothing if fewer than least segments would be gained. The caller makes sure that no checkpoint is under way.
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
	last := sp.whole() // first of the segments at the end that are absent or condemned now
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

// Returning returns the bytes of dead segments that wait only for one more checkpoint. The caller makes sure that none is under way.
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

// Outdated returns the bytes of dead pages whose reuse waits for a later redo start, that is for a full flush and two checkpoints. The caller
// makes sure that no checkpoint is under way.
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

// Leaving returns the bytes of the condemned segments that can be given back after two more checkpoints.
func (s *Store) Leaving() int64 {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return int64(len(sp.leaving)) * int64(sp.segmentPages) * PageSize
}

// GiveBack gives back the space of some condemned segments whose checkpoints are done, adjacent segments at once, and reports whether there
// may be more. The caller makes sure that no checkpoint is under way. After an error the file is as good as before.
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

// cutTo forgets the absent segments at the end of the file if all their checkpoints are done, and returns the number of segments left, or 0 if
// nothing can be cut off.
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

// cut truncates the file to so many segments. A mapped file that cannot become shorter stays as it is, and growth writes over its end.
func (s *Store) cut(segments uint32) error {
	err := s.file.Truncate(int64(s.firstPage(segments)) * PageSize)
	if err != nil {
		s.unpunchable.Store(true)
	}
	return err
}

// depart forgets up to so many adjacent condemned segments whose checkpoints are done.
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

// punch gives back the space of n segments. If the file system cannot do that, only the end of the file is given back from now on.
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

// zeroHeader overwrites the header of a segment with zeros, unless it is zero already: writing might need space.
func (s *Store) zeroHeader(n uint32, page []byte) error {
	at := int64(s.firstPage(n)+headerPage(n)) * PageSize
	if _, err := s.file.ReadAt(page, at); err != nil || isZero(page) {
		return err
	}
	clear(page)
	_, err := s.file.WriteAt(page, at)
	return err
}

// spare takes back condemned segments until so many more pages are free, and reports whether there were any.
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

// hole finds adjacent absent segments within the file that growth fills before it makes the file longer, at most so many. The log's successor
// comes first, because no other segment is of use without it; then the lowest.
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

// recovered records that all absent segments within the file have been absent since the given checkpoint.
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

// filled records that the given segments have space.
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
