package logstore

import (
	"errors"

	"flashdbm/lockfree"
)

// A segment that only readers keep is thinned: of its pages those that no reader sees go back to the file system, as holes in the middle of
// the file. Segments have pages of all kinds side by side: redo, checkpoints, and images that died before the reader came. Beside ten idle
// readers of a database with records of 100 bytes half of the pages in such segments were seen.
//
// Invariants:
//
//  1. A page is seen if a snapshot lay between the birth of its segment and its own death, when the watermark had passed its death: readers
//     that come later come above it (rule 3 of lifetime.go). Pages that never lived were for the log alone. Before a segment is punched, this is
//     decided of all pages that have died in it; while the watermark has not passed one of the deaths, the segment stays whole.
//  2. A seen page, and a place that a node in memory has cells in, keeps its space until no reader keeps the segment. A reader that ends while
//     others stay gives nothing back. A place that is not held yet counts as a name of others than readers, and keeps the segment whole.
//  3. From when it is chosen on, the segment is absent in each checkpoint, as a condemned one, and is none of its segments if it lies at the end
//     of the file: there it may be cut off right after readers have left it. Nothing is punched until both valid superblocks are of such
//     checkpoints. So no recovery takes a segment with holes for one that can be written, nor misses the end of the file. Should the log come
//     there again, because readers left the segment before it was punched, recovery finds that in the log.
//  4. Once no reader keeps it, a segment with holes is absent, and comes back by growth only. One without is free, as it is.
//  5. Where the device has no room nothing is thinned: what readers leave is to be free at once, as it is.
//  6. The header stays, and what a power cut brings back of punched pages is of the life that the header names: pages of a segment that is absent,
//     of which nothing lives, written before either scan start. The next life has another salt.
//  7. Who reads the file beside the writer finds zeros, which no checksum fits, where a checkpoint was begun behind the death of the page: its
//     snapshot is too old (rule 3 of beside.go).
type thinned struct {
	checkpoint uint64 // newest when the segment was chosen
	holes      uint64 // pages without space
}

// thinShare: a 16th of a segment at least has to be unseen. With less the file gets more fragments, and growth has more to fill, for little
// gain; with more, dense segments keep what they have: of records of 100 bytes an 8th left 6 % of what ten readers see.
const thinShare = 16

// deadPages are pages in a row that have died, and that the watermark has not passed yet.
type deadPages struct {
	from  Addr
	pages uint32
	seq   uint64
}

// noteDead notes that pages have died.
func (sp *space) noteDead(a Addr, pages int64, seq uint64) {
	if seq == 0 { // recovery has no readers
		return
	}
	if n := len(sp.deaths); n > 0 {
		if last := &sp.deaths[n-1]; last.seq == seq && last.from+uint64(last.pages) == a && a%sp.segmentPages != 0 {
			last.pages += uint32(pages)
			return
		}
	}
	sp.deaths = append(sp.deaths, deadPages{a, uint32(pages), seq})
}

// noteSeen notes which of the pages are seen whose deaths the watermark has passed. Behind it, that is known of all pages of a segment whose own
// death the watermark has passed.
func (sp *space) noteSeen() {
	if len(sp.snapshots) == 0 {
		return
	}
	top := sp.snapshots[len(sp.snapshots)-1]
	keep := sp.deaths[:0]
	for _, d := range sp.deaths {
		if d.seq > top {
			keep = append(keep, d)
			continue
		}
		g := &sp.segments[d.from/sp.segmentPages]
		if !lockfree.Pinned(sp.snapshots, g.birth, d.seq) {
			continue
		}
		if g.seenMap == nil {
			g.seenMap = make([]uint64, sp.words)
		}
		eachWord(d.from%sp.segmentPages, int64(d.pages), func(i, mask uint64) { g.seenMap[i] |= mask })
	}
	sp.deaths = keep
}

// HoldPlace is HoldName for a name that is the place of an image that a node has cells in: the page keeps its space.
func (s *Store) HoldPlace(a Addr) {
	s.HoldName(a)
	s.space.holdPlace(a, 1)
}

// LetPlace takes HoldPlace back.
func (s *Store) LetPlace(a Addr) {
	s.LetName(a)
	s.space.holdPlace(a, -1)
}

func (sp *space) holdPlace(a Addr, by int32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.places == nil {
		sp.places = map[Addr]int32{}
	}
	if sp.places[a] += by; sp.places[a] == 0 {
		delete(sp.places, a)
	}
}

