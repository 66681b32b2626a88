package space

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"flashdbm/logstore/format"
)

const (
	tableEntrySize = 16 // bytes of a name and its address in a checkpoint
	EntrySize      = 26 // bytes of a segment in a checkpoint, without its bitmaps
)

const (
	mapDead    = 0 // form of a map entry: no page is live
	mapPartial = 1 // form: the bitmap of live pages follows
	mapLogged  = 2 // form: as mapPartial, then the masks of the pages, the mean length of their records, and the bitmap of raw pages
)

// An Entry is what a space map on disk says of a segment:
//
//	state u8 | form u8 | salt u64 | header sequence u64 | last group u64 | with mapPartial the live bitmap, a bit per page, in 8-byte words |
//	with mapLogged after it the masks of all pages, u16 each, the mean length of the values' records, u16, and the bitmap of raw pages, a
//	bit per page, in 8-byte words
//
// The space map is the number of segments, u32, and their entries.
type Entry struct {
	State    uint8 // 0: absent; 1: free; 2: in use; 3: private, of a transaction that had not committed
	Salt     uint64
	Sequence uint64
	Written  uint64   // newest group with a page in the segment, or that lists an extent in it
	Live     []uint64 // a bit for each live page; nil: none
	Masks    []uint16 // for each page, a bit for each live logged value; nil: none
	Mean     uint16   // mean length in bytes of the records of those values
	Raw      []uint64 // a bit for each raw page of a page of records; only with Masks
}

// IsLive reports whether a page of the segment is live.
func (e *Entry) IsLive(page uint64) bool {
	return page/64 < uint64(len(e.Live)) && bitmap(e.Live).has(page)
}

// Append appends the entry as it is on disk.
func (e *Entry) Append(b []byte) []byte {
	le := binary.LittleEndian
	form := byte(mapDead)
	if e.Masks != nil {
		form = mapLogged
	} else if e.Live != nil {
		form = mapPartial
	}
	b = append(b, e.State, form)
	b = le.AppendUint64(b, e.Salt)
	b = le.AppendUint64(b, e.Sequence)
	b = le.AppendUint64(b, e.Written)
	for _, w := range e.Live {
		b = le.AppendUint64(b, w)
	}
	if form == mapLogged {
		for _, m := range e.Masks {
			b = le.AppendUint16(b, m)
		}
		b = le.AppendUint16(b, e.Mean)
		for _, w := range e.Raw {
			b = le.AppendUint64(b, w)
		}
	}
	return b
}

// entries decodes a space map of a file with segments of segmentPages pages. It calls size with the number of
// segments, and each with the entries.
func entries(b []byte, segmentPages uint64, size func(segments uint32) error, each func(n uint32, e Entry) error) error {
	le := binary.LittleEndian
	short := fmt.Errorf("%w: space map cut short", format.ErrCorrupt)
	if len(b) < 4 {
		return short
	}
	count, words := le.Uint32(b), (segmentPages+63)/64
	b = b[4:]
	if uint64(count) > uint64(len(b))/EntrySize {
		return fmt.Errorf("%w: space map of %d segments", format.ErrCorrupt, count)
	}
	if err := size(count); err != nil {
		return err
	}
	for n := range count {
		if len(b) < EntrySize {
			return short
		}
		e := Entry{State: b[0], Salt: le.Uint64(b[2:]), Sequence: le.Uint64(b[10:]), Written: le.Uint64(b[18:])}
		form := b[1]
		b = b[EntrySize:]
		if segmentState(e.State) >= segmentStates || form > mapLogged {
			return fmt.Errorf("%w: space map, segment %d", format.ErrCorrupt, n)
		}
		if form != mapDead {
			if uint64(len(b)) < words*8 {
				return short
			}
			e.Live, b = format.U64s(b, words), b[words*8:]
		}
		if form == mapLogged {
			if uint64(len(b)) < segmentPages*2+2+words*8 {
				return short
			}
			e.Masks = make([]uint16, segmentPages)
			for i := range e.Masks {
				e.Masks[i] = le.Uint16(b[i*2:])
			}
			b = b[segmentPages*2:]
			e.Mean, e.Raw, b = le.Uint16(b), format.U64s(b[2:], words), b[2+words*8:]
		}
		if err := each(n, e); err != nil {
			return err
		}
	}
	if len(b) != 0 {
		return fmt.Errorf("%w: bytes after the space map", format.ErrCorrupt)
	}
	return nil
}

