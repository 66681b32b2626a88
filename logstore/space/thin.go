package space

import "flashdbm/logstore/format"

// Thinning gives back the space of pages that are not needed in a segment that only readers keep: the pages that no
// reader sees become holes in the middle of the file. A segment holds pages of all kinds side by side: redo,
// checkpoints, and images that died before the reader began. With ten idle readers on a database with records of
// 100 bytes, readers saw half of the pages in such segments.
//
// Invariants:
//
//  1. A page is seen if some snapshot lies between the birth of its segment and the page's death, where the
//     watermark has passed that death: later readers begin above it (rule 3 of Readers). Pages that were never live
//     served the log alone and are not seen. A segment is punched only after this is decided for every page that
//     died in it. While the watermark has not passed one of the deaths, the segment stays whole.
//  2. A seen page keeps its space until no reader keeps the segment, and so does a place that a node in memory has
//     cells in. A reader that ends while other readers stay gives nothing back. A place that is not held yet counts
//     as a name that not only readers want, and keeps the segment whole.
//  3. From the moment a segment is chosen, every checkpoint lists it as absent, like a condemned segment. If the
//     segment lies at the end of the file, the checkpoint does not list it at all, because the file may be cut
//     there right after the readers have left. Nothing is punched until both valid superblocks are of such
//     checkpoints. So no recovery mistakes a segment with holes for a writable one, nor misses the end of the file.
//     If the readers leave before the punch and the log enters the segment again, recovery learns that from the
//     log.
//  4. Once no reader keeps it, a segment with holes is absent and returns only when the file grows. A segment
//     without holes is free at once.
//  5. Nothing is thinned on a full device: there the space that readers leave must be usable at once, without
//     allocation.
//  6. The header stays. Punched pages that a power cut brings back belong to the life that the header names: pages
//     of an absent segment in which nothing is live, written before either scan start. The next life of the segment
//     has another salt.
//  7. A process that reads the file beside the writer finds zeros, which fail every checksum, and only where a
//     checkpoint was begun after the death of the page. The reader's snapshot is then too old (rule 3 of
//     beside.go).
type thinned struct {
	checkpoint uint64 // newest checkpoint when the segment was chosen
	holes      uint64 // number of pages without space
}

// thinShare is the divisor of the least share of a segment that must be unseen for thinning: 1/16. A smaller share
// makes the file more fragmented, and growth has more holes to fill, for little gain. A larger share leaves dense
// segments whole: with 1/8, records of 100 bytes kept 6 % of what ten readers see.
const thinShare = 16

// unseen returns the stretches of pages of a segment that are not needed while readers keep the segment, and
// their number.
func (sp *Reuse) unseen(n uint32) (runs [][2]uint64, pages uint64) {
	g, first := &sp.segments[n], uint64(n)*sp.segmentPages
	var from uint64
	for o := format.HeaderPage(n) + 1; o <= sp.segmentPages; o++ {
		if o < sp.segmentPages && !g.seenMap.has(o) && sp.readers.places[first+o] == 0 {
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
func (sp *Reuse) thinnable(n uint32) bool {
	g := &sp.segments[n]
	return n > 0 && sp.readers.passed(g.death) && sp.held(n) && g.dead && g.written < sp.log.oldestStart() && !sp.log.inRun(n)
}

// thins reports whether segments are thinned at all.
func (sp *Reuse) thins() bool { return !sp.short && !sp.absent.unpunchable }

// Thin chooses the segments to thin.
func (sp *Reuse) Thin() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if len(sp.readers.snapshots) < 2 || !sp.thins() {
		return
	}
	for n := range sp.whole() {
		if _, ok := sp.thin[n]; ok || !sp.thinnable(n) {
			continue
		}
		if _, pages := sp.unseen(n); pages*thinShare >= sp.segmentPages {
			sp.thin[n] = thinned{checkpoint: sp.log.newest().Number}
		}
	}
}

// Thinning estimates the bytes that the chosen segments give back within two more checkpoints.
func (sp *Reuse) Thinning() (bytes int64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if !sp.thins() {
		return 0
	}
	for n, t := range sp.thin {
		if t.holes == 0 && sp.thinnable(n) {
			_, pages := sp.unseen(n)
			bytes += int64(pages) * format.PageSize
		}
	}
	return bytes
}

// NextThin returns the lowest chosen segment whose two checkpoints are done, and the stretches of its pages that
// are to be punched, or nothing. From then on the segment counts as having holes, because a failed punch may have
// made some.
func (sp *Map) NextThin() (n uint32, runs [][2]uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if !sp.thins() || len(sp.thin) == 0 {
		return 0, nil
	}
	sp.noteSeen()
	oldest := sp.Log.oldestNumber()
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

// Unholed records that a segment has no hole after all.
func (sp *Map) Unholed(n uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if t, ok := sp.thin[n]; ok {
		sp.holes -= t.holes
		t.holes = 0
		sp.thin[n] = t
	}
}

// left is called when the last reader has left a segment, which may then be rewritten. It reports whether the
// segment has holes and so is absent from now on.
func (sp *Reuse) left(n uint32) bool {
	t, ok := sp.thin[n]
	if !ok {
		return false
	}
	delete(sp.thin, n)
	if t.holes == 0 {
		return false
	}
	sp.absent.holes -= t.holes
	sp.segments[n].state = segmentAbsent
	sp.absent.leaving[n] = condemned{checkpoint: t.checkpoint, unsure: true}
	sp.absent.countPunched()
	return true
}

// pagesOf returns the number of pages of a segment that have space.
func (sp *Reuse) pagesOf(n uint32) int64 { return int64(sp.segmentPages - sp.thin[n].holes) }