// unseen returns the runs of pages of a segment whose space nobody needs while readers keep the segment.
func (sp *space) unseen(n uint32) (runs [][2]uint64, pages uint64) {
	g, first := &sp.segments[n], uint64(n)*sp.segmentPages
	var from uint64
	for o := headerPage(n) + 1; o <= sp.segmentPages; o++ {
		if o < sp.segmentPages && (g.seenMap == nil || g.seenMap[o/64]>>(o%64)&1 == 0) && sp.places[first+o] == 0 {
			if from == 0 {
				from = o
			}
			continue
		}
		if from > 0 {
			runs = append(runs, [2]uint64{first + from, o - from})
			pages += o - from
		}
		from = 0
	}
	return runs, pages
}

// thinnable reports whether nothing but readers keeps a segment, and it is known which of its pages they see.
func (sp *space) thinnable(n uint32) bool {
	g := &sp.segments[n]
	return n > 0 && len(sp.snapshots) > 0 && g.death <= sp.snapshots[len(sp.snapshots)-1] && sp.held(n) && g.dead && g.written < sp.oldestStart &&
		!sp.runs[0][n] && !sp.runs[1][n]
}

// Thin chooses the segments that will be thinned. No checkpoint is under way.
func (s *Store) Thin() {
	newest := s.newestNumber()
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if len(sp.snapshots) < 2 || sp.short || s.unpunchable.Load() {
		return
	}
	for n := range sp.whole() {
		if _, ok := sp.thin[n]; ok || !sp.thinnable(n) {
			continue
		}
		if _, pages := sp.unseen(n); pages*thinShare >= sp.segmentPages {
			sp.thin[n] = thinned{checkpoint: newest}
		}
	}
}

// Thinning returns the bytes that two more checkpoints let go of segments that were chosen. It is no more than a guess.
func (s *Store) Thinning() (bytes int64) {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.short || s.unpunchable.Load() {
		return 0
	}
	for n, t := range sp.thin {
		if t.holes == 0 && sp.thinnable(n) {
			_, pages := sp.unseen(n)
			bytes += int64(pages) * PageSize
		}
	}
	return bytes
}

// thinNext punches a segment whose checkpoints are past, the lowest, and reports whether there was one. The caller holds growing: who finds that
// the segment has been left meanwhile waits for it before the log comes there.
func (s *Store) thinNext(oldest uint64) (found bool, err error) {
	if s.unpunchable.Load() {
		return false, nil
	}
	n, runs := s.space.nextThin(oldest)
	for i, r := range runs {
		err := s.file.Punch(int64(r[0])*PageSize, int64(r[1])*PageSize)
		if errors.Is(err, errors.ErrUnsupported) {
			s.unpunchable.Store(true)
			if i == 0 {
				s.space.unholed(n)
			}
			return false, nil
		}
		if err != nil {
			return true, err
		}
		s.forgetPages(r[0], r[1])
		s.returned.Add(r[1])
	}
	return len(runs) > 0, nil
}

// nextThin returns what is to be punched, and of which segment: nothing if there is none. From then on the segment has holes, since whether a
// punch that failed has made some is not known.
func (sp *space) nextThin(oldest uint64) (n uint32, runs [][2]uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.short || len(sp.thin) == 0 {
		return 0, nil
	}
	sp.noteSeen()
	for n := range sp.whole() {
		t, ok := sp.thin[n]
		if !ok || t.holes > 0 || t.checkpoint >= oldest || !sp.thinnable(n) {
			continue
		}
		if runs, t.holes = sp.unseen(n); t.holes > 0 {
			sp.thin[n] = t
			sp.holes += t.holes
			return n, runs
		}
	}
	return 0, nil
}

// unholed notes that a segment has no hole after all.
func (sp *space) unholed(n uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if t, ok := sp.thin[n]; ok {
		sp.holes -= t.holes
		t.holes = 0
		sp.thin[n] = t
	}
}

// forgetPages clears what is known of pages that have no space any more. A damaged reference that leads there finds that they are not what they
// were, and does not read zeros. That names lie there stays known: readers may come by these.
func (s *Store) forgetPages(a Addr, n uint64) {
	if c, o := s.chunkOf(a); c != nil {
		if b := c.bits.Load(); b != nil {
			for ; n > 0; o, n = o+1, n-1 {
				b.checked.unset(o)
				b.record.unset(o)
				b.extent.unset(o)
			}
		}
	}
}

// left is called for a segment that no reader keeps any more, and may be written again. It reports whether that has holes: then it is absent
// from now on.
func (sp *space) left(n uint32) bool {
	t, ok := sp.thin[n]
	if !ok {
		return false
	}
	delete(sp.thin, n)
	if t.holes == 0 {
		return false
	}
	sp.holes -= t.holes
	sp.segments[n].state = segmentAbsent
	sp.leaving[n] = condemned{checkpoint: t.checkpoint, unsure: true}
	sp.countPunched()
	return true
}

// holesOf returns how many pages of a segment have no space.
func (sp *space) holesOf(n uint32) int64 { return int64(sp.thin[n].holes) }
