package space

import "maps"

// Free segments that the log does not need are given back to the file system: segments at the end of the file are
// cut off, others punched. Such a segment is *absent* from then on and returns only when the file grows: its space
// is allocated and synced before anything refers to it.
//
//   - A segment is condemned first: it leaves the free list (so the reuse rule holds for it) and counts as absent.
//     Its space is not touched until both valid superblocks are of checkpoints begun after that. So whichever
//     superblock a recovery starts from, neither its space map, nor its table, nor the log after it refers to the
//     segment, whether the space is still there or not.
//   - Until then growth takes a condemned segment back as it is, because its space was never given up. A recovery
//     that finds the segment in the log finds it used.
//   - The header is zeroed before the segment is punched, so that a process that reads the file beside the writer
//     finds no header in front of pages that are gone.
//   - Nothing is synced here. A power cut may bring back what was cut off or punched: pages of an absent segment,
//     under a salt that no map knows. Free segments hold such pages anyway.
//   - After a failure the segment stays absent, although it may still have space that nothing records. Recovery
//     does not know whether a segment that the map calls absent has space, and so gives it back once more.
type condemned struct {
	checkpoint uint64 // newest checkpoint when the segment was condemned
	unsure     bool   // the segment may have no space
}

// Absent is the segments of the file that are out of use.
type Absent struct {
	*table
	log         *Log
	punched     uint64               // number of absent segments within the file, condemned ones not counted
	holes       uint64               // number of pages without space in segments that are not absent, see thin.go
	leaving     map[uint32]condemned // absent segments whose space is, or may be, still allocated
	unpunchable bool                 // the file system cannot punch: at most the end of the file can be given back
}

// SetUnpunchable records that the file system cannot punch.
func (sp *Absent) SetUnpunchable() {
	sp.mu.Lock()
	sp.unpunchable = true
	sp.mu.Unlock()
}

// allocated returns the number of segments within the file that have their space, as far as is known.
func (sp *Absent) allocated() uint64 { return uint64(sp.whole()) - sp.punched }

// taken returns the number of pages of the file that have their space.
func (sp *Absent) taken() uint64 { return sp.pages - sp.punched*sp.segmentPages - sp.holes }

// condemn takes up to the given number of free segments out of use, those at the end of the file first.
func (sp *Absent) condemn(segments int) {
	last := sp.whole() // first of the segments at the end that are absent or condemned now
	keep := sp.free[:0]
	for _, n := range sp.free { // highest first
		for last > 0 && sp.segments[last-1].state == segmentAbsent {
			last--
		}
		if segments == 0 || n == 0 || sp.unpunchable && n+1 != last {
			keep = append(keep, n)
			continue
		}
		sp.segments[n].state = segmentAbsent
		sp.leaving[n] = condemned{checkpoint: sp.log.newest().Number}
		segments--
	}
	sp.free = keep
}

// CutTo forgets the absent segments at the end of the file if all their checkpoints are done. It returns the number
// of segments that are left, or 0 if nothing can be cut off, and the number of pages that are cut off.
func (sp *Absent) CutTo() (segments uint32, cut uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	oldest, end := sp.log.oldestNumber(), sp.whole()
	n := end
	for n > 1 && sp.segments[n-1].state == segmentAbsent && !sp.log.writes(n-1) {
		if c, ok := sp.leaving[n-1]; ok && c.checkpoint >= oldest {
			break
		}
		n--
	}
	if n == end || n <= 1 {
		return 0, 0
	}
	maps.DeleteFunc(sp.leaving, func(k uint32, _ condemned) bool { return k >= n })
	before := sp.pages
	sp.pages = uint64(n) * sp.segmentPages
	sp.countPunched()
	return n, before - sp.pages
}

// Depart forgets up to most adjacent condemned segments whose checkpoints are done.
func (sp *Absent) Depart(most uint32) (first, n uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	oldest := sp.log.oldestNumber()
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

// Spare takes back condemned segments until the pages are free, and reports whether there were any.
func (sp *Absent) Spare(pages int64) (took bool) {
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

// Hole finds adjacent absent segments within the file, at most the given number, for growth to fill before it
// makes the file longer. The log's successor comes first, because without it no other segment can be entered;
// otherwise the lowest ones come first.
func (sp *Absent) Hole(most uint32) (first, n uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	end := sp.whole()
	if next := sp.log.successor; next < end && sp.segments[next].state == segmentAbsent {
		first = next
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

func (sp *Absent) isHole(n uint32) bool {
	if sp.segments[n].state != segmentAbsent || n == sp.log.tail {
		return false
	}
	c, ok := sp.leaving[n]
	return !ok || c.unsure
}

// countPunched counts the segments within the file that have no space, as far as is known.
func (sp *Absent) countPunched() {
	sp.punched = 0
	for n := range sp.whole() {
		if sp.segments[n].state == segmentAbsent {
			sp.punched++
		}
	}
	sp.punched -= uint64(sp.sparable())
}

// sparable returns the number of condemned segments that growth can take back as they are.
func (sp *Absent) sparable() (segments int64) {
	for _, c := range sp.leaving {
		if !c.unsure {
			segments++
		}
	}
	return segments
}

// Filled records that the given segments have space.
func (sp *Absent) Filled(first, n uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for i := first; i < first+n; i++ {
		delete(sp.leaving, i)
		g := &sp.segments[i]
		g.dead, g.blank = true, true
		if i == sp.log.successor {
			g.state = segmentFree
		} else {
			sp.release(i)
		}
	}
	sp.countPunched()
}

// Unsure takes the lowest segment off the list of absent segments that may still have their space.
func (sp *Absent) Unsure() (n uint32, ok bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for n < sp.whole() && !sp.leaving[n].unsure {
		n++
	}
	if n == sp.whole() {
		return 0, false
	}
	delete(sp.leaving, n)
	sp.countPunched()
	return n, true
}

// AbsentSuccessor returns the log's successor if the map knows it as absent although it lies in the file. The
// checkpoint may have been written when the successor had been given back, and the successor was filled since.
func (sp *Absent) AbsentSuccessor() (n uint32, ok bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	n = sp.log.successor
	return n, n != 0 && n < sp.whole() && sp.segments[n].state == segmentAbsent
}
