package logstore

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

const (
	tableEntrySize = 16 // bytes of a name and its address in a checkpoint
	mapEntrySize   = 26 // bytes of a segment in a checkpoint, without its bitmaps
)

const (
	mapDead    = 0 // form of a map entry: no page lives
	mapPartial = 1 // form: a bitmap of the live pages follows
	mapLogged  = 2 // form: the same, then the masks of the pages, the mean length of their records, and a bitmap of the raw pages
)

// encode appends the space map: segments u32 | per segment: state u8 | form u8 | salt u64 | header sequence u64 | last group u64 |
// with mapPartial the live bitmap, a bit per page, in 8-byte words | with mapLogged behind it the masks of all pages, u16 each, the mean
// length of the values' records, u16, and the bitmap of raw pages, a bit per page, in 8-byte words. Segments that are being thinned are
// written as absent. encode also records which segments are dead as of this checkpoint.
func (sp *space) encode(b []byte) []byte {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	le := binary.LittleEndian
	count := sp.present()
	b = le.AppendUint32(b, count)
	for n := range sp.segments {
		sp.segments[n].deadNext = sp.segments[n].live == 0
	}
	for n := range count {
		g := &sp.segments[n]
		form := byte(mapDead)
		if g.live > 0 {
			form = mapPartial
			if g.values > 0 {
				form = mapLogged
			}
		}
		b = append(b, byte(sp.stated(n)), form)
		b = le.AppendUint64(b, g.salt)
		b = le.AppendUint64(b, g.sequence)
		b = le.AppendUint64(b, g.written)
		if form != mapDead {
			for _, w := range g.liveMap {
				b = le.AppendUint64(b, w)
			}
		}
		if form == mapLogged {
			for _, m := range g.masks {
				b = le.AppendUint16(b, m)
			}
			b = le.AppendUint16(b, uint16(g.valueBytes))
			for _, w := range g.raw {
				b = le.AppendUint64(b, w)
			}
		}
	}
	return b
}

// stated returns the state of a segment that a checkpoint records: a segment that is being thinned is absent.
func (sp *space) stated(n uint32) segmentState {
	if _, ok := sp.thin[n]; ok {
		return segmentAbsent
	}
	return sp.segments[n].state
}

// present returns the number of segments that a checkpoint records, up to the last one that is not absent, or the log's successor. A file that
// is shorter than its map says is damaged, and absent segments at its end are cut off as soon as two checkpoints have recorded them so.
func (sp *space) present() uint32 {
	n := uint32(len(sp.segments))
	for n > max(sp.tail, sp.successor)+1 && sp.stated(n-1) == segmentAbsent {
		n--
	}
	return n
}

// decode reads a space map into a fresh space, whose pages field is set. Segments that were free or private before a crash become used and
// dead, and the reuse rules decide anew; that frees the segments of transactions that never committed.
func (sp *space) decode(b []byte) error {
	le := binary.LittleEndian
	short := fmt.Errorf("%w: space map cut short", ErrCorrupt)
	if len(b) < 4 {
		return short
	}
	count := le.Uint32(b)
	b = b[4:]
	if uint64(count) > uint64(len(b))/mapEntrySize || uint64(count) > sp.pages/sp.segmentPages+2 {
		return fmt.Errorf("%w: space map of %d segments", ErrCorrupt, count)
	}
	sp.extendTo(count)
	for n := range sp.segments {
		if len(b) < mapEntrySize {
			return short
		}
		g := &sp.segments[n]
		*g = segment{state: segmentState(b[0]), salt: le.Uint64(b[2:]), sequence: le.Uint64(b[10:]), written: le.Uint64(b[18:])}
		form := b[1]
		b = b[mapEntrySize:]
		if g.state >= segmentStates || form > mapLogged {
			return fmt.Errorf("%w: space map, segment %d", ErrCorrupt, n)
		}
		if form != mapDead {
			if uint64(len(b)) < sp.words*8 {
				return short
			}
			g.liveMap = make([]uint64, sp.words)
			for i := range g.liveMap {
				g.liveMap[i] = le.Uint64(b[i*8:])
			}
			b = b[sp.words*8:]
			if last := sp.lastLive(uint32(n)); last >= sp.segmentPages || uint64(n)*sp.segmentPages+last >= sp.pages {
				return fmt.Errorf("%w: page %d is live and not in the file", ErrCorrupt, uint64(n)*sp.segmentPages+last)
			}
		}
		if form == mapLogged {
			if uint64(len(b)) < sp.segmentPages*2+2+sp.words*8 {
				return short
			}
			g.masks, g.raw = make([]uint16, sp.segmentPages), make([]uint64, sp.words)
			raw := b[sp.segmentPages*2+2:]
			for i := range g.raw {
				g.raw[i] = le.Uint64(raw[i*8:])
			}
			for i := range g.masks {
				g.masks[i] = le.Uint16(b[i*2:])
				g.values += int32(bits.OnesCount16(g.masks[i]))
				if g.masks[i] != 0 || g.isRaw(uint64(i)) {
					g.loggedPages++
				}
			}
			if err := g.checkLogged(n); err != nil {
				return fmt.Errorf("%w: space map: %w", ErrCorrupt, err)
			}
			g.valueBytes = int32(le.Uint16(b[sp.segmentPages*2:]))
			sp.loggedPages += int64(g.loggedPages)
			if g.values > 0 {
				sp.logged++
			}
			b = raw[sp.words*8:]
		}
		sp.recount(uint32(n))
		sp.packedPages += g.effective()
		g.dead = g.live == 0
		if g.state != segmentAbsent {
			g.state = segmentUsed
		}
	}
	if len(b) != 0 {
		return fmt.Errorf("%w: bytes behind the space map", ErrCorrupt)
	}
	return nil
}

