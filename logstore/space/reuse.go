package space

import (
	"slices"

	"flashdbm/logstore/format"
)

// Reuse decides which segments can be reused. It also tells which segments are worth cleaning, and which wait
// and for what. If a result depends on the checkpoints, the caller makes sure that no checkpoint is in
// progress.
type Reuse struct {
	*table
	log     *Log
	absent  *Absent
	readers *Readers
	thin    map[uint32]thinned // segments chosen for thinning: see thin.go
}

// reusable says whether the rules of segment let a segment be opened again.
func (sp *Reuse) reusable(n uint32) bool {
	g := &sp.segments[n]
	return g.state == segmentUsed && g.live == 0 && g.dead && g.written < sp.log.oldestStart() && g.names == 0 && !sp.readers.visible(g) &&
		!sp.log.writes(n) && !sp.log.inRun(n)
}

// collect puts every segment that has become reusable on the free list. The list begins with the highest segment: in the
// other order each insertion would move all those before it.
func (sp *Reuse) collect() {
	for n := sp.whole(); n > 0; n-- {
		if sp.reusable(n-1) && !sp.left(n-1) {
			sp.release(n - 1)
		}
	}
}

// held reports whether only readers, and checkpoints to come, keep a segment from being reused.
func (sp *Reuse) held(n uint32) bool {
	g := &sp.segments[n]
	return g.state == segmentUsed && g.live == 0 && g.names == g.heldNames && (g.names > 0 || sp.readers.visible(g)) && !sp.log.writes(n)
}

// heldAtOnce is the number of segments that HeldBytes looks at under one hold of the mutex, so that commits wait
// for about 20 µs at most.
const heldAtOnce = 1024

// HeldBytes returns the bytes of the segments that only readers keep. They become free two checkpoints after
// these readers have ended. It looks at a file of more than heldAtOnce segments in pieces, so the sum may mix
// several moments.
func (sp *Reuse) HeldBytes() (held int64) {
	for from, more := uint32(0), true; more; from += heldAtOnce {
		var bytes int64
		bytes, more = sp.heldFrom(from)
		held += bytes
	}
	return held
}

// heldFrom is HeldBytes for heldAtOnce segments, and reports whether more segments follow them.
func (sp *Reuse) heldFrom(from uint32) (held int64, more bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	end := sp.whole()
	for n := from; n < min(end, from+heldAtOnce); n++ {
		if sp.held(n) {
			held += sp.pagesOf(n) * format.PageSize
		}
	}
	return held, end > from+heldAtOnce
}

// Returning returns the bytes of dead segments that wait only for one more checkpoint.
func (sp *Reuse) Returning() int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	newest := sp.log.newest()
	var pages int64
	for n := range sp.whole() {
		if g := &sp.segments[n]; g.state == segmentUsed && g.live == 0 && g.names == 0 && !sp.readers.visible(g) &&
			g.written < newest.Start && !sp.log.writes(n) && !newest.Run[n] {
			pages += sp.pagesOf(n)
		}
	}
	return pages * format.PageSize
}

// Outdated returns the bytes of dead pages whose reuse waits for a later redo start, that is for a full flush and
// two checkpoints.
func (sp *Reuse) Outdated() int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	start := sp.log.newest().Start
	var pages int64
	for n := range sp.whole() {
		if g := &sp.segments[n]; g.state == segmentUsed && g.sequence != 0 && g.written >= start && !sp.log.writes(n) {
			pages += int64(sp.segmentPages) - int64(g.live)
		}
	}
	return pages * format.PageSize
}

// Leaving returns the bytes of the condemned segments that can be given back after two more checkpoints.
func (sp *Reuse) Leaving() int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return int64(len(sp.absent.leaving)) * int64(sp.segmentPages) * format.PageSize
}

// A Victim is a segment of the log that may be worth cleaning.
type Victim struct {
	Segment uint32
	Live    int64  // live pages
	Values  int64  // live logged values; moving one also writes its leaf
	Written uint64 // newest group with a page in it
}

// Victims returns the segments that would become free if their live pages moved, emptiest first, and the number of
// dead pages in them. It leaves out segments of which more than three quarters are live (with full: only those that
// are wholly live), segments that the log still needs or has just filled (their content may soon die by itself),
// segments of large values (which die whole), and the excepted segments unless they were written since the group
// named there.
func (sp *Reuse) Victims(except map[uint32]uint64, full bool) (victims []Victim, garbage int64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	before := sp.log.newest().Start
	room := int64(sp.segmentPages - 1)
	most := room * 3 / 4
	if full {
		most = room - 1
	}
	for n := range sp.whole() {
		g := &sp.segments[n]
		live := g.packed()
		if g.state != segmentUsed || g.live == 0 || g.sequence == 0 || g.written >= before || live > most ||
			sp.log.writes(n) || sp.log.hasRun(0, n) && sp.log.hasRun(1, n) {
			continue
		}
		if group, ok := except[n]; ok && group == g.written {
			continue
		}
		v := Victim{Segment: n, Live: live, Written: g.written}
		if g.logged != nil {
			v.Values = int64(g.logged.values)
		}
		victims = append(victims, v)
		garbage += room - live
	}
	slices.SortStableFunc(victims, func(a, b Victim) int { return int(a.Live - b.Live) })
	return victims, garbage
}
