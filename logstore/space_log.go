package logstore

// This file records in the space map what the log does: it enters segments, one after the other, and writes into them.

// enter records a header of the chain: its segment holds pages of the log from now on, in a new life. The header leads to the group that it
// names even if a crash has cut that group off and the log continues elsewhere, so that the segment has no page of it. enter reports whether
// the segment was never written since it got its space.
func (sp *space) enter(h header) (blank bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.extendTo(h.segment + 1)
	g := &sp.segments[h.segment]
	blank = g.blank
	g.salt, g.sequence, g.state, g.dead, g.deadNext, g.blank = h.salt, h.sequence, segmentUsed, false, false, false
	g.written = max(g.written, h.group)
	return blank
}

// reborn records that segment n begins a new life, in which readers know no page yet. Recovery does not call it, because during recovery live
// pages may be recorded before the header is met.
func (sp *space) reborn(n uint32) {
	sp.mu.Lock()
	g := &sp.segments[n]
	g.birth, g.death = unborn, 0
	g.diedMap, g.nodeMap, g.seenMap = nil, nil, nil
	sp.mu.Unlock()
}

// wrote records that group has a page in the segment of a.
func (sp *space) wrote(a Addr, group uint64) {
	sp.mu.Lock()
	g := &sp.segments[a/sp.segmentPages]
	g.written = max(g.written, group)
	sp.mu.Unlock()
}

// listed records that an accepted group lists an extent at a: the segment has its space and is private, whatever the map says of it.
func (sp *space) listed(a Addr, group uint64) {
	sp.mu.Lock()
	g := &sp.segments[a/sp.segmentPages]
	g.state, g.sequence, g.written = segmentUsed, 0, max(g.written, group)
	sp.mu.Unlock()
}

// scanned records the pages of an accepted group.
func (sp *space) scanned(g *ScannedGroup) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for i := range g.Pages {
		sp.segments[g.Pages[i].Addr/sp.segmentPages].written = g.No
	}
}

// isOlder reports whether segment n has a live page and a header before the given one.
func (sp *space) isOlder(n uint32, sequence uint64) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return n < uint32(len(sp.segments)) && sp.segments[n].live > 0 && sp.segments[n].sequence < sequence
}

// setTail records where the log continues.
func (sp *space) setTail(t *tail) {
	sp.mu.Lock()
	sp.tail, sp.tailPage, sp.successor = t.header.segment, t.page, t.header.successor
	sp.mu.Unlock()
}

// successorOf chooses the segment in which the log continues after segment n, which it is about to enter. Reservations make sure that there is
// a free segment: the successor is allocated before its own header is written, and before the header that names it. If there is none, the
// returned number is that of the first segment that the file does not have, and nothing can be committed.
func (sp *space) successorOf(n uint32) uint32 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	next, ok := sp.take()
	if !ok {
		next = max(sp.whole(), n+1)
	}
	sp.extendTo(next + 1)
	return next
}

// appended records a group that was written; t is the new end of the log.
func (sp *space) appended(g *Group, t *tail) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.tail, sp.tailPage, sp.successor = t.header.segment, t.page, t.header.successor
	for i := range g.pages {
		sp.segments[g.pages[i].addr/sp.segmentPages].written = t.group
	}
}

// available returns the number of pages that can be appended without growing the file: the rest of the tail's segment, and one segment for
// each free segment. (With k free segments the log can enter the successor and k-1 of them, because a segment is entered only if a free one
// can follow it.) A file that consists of its first segment has no successor yet.
func (sp *space) available() int64 {
	end := sp.segmentPages
	if sp.whole() <= sp.tail {
		end = sp.pages - uint64(sp.tail)*sp.segmentPages
	}
	n := max(int64(end)-int64(sp.tailPage), 0)
	if free := len(sp.free); free > 0 && sp.segments[sp.successor].state != segmentAbsent {
		n += int64(free) * int64(sp.segmentPages-1)
		if sp.successor == 0 || sp.free[free-1] == 0 {
			n -= int64(headerPage(0))
		}
	}
	return n
}

// grown records the file's new number of pages.
func (sp *space) grown(pages uint64) {
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
