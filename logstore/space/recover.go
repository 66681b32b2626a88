package space

import (
	"slices"

	"flashdbm/logstore/format"
)

// Recovery decides about segments that the newest space map does not know, or knows as absent.

// SetPages sets the number of pages of the file before its map is decoded. An interrupted growth may have left part
// of a segment; the file grows there again.
func (sp *Map) SetPages(pages uint64) {
	if pages > sp.segmentPages {
		pages -= pages % sp.segmentPages
	}
	sp.pages = pages
}

// maxUnmapped is the most segments after the last one in the map that count: 128 GiB at the default size, more than
// any file grows from one checkpoint to the next. Each takes 176 bytes of memory, whether the file has space there
// or a hole. With a larger limit a file of a few pages that pretends to be long would take as much memory as it
// likes; with a smaller one a log that went that far would be refused.
const maxUnmapped = 1 << 17

// Adopt takes in the segments that the file has after the last one in the map, and returns the number of the first
// of them. No checkpoint says what they contain; the scan and the caller find what the log after the checkpoint
// put there. Segments that the map calls absent may be punched, and stay absent unless the log has entered them
// since. If the file is longer than maxUnmapped allows, the rest does not count.
func (sp *Map) Adopt() (first uint32) {
	first = uint32(len(sp.segments))
	for first > 0 && sp.segments[first-1].state == segmentAbsent {
		first--
	}
	known := first // after the last segment that is known; segments adopted at an earlier, shorter length do not count
	for known > 0 && sp.segments[known-1].isBlank() {
		known--
	}
	if most := max(uint64(known)+maxUnmapped, uint64(len(sp.segments))); sp.pages/sp.segmentPages > most {
		sp.pages = most * sp.segmentPages
	}
	sp.extendTo(uint32((sp.pages + sp.segmentPages - 1) / sp.segmentPages))
	for n := first; n < sp.whole(); n++ {
		sp.segments[n].state, sp.segments[n].dead = segmentUsed, true
	}
	return first
}

// KeepTail decides about segments from the given one on, which no durable checkpoint knows. have is the number of
// them that may have space on disk. KeepTail keeps segments in which something lies, and as many of the others as
// there is space left for: the lowest, because the log takes these first. The rest becomes absent. KeepTail returns
// the kept segments in stretches of adjacent ones, at most have + fewSegments.
//
// The file does not become shorter here. The previous checkpoint may know segments that the newest does not, and
// its table may name pages in them, which the log after it replaces. A recovery that has to start from that
// checkpoint needs the file to be as long as its map and table say. Absent segments at the end are cut off after
// two checkpoints, as condemned segments are.
func (sp *Map) KeepTail(from uint32, have uint64) (kept [][2]uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	used := func(n uint32) bool {
		g := &sp.segments[n]
		return g.written != 0 || g.live > 0 || g.names > 0 || sp.writes(n)
	}
	spare := int64(have)
	for n := from; n < sp.whole(); n++ {
		if used(n) {
			spare--
		}
	}
	most := have + fewSegments
	for n := from; n < sp.whole(); n++ {
		if !used(n) {
			if spare--; spare < 0 {
				sp.segments[n].state = segmentAbsent
				continue
			}
		}
		if most == 0 {
			continue
		}
		most--
		if k := len(kept); k > 0 && kept[k-1][1] == n {
			kept[k-1][1]++
		} else {
			kept = append(kept, [2]uint32{n, n + 1})
		}
	}
	return kept
}

// fewSegments is a number of segments that may always be allocated again, because a power cut may have taken the
// space of some.
const fewSegments = 64

// Disown takes the pages from the given one on out of use where nothing is in them, because their space cannot be had.
func (sp *Map) Disown(from uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.pages <= sp.segmentPages {
		sp.pages = from
		return
	}
	for n := uint32(from / sp.segmentPages); n < sp.whole(); n++ {
		if g := &sp.segments[n]; g.written == 0 && g.live == 0 && !sp.writes(n) {
			g.state = segmentAbsent
		}
	}
}

// SawPages records that the file has become longer, and returns the length that counts: see Adopt.
func (sp *Map) SawPages(pages uint64) uint64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	all := pages
	if pages > sp.segmentPages {
		pages -= pages % sp.segmentPages
	}
	if pages > sp.pages {
		sp.pages = pages
		sp.Adopt()
	}
	if sp.pages < pages {
		return sp.pages
	}
	return all
}

// CheckRoom makes sure that nothing is live where this process is going to write: after the end of the log in the
// tail, in the successor (free when it was chosen), and in absent segments, which growth fills and checkpoints
// punch. In a damaged or hostile file superblocks and headers may lead into the middle of the log, and the space
// map may contradict itself or the table; then writing would destroy what the tree uses. CheckRoom returns the page
// where that would happen and what is wrong there, or "".
func (sp *Map) CheckRoom() (a Addr, wrong string) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	g, first := &sp.segments[sp.tail], uint64(sp.tail)*sp.segmentPages
	if last := g.lastLive(); g.live > 0 && last >= sp.tailPage {
		return first + last, "the tree uses this page, which lies behind the end of the log"
	}
	n := sp.successor
	if g := &sp.segments[n]; g.live > 0 || g.names > 0 || sp.inRun(n) {
		return uint64(n)*sp.segmentPages + format.HeaderPage(n), "the log is to go on in this segment, which is in use"
	}
	for n := range sp.segments {
		if g := &sp.segments[n]; g.state == segmentAbsent && (g.live > 0 || g.names > 0) {
			return uint64(n) * sp.segmentPages, "the segment is absent in the space map, and in use"
		}
	}
	return 0, ""
}

// Recovered ends recovery: segments that have become reusable are free, and all absent segments within the file
// count as absent since the newest checkpoint.
func (sp *Map) Recovered() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.collect()
	for n := range sp.whole() {
		if sp.segments[n].state == segmentAbsent && n != sp.successor {
			sp.leaving[n] = condemned{checkpoint: sp.newest().Number, unsure: true}
		}
	}
	sp.countPunched()
}

// Checkpointed records a durable checkpoint: segments that were dead in its map may be reused if the other rules hold too.
func (sp *Map) Checkpointed(c Checkpoint) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.checkpoints[c.Number%2] = &c
	for n := range sp.segments {
		g := &sp.segments[n]
		g.dead, g.deadNext = g.deadNext && g.live == 0, false
	}
	sp.collect()
}

// LiveMap returns the live pages of a segment, a bit for each; nil if no page is live.
func (sp *Map) LiveMap(segment uint32) []uint64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if segment >= uint32(len(sp.segments)) {
		return nil
	}
	return slices.Clone(sp.segments[segment].liveMap)
}