// DecodeEntries decodes a space map of a file with segments of segmentPages pages.
func DecodeEntries(b []byte, segmentPages uint32) (all []Entry, err error) {
	err = entries(b, uint64(segmentPages), func(segments uint32) error {
		all = make([]Entry, 0, segments)
		return nil
	}, func(_ uint32, e Entry) error {
		all = append(all, e)
		return nil
	})
	return all, err
}

// Encode appends the space map. It also records which segments are dead as of this checkpoint.
func (sp *Map) Encode(b []byte) []byte {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	count := sp.present()
	b = binary.LittleEndian.AppendUint32(b, count)
	for n := range sp.segments {
		sp.segments[n].deadNext = sp.segments[n].live == 0
	}
	for n := range count {
		g := &sp.segments[n]
		e := Entry{State: uint8(sp.stated(n)), Salt: g.salt, Sequence: g.sequence, Written: g.written}
		if g.live > 0 {
			e.Live = g.liveMap
			if l := g.logged; l != nil && l.values > 0 {
				e.Masks, e.Mean, e.Raw = l.masks, uint16(l.mean), l.raw
			}
		}
		b = e.Append(b)
	}
	return b
}

// stated returns the state of a segment that a checkpoint records: a segment that is being thinned is absent.
func (sp *Reuse) stated(n uint32) segmentState {
	if _, ok := sp.thin[n]; ok {
		return segmentAbsent
	}
	return sp.segments[n].state
}

// present returns the number of segments that a checkpoint records, up to the last one that is not absent, or the
// log's successor. A file that is shorter than its map says is damaged, and absent segments at its end are cut off
// as soon as two checkpoints have recorded them so.
func (sp *Reuse) present() uint32 {
	n := uint32(len(sp.segments))
	for n > max(sp.log.tail, sp.log.successor)+1 && sp.stated(n-1) == segmentAbsent {
		n--
	}
	return n
}

// Decode reads a space map into a fresh map. Segments that were free or private before a crash become used and
// dead, and the reuse rules decide again; that frees the segments of transactions that never committed.
func (sp *Map) Decode(b []byte) error {
	return entries(b, sp.segmentPages, func(segments uint32) error {
		if uint64(segments) > sp.pages/sp.segmentPages+2 {
			return fmt.Errorf("%w: space map of %d segments", format.ErrCorrupt, segments)
		}
		sp.extendTo(segments)
		return nil
	}, sp.decodeEntry)
}

func (sp *Map) decodeEntry(n uint32, e Entry) error {
	g := &sp.segments[n]
	*g = segment{state: segmentState(e.State), salt: e.Salt, sequence: e.Sequence, written: e.Written, liveMap: e.Live}
	if last := g.lastLive(); g.liveMap != nil && (last >= sp.segmentPages || uint64(n)*sp.segmentPages+last >= sp.pages) {
		return fmt.Errorf("%w: page %d is live and not in the file", format.ErrCorrupt, uint64(n)*sp.segmentPages+last)
	}
	for _, w := range g.liveMap {
		sp.count(g, bits.OnesCount64(w))
	}
	if e.Masks != nil {
		l := &loggedValues{masks: e.Masks, raw: e.Raw, mean: int32(e.Mean)}
		g.logged = l
		for i, m := range l.masks {
			l.values += int32(bits.OnesCount16(m))
			if m != 0 || l.isRaw(uint64(i)) {
				l.pages++
			}
		}
		if err := g.checkLogged(int(n)); err != nil {
			return fmt.Errorf("%w: space map: %w", format.ErrCorrupt, err)
		}
		sp.loggedPages += int64(l.pages)
		if l.values > 0 {
			sp.logged++
		}
	}
	sp.packedPages += g.packed()
	g.dead = g.live == 0
	if g.state != segmentAbsent {
		g.state = segmentUsed
	}
	return nil
}
