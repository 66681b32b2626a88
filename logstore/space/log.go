package space

import "flashdbm/logstore/format"

// Log is what the map knows about the log: the segment it is written in, the segment in which it continues, and
// what its two checkpoints need. Segments enter the log one after the other.
type Log struct {
	*table
	tail        uint32 // segment being appended to
	tailPage    uint64 // next page in it
	successor   uint32 // segment in which the log continues
	checkpoints [2]*Checkpoint
}

// A Checkpoint is what a valid superblock says.
type Checkpoint struct {
	Number uint64
	Start  uint64          // group at which a scan of the log starts
	Run    map[uint32]bool // segments with pages of the checkpoint; nil if no segment will be reused
}

// Enter records a segment header of the chain: the segment holds pages of the log from now on, in a new life. The
// header leads to the group that it names even if a crash has cut that group off and the log continues elsewhere,
// so that the segment has no page of it. Enter reports whether the segment was never written since it got its
// space.
func (sp *Log) Enter(segment uint32, salt, sequence, group uint64) (blank bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.extendTo(segment + 1)
	g := &sp.segments[segment]
	blank = g.blank
	g.salt, g.sequence, g.state, g.dead, g.deadNext, g.blank = salt, sequence, segmentUsed, false, false, false
	g.written = max(g.written, group)
	return blank
}

// Reborn records that segment n begins a new life, in which readers know no page yet. Recovery does not call it,
// because during recovery live pages may be recorded before the header is met.
func (sp *Log) Reborn(n uint32) {
	sp.mu.Lock()
	g := &sp.segments[n]
	g.birth, g.death = unborn, 0
	g.diedMap, g.nodeMap, g.seenMap = nil, nil, nil
	sp.mu.Unlock()
}

// Wrote records the pages of a group; page returns the address of each.
func (sp *Log) Wrote(group uint64, pages int, page func(i int) Addr) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for i := range pages {
		g, _ := sp.at(page(i))
		g.written = max(g.written, group)
	}
}

// Listed records that an accepted group lists an extent at a: the segment has its space and is private, whatever
// the map says of it.
func (sp *Log) Listed(a Addr, group uint64) {
	sp.mu.Lock()
	g, _ := sp.at(a)
	g.state, g.sequence, g.written = segmentUsed, 0, max(g.written, group)
	sp.mu.Unlock()
}

// IsOlder reports whether segment n has a live page and a header before the given one.
func (sp *Log) IsOlder(n uint32, sequence uint64) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return n < uint32(len(sp.segments)) && sp.segments[n].live > 0 && sp.segments[n].sequence < sequence
}

// SetTail records where the log continues.
func (sp *Log) SetTail(segment uint32, page uint64, successor uint32) {
	sp.mu.Lock()
	sp.extendTo(max(segment, successor) + 1)
	sp.tail, sp.tailPage, sp.successor = segment, page, successor
	sp.mu.Unlock()
}

// BehindEnd returns the range of pages in which the log continues: the rest of the tail.
func (sp *Log) BehindEnd() (from, end Addr) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	first := uint64(sp.tail) * sp.segmentPages
	return first + sp.tailPage, first + sp.segmentPages
}

// SuccessorOf chooses the segment in which the log continues after segment n, which it is about to enter.
// Reservations make sure that there is a free segment: the successor is allocated before its own header is written,
// and before the header that names it. If there is none, the returned number is that of the first segment that the
// file does not have, and nothing can be committed.
func (sp *Log) SuccessorOf(n uint32) uint32 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	next, ok := sp.take()
	if !ok {
		next = max(sp.whole(), n+1)
	}
	sp.extendTo(next + 1)
	return next
}

// writes reports whether segment n is the log's tail or the tail's successor.
func (sp *Log) writes(n uint32) bool { return n == sp.tail || n == sp.successor }

// hasRun reports whether segment n has pages of the checkpoint in a slot.
func (sp *Log) hasRun(slot int, n uint32) bool {
	c := sp.checkpoints[slot]
	return c != nil && c.Run[n]
}

// inRun reports whether segment n has pages of a checkpoint.
func (sp *Log) inRun(n uint32) bool { return sp.hasRun(0, n) || sp.hasRun(1, n) }

// newest returns the newest checkpoint; the zero one while there is none.
func (sp *Log) newest() (c Checkpoint) {
	for _, o := range sp.checkpoints {
		if o != nil && o.Number >= c.Number {
			c = *o
		}
	}
	return c
}

// oldestStart returns the group at which the scan from the older checkpoint starts, or 0 if there is no checkpoint.
func (sp *Log) oldestStart() (start uint64) {
	start = sp.newest().Start
	for _, c := range sp.checkpoints {
		if c != nil {
			start = min(start, c.Start)
		}
	}
	return start
}

// oldestNumber returns the number of the older checkpoint.
func (sp *Log) oldestNumber() (number uint64) {
	number = sp.newest().Number
	for _, c := range sp.checkpoints {
		if c != nil {
			number = min(number, c.Number)
		}
	}
	return number
}

// available returns the number of pages that can be appended without growing the file: the rest of the tail's
// segment, and one segment for each free segment. (With k free segments the log can enter the successor and k-1 of
// them, because a segment is entered only if a free one can follow it.) A file that consists of its first segment
// has no successor yet.
func (sp *Log) available() int64 {
	end := sp.segmentPages
	if sp.whole() <= sp.tail {
		end = sp.pages - uint64(sp.tail)*sp.segmentPages
	}
	n := max(int64(end)-int64(sp.tailPage), 0)
	if free := len(sp.free); free > 0 && sp.segments[sp.successor].state != segmentAbsent {
		n += int64(free) * int64(sp.segmentPages-1)
		if sp.successor == 0 || sp.free[free-1] == 0 {
			n -= int64(format.HeaderPage(0))
		}
	}
	return n
}

// Grown records the file's new number of pages.
func (sp *Log) Grown(pages uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	old := sp.whole()
	sp.pages = pages
	sp.extendTo(uint32((pages + sp.segmentPages - 1) / sp.segmentPages))
	for n := old; n < sp.whole(); n++ {
		switch g := &sp.segments[n]; n {
		case sp.tail:
		case sp.successor:
			g.state, g.blank = segmentFree, true
		default:
			g.dead, g.blank = true, true
			sp.release(n)
		}
	}
}

// SetCheckpoint records what a superblock that was found at Open says.
func (sp *Log) SetCheckpoint(c Checkpoint) {
	sp.mu.Lock()
	sp.checkpoints[c.Number%2] = &c
	sp.mu.Unlock()
}