// recount sets a segment's live count from its bitmap.
func (sp *space) recount(n uint32) {
	g := &sp.segments[n]
	sp.livePages -= int64(g.live)
	g.live = 0
	for _, w := range g.liveMap {
		g.live += int32(bits.OnesCount64(w))
	}
	sp.livePages += int64(g.live)
}

// lastLive returns the index of the last live page of a segment, or 0 if none lives.
func (sp *space) lastLive(n uint32) uint64 {
	m := sp.segments[n].liveMap
	for i := uint64(len(m)); i > 0; i-- {
		if w := m[i-1]; w != 0 {
			return i*64 - 1 - uint64(bits.LeadingZeros64(w))
		}
	}
	return 0
}

// maxUnmapped is the most segments behind the last one in the map that count: 128 GiB at the default size, more than any file grows from one
// checkpoint to the next. Each takes 232 bytes of memory, whether the file has space there or a hole. With a larger limit a file of a few
// pages that pretends to be long would take as much memory as it likes; with a smaller one a log that went that far would be refused.
const maxUnmapped = 1 << 17

// adopt takes in the segments that the file has behind the last one in the map, and returns the number of the first of them. No checkpoint has
// vouched for their content; the scan and the caller find what the log after the checkpoint put there. Segments that the map calls absent may
// be punched, and stay absent unless the log has entered them since. If the file is longer than maxUnmapped allows, the rest does not count.
func (sp *space) adopt() (first uint32) {
	first = uint32(len(sp.segments))
	for first > 0 && sp.segments[first-1].state == segmentAbsent {
		first--
	}
	known := first // behind the last segment that is known; segments adopted at an earlier, shorter length do not count
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

// isBlank reports whether the segment holds nothing, and held nothing, as far as is known.
func (g *segment) isBlank() bool { return g.written == 0 && g.live == 0 && g.names == 0 }

// settle decides about segments from the given one on, which no durable checkpoint knows. have is the number of them that may have space on
// disk. settle keeps segments in which something lies, and as many of the others as there is space left for: the lowest, because the log
// takes these first. The rest becomes absent. settle returns the kept segments in stretches of adjacent ones, at most have + fewSegments.
//
// The file does not become shorter here. The previous checkpoint may know segments that the newest does not, and its table may name pages in
// them, which the log behind it replaces. A recovery that has to start from that checkpoint needs the file to be as long as its map and table
// say. Absent segments at the end are cut off after two checkpoints, as condemned segments are.
func (sp *space) settle(from uint32, have uint64) (kept [][2]uint32) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	used := func(n uint32) bool {
		g := &sp.segments[n]
		return g.written != 0 || g.live > 0 || g.names > 0 || n == sp.tail || n == sp.successor
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

// fewSegments is a number of segments that may always be allocated again, because a power cut may have taken the space of some.
const fewSegments = 64

// disown takes the pages from the given one on out of use where nothing is in them, because their space cannot be had.
func (sp *space) disown(from uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.pages <= sp.segmentPages {
		sp.pages = from
		return
	}
	for n := uint32(from / sp.segmentPages); n < sp.whole(); n++ {
		if g := &sp.segments[n]; g.written == 0 && g.live == 0 && n != sp.tail && n != sp.successor {
			g.state = segmentAbsent
		}
	}
}
