package logstore

import (
	"errors"

	"flashdbm/lockfree"
)

// Thinning gives back the space of pages that nobody needs in a segment that only readers keep: the pages that no reader sees become holes
// in the middle of the file. A segment holds pages of all kinds side by side: redo, checkpoints, and images that died before the reader
// began. With ten idle readers on a database with records of 100 bytes, readers saw half of the pages in such segments.
//
// Invariants:
//
//  1. A page is seen if some snapshot lies between the birth of its segment and the page's death, where the watermark has passed that
//     death: later readers begin above it (rule 3 of lifetime.go). Pages that were never live served the log alone and are not seen. A
//     segment is punched only after this is decided for every page that died in it. While the watermark has not passed one of the deaths,
//     the segment stays whole.
//  2. A seen page keeps its space until no reader keeps the segment, and so does a place that a node in memory has cells in. A reader that
//     ends while other readers stay gives nothing back. A place that is not held yet counts as a name that not only readers want, and keeps
//     the segment whole.
//  3. From the moment a segment is chosen, every checkpoint lists it as absent, like a condemned segment. If the segment lies at the end of
//     the file, the checkpoint does not list it at all, because the file may be cut there right after the readers have left. Nothing is
//     punched until both valid superblocks are of such checkpoints. So no recovery mistakes a segment with holes for a writable one, nor
//     misses the end of the file. If the readers leave before the punch and the log enters the segment again, recovery learns that from the
//     log.
//  4. Once no reader keeps it, a segment with holes is absent and returns only when the file grows. A segment without holes is free at once.
//  5. Nothing is thinned on a full device: there the space that readers leave must be usable at once, without allocation.
//  6. The header stays. Punched pages that a power cut brings back belong to the life that the header names: pages of an absent segment in
//     which nothing lives, written before either scan start. The next life of the segment has another salt.
//  7. A process that reads the file beside the writer finds zeros, which fail every checksum, and only where a checkpoint was begun after
//     the death of the page. The reader's snapshot is then too old (rule 3 of beside.go).
type thinned struct {
	checkpoint uint64 // newest checkpoint when the segment was chosen
	holes      uint64 // number of pages without space
}

// thinShare is the divisor of the least share of a segment that must be unseen for thinning: 1/16. A smaller share makes the file more
// fragmented, and growth has more holes to fill, for little gain. A larger share leaves dense segments whole: with 1/8, records of 100 bytes
// kept 6 % of what ten readers see.
const thinShare = 16

// deadPages is a stretch of consecutive pages that have died at seq, which the watermark has not passed yet.
type deadPages struct {
	from  Addr
	pages uint32
	seq   uint64
}

// noteDead records the death of pages at seq.
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

// noteSeen decides which dead pages are seen, for every death that the watermark has passed. Afterwards this is decided for all pages of a
// segment whose own death the watermark has passed.
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

// HoldPlace is HoldName for a name that is the address of an image in which a node in memory has cells: that page keeps its space.
func (s *Store) HoldPlace(a Addr) {
	s.HoldName(a)
	s.space.holdPlace(a, 1)
}

// LetPlace undoes HoldPlace.
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

// unseen returns the stretches of pages of a segment whose space nobody needs while readers keep the segment.
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

// thinnable reports whether only readers keep a segment and it is decided which of its pages they see.
func (sp *space) thinnable(n uint32) bool {
	g := &sp.segments[n]
	return n > 0 && len(sp.snapshots) > 0 && g.death <= sp.snapshots[len(sp.snapshots)-1] && sp.held(n) && g.dead && g.written < sp.oldestStart &&
		!sp.runs[0][n] && !sp.runs[1][n]
}

// Thin chooses the segments to thin. The caller makes sure that no checkpoint is under way.
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

// Thinning estimates the bytes that the chosen segments give back within two more checkpoints.
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

// thinNext punches the lowest chosen segment whose two checkpoints are done, and reports whether there was one. The caller holds growing: an
// appender that finds the segment free meanwhile waits for growing before the log enters the segment.
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

// nextThin returns the segment to punch and the stretches of its pages, or nothing. From then on the segment counts as having holes, because
// a failed punch may have made some.
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

// unholed records that a segment has no hole after all.
func (sp *space) unholed(n uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if t, ok := sp.thin[n]; ok {
		sp.holes -= t.holes
		t.holes = 0
		sp.thin[n] = t
	}
}

// forgetPages clears the checked bits of pages that have lost their space. A damaged reference to such a page then fails verification
// instead of reading zeros. The bits that say that names lie there stay set, because readers may still look them up.
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

// left is called when the last reader has left a segment, which may then be rewritten. It reports whether the segment has holes and so is
// absent from now on.
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

// holesOf returns the number of pages of a segment that have no space.
func (sp *space) holesOf(n uint32) int64 { return int64(sp.thin[n].holes) }
