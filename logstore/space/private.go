package space

// TakePrivate takes a free segment for a transaction, or returns the number of pages that are lacking.
func (sp *Map) TakePrivate(salt uint64, c Claim) (n uint32, missing int64, ok bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	each := int64(sp.segmentPages)
	if sp.missing(each, 0, c) > 0 {
		sp.collect()
		if missing = sp.missing(each, 0, c); missing > 0 {
			return 0, missing, false
		}
	}
	n, ok = sp.take()
	if ok {
		sp.segments[n] = segment{state: segmentPrivate, salt: salt, birth: unborn}
	}
	return n, each, ok
}

// Publish gives private segments to the tree: group lists what is in them.
func (sp *Map) Publish(segments []uint32, group uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for _, n := range segments {
		g := &sp.segments[n]
		g.state, g.written, g.dead = segmentUsed, group, false
	}
}

// Discard frees private segments: their transaction did not commit.
func (sp *Map) Discard(segments []uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for _, n := range segments {
		sp.release(n)
	}
}

// WrotePrivate records the newest write in a private segment.
func (sp *Map) WrotePrivate(n uint32, write uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.segments[n].wrote = write
}

// PrivateWrite returns the number of the newest write in the segment of a, or 0 if the segment is not private.
func (sp *Map) PrivateWrite(a Addr) uint64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if g, _ := sp.find(a); g != nil && g.state == segmentPrivate {
		return g.wrote
	}
	return 0
}
