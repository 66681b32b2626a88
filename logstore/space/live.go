package space

import (
	"fmt"
	"slices"

	"flashdbm/logstore/format"
)

// Live is a copy of the space map as of one moment. It takes a bit per page of each segment that had live
// pages.
type Live struct {
	segmentPages uint64
	pages        map[uint32]bitmap       // live pages, per segment that had any
	logged       map[uint32]loggedValues // masks and raw pages of the logged values
	end          uint32                  // number of segments
	counts       error                   // disagreement between counters and map, if any
}

// Live returns a copy of the space map as it is now.
func (sp *Usage) Live() *Live {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	l := &Live{segmentPages: sp.segmentPages, pages: map[uint32]bitmap{}, logged: map[uint32]loggedValues{}, end: uint32(len(sp.segments)), counts: sp.checkCounts()}
	for n := range sp.segments {
		g := &sp.segments[n]
		if g.liveMap != nil {
			l.pages[uint32(n)] = slices.Clone(g.liveMap)
		}
		if g.logged != nil {
			l.logged[uint32(n)] = loggedValues{masks: slices.Clone(g.logged.masks), raw: slices.Clone(g.logged.raw)}
		}
	}
	return l
}

// maxProblems is the largest number of problems that a check returns.
const maxProblems = 100

// each calls f for each page of the copied map until there are too many problems.
func (l *Live) each(problems *[]error, f func(a Addr, n uint32, o uint64)) {
	for n := range l.end {
		for o := range l.segmentPages {
			if f(uint64(n)*l.segmentPages+o, n, o); len(*problems) >= maxProblems {
				return
			}
		}
	}
}

// Check compares the copied map with what the caller knows. use tells for each page whether it must be live and
// whether it may be. Check also reports a disagreement between the counters and the map. It returns at most
// maxProblems problems.
func (l *Live) Check(use func(a Addr) (must, may bool)) (problems []error) {
	if l.counts != nil {
		problems = append(problems, l.counts)
	}
	before := false // the previous page may be live
	l.each(&problems, func(a Addr, n uint32, o uint64) {
		live, raw := l.pages[n].has(o), l.logged[n].raw.has(o)
		must, may := use(a)
		before = may || o > 0 && before && raw
		switch may = before; {
		case must && !live:
			problems = append(problems, fmt.Errorf("%w: page %d is in the tree and dead in the space map", format.ErrCorrupt, a))
		case live && !may:
			problems = append(problems, fmt.Errorf("%w: page %d is live in the space map and in no tree", format.ErrCorrupt, a))
		}
	})
	return problems
}

// CheckLogged is Check for logged values: those in must have to be live, and only those in must or born may be.
func (l *Live) CheckLogged(must, born func(a Addr) uint16) (problems []error) {
	l.each(&problems, func(a Addr, n uint32, o uint64) {
		live := uint16(0)
		if masks := l.logged[n].masks; masks != nil {
			live = masks[o]
		}
		used := must(a)
		if used&^live != 0 {
			problems = append(problems, fmt.Errorf("%w: values %#x of page %d are in the tree and dead in the space map", format.ErrCorrupt, used&^live, a))
		}
		if extra := live &^ (used | born(a)); extra != 0 {
			problems = append(problems, fmt.Errorf("%w: values %#x of page %d are live in the space map and in no tree", format.ErrCorrupt, extra, a))
		}
	})
	return problems
}
