package logstore

import "slices"

// This file tells the cleaner what it needs to know about the space map: which segments hold little live data, and which pages that is.

// A Victim is a segment of the log that may be worth cleaning.
type Victim struct {
	Segment uint32
	Live    int64  // live pages
	Values  int64  // live logged values; moving one also writes its leaf
	Written uint64 // newest group with a page in it
}

// Victims returns the segments that would become free if their live pages moved, emptiest first, and the number of dead pages in them. It
// leaves out segments of which more than three quarters are live (with full: only those that are wholly live), segments that the log still
// needs or has just filled (their content may soon die by itself), segments of large values (which die whole), and the excepted segments
// unless they were written since the group named there. The caller makes sure that no checkpoint is under way.
func (s *Store) Victims(except map[uint32]uint64, full bool) (victims []Victim, garbage int64) {
	before := s.oldestStart()
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	room := int64(sp.segmentPages - 1)
	most := room * 3 / 4
	if full {
		most = room - 1
	}
	for n := range sp.whole() {
		g := &sp.segments[n]
		live := g.effective()
		if g.state != segmentUsed || g.live == 0 || g.sequence == 0 || g.written >= before || live > most ||
			n == sp.tail || n == sp.successor || sp.runs[0][n] && sp.runs[1][n] {
			continue
		}
		if group, ok := except[n]; ok && group == g.written {
			continue
		}
		victims = append(victims, Victim{n, live, int64(g.values), g.written})
		garbage += room - live
	}
	slices.SortStableFunc(victims, func(a, b Victim) int { return int(a.Live - b.Live) })
	return victims, garbage
}

// Pinned reports whether nothing lives in the segment of a and only names in the table keep it from being reused.
func (s *Store) Pinned(a Addr) bool {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	n := a / sp.segmentPages
	return n < uint64(len(sp.segments)) && sp.segments[n].live == 0 && sp.segments[n].names > 0
}

// oldestStart returns the group at which the scan from the newest superblock starts.
func (s *Store) oldestStart() uint64 {
	if newest := s.newest(); newest != nil {
		return newest.start.Group
	}
	return 0
}

// Contents returns, in order, the live pages of a segment that can move: pages of trees and the first pages of value runs. It also returns the
// number of the other live pages: lists of extents, damaged pages, and pages of damaged runs.
func (s *Store) Contents(segment uint32) (tree, runs []Addr, others int64) {
	sp := s.space
	sp.mu.Lock()
	if segment >= uint32(len(sp.segments)) {
		sp.mu.Unlock()
		return nil, nil, 0
	}
	first := s.firstPage(segment)
	live := slices.Clone(sp.segments[segment].liveMap)
	sp.mu.Unlock()
	for o := uint64(0); o < uint64(len(live))*64; o++ {
		if live[o/64]>>(o%64)&1 == 0 {
			continue
		}
		switch kind, name, err := s.KindAt(first + o); {
		case err != nil:
			others++
		case kind == KindRecord: // see LoggedIn
			o += max(s.spanOf(first+o, name), 1) - 1
		case kind == KindTree:
			tree = append(tree, first+o)
		default:
			form, payload, err := s.run(first + o)
			if err != nil || form == runList {
				others++
			} else {
				runs = append(runs, first+o)
			}
			if err == nil {
				o += uint64(RunPages(int64(len(payload)))) - 1
			}
		}
	}
	return tree, runs, others
}

// LiveIn returns the number of live pages of a segment.
func (s *Store) LiveIn(segment uint32) int64 {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if segment >= uint32(len(sp.segments)) {
		return 0
	}
	return int64(sp.segments[segment].live)
}

// LastWritten returns the newest group that wrote into a segment.
func (s *Store) LastWritten(segment uint32) uint64 {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if segment >= uint32(len(sp.segments)) {
		return 0
	}
	return sp.segments[segment].written
}

// KindAt returns the kind and the name of the live page at a, which is a page of a tree or the first page of a value run. It verifies the
// page.
func (s *Store) KindAt(a Addr) (kind Kind, name PageID, err error) {
	c, o := s.chunkOf(a)
	if c == nil {
		return 0, 0, s.pageError(a, "no such page in the file")
	}
	p := c.page(o)
	if kind = PageKind(p); kind != KindTree && kind != KindRecord {
		kind = KindRun
	}
	if !c.isChecked(o) {
		if p, err = s.verifyPage(a, kind); err != nil {
			return 0, 0, err
		}
	}
	return kind, getMux(p).name, nil
}
