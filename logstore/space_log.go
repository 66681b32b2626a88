package logstore

// This file is what the log does to the map of the file: it enters segments, one after the other, and writes into them.

// enter notes a header of the chain: its segment now holds pages of the log, in a life of its own. The header leads to the group that
// it names even if no page of that group is in the segment, because a crash cut it off and the log went on elsewhere. It reports whether
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

// reborn notes that segment n begins a life without pages that readers know. Recovery does not: there what lives may be known before the
// header is met.
func (sp *space) reborn(n uint32) {
	sp.mu.Lock()
	g := &sp.segments[n]
	g.birth, g.death = unborn, 0
	g.diedMap, g.nodeMap, g.seenMap = nil, nil, nil
	sp.mu.Unlock()
}

// wrote notes that group has a page in the segment of a.
func (sp *space) wrote(a Addr, group uint64) {
	sp.mu.Lock()
	g := &sp.segments[a/sp.segmentPages]
	g.written = max(g.written, group)
	sp.mu.Unlock()
}

// listed notes that an accepted group lists an extent at a: the segment has its space, and is private, whatever the map says of an earlier life.
func (sp *space) listed(a Addr, group uint64) {
	sp.mu.Lock()
	g := &sp.segments[a/sp.segmentPages]
	g.state, g.sequence, g.written = segmentUsed, 0, max(g.written, group)
	sp.mu.Unlock()
}

// scanned notes the pages of an accepted group.
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

// setTail notes where the log goes on.
func (sp *space) setTail(t *tail) {
	sp.mu.Lock()
	sp.tail, sp.tailPage, sp.successor = t.header.segment, t.page, t.header.successor
	sp.mu.Unlock()
}

// successorOf chooses where the log goes on after segment n, which it is about to enter. Reservations see to it that there is a free
// segment: the successor is allocated before its own header is written, and before the header that names it. The number returned
// without one is that of the first segment that the file does not have; nothing can be committed then.
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

// appended notes a group that was written; t is where the log goes on.
func (sp *space) appended(g *Group, t *tail) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.tail, sp.tailPage, sp.successor = t.header.segment, t.page, t.header.successor
	for i := range g.pages {
		sp.segments[g.pages[i].addr/sp.segmentPages].written = t.group
	}
}

// available returns how many pages can be appended without growing the file: the rest of the tail's segment and, for each free
// segment, one more, since the log can enter its successor only if there is a free segment to follow that one. A file whose first
// segment is its only one has no successor yet.
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

// grown notes that the file has so many pages now.
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
