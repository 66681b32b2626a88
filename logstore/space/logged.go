package space

import (
	"fmt"
	"math/bits"

	"flashdbm/logstore/format"
)

// loggedValues are the logged values of a segment: values that stay in the pages of redo records that carried them.
// nil has none.
type loggedValues struct {
	masks  []uint16 // for each page, which of its logged values live
	raw    bitmap   // raw pages that belong to the page of records before them
	values int32    // number of live logged values
	mean   int32    // average bytes of the records of those values
	pages  int32    // number of pages with logged values, raw pages included
}

// isRaw reports whether a page of the segment is a raw page of a page of records.
func (l *loggedValues) isRaw(o uint64) bool { return l != nil && l.raw.has(o) }

// count returns the number of pages with logged values.
func (l *loggedValues) count() int64 {
	if l == nil {
		return 0
	}
	return int64(l.pages)
}

// pagesIn returns which of the 64 pages of word i of the segment's bitmaps have live logged values.
func (l *loggedValues) pagesIn(word uint64) (pages uint64) {
	if l.count() == 0 {
		return 0
	}
	for i, m := range l.masks[word*64 : min((word+1)*64, uint64(len(l.masks)))] {
		if m != 0 {
			pages |= 1 << i
		}
	}
	return pages | l.raw[word]
}

// packed returns how many live pages a segment has, where pages with logged values count only as much as their live
// values take.
func (g *segment) packed() int64 {
	l := g.logged
	if l.count() == 0 {
		return int64(g.live)
	}
	values, pages := PackedSpan(l.mean)
	return int64(g.live-l.pages) + int64(min((l.values*pages+values-1)/values, l.pages))
}

// PackedSpan returns how many values the log puts in a page of records if their records have the given bytes, and
// how many pages of the file the page takes. Cleaning cannot gain what the records leave unused of such a page.
func PackedSpan(bytes int32) (values, pages int32) {
	for {
		pages++
		values = min(max((pages*format.PageSize-format.MuxSize)/max(bytes, 1), 1), format.MaxLogged)
		if pages == format.MaxSpan || (format.MaxLogged-values)*pages < values {
			return values, pages
		}
	}
}

// BearLogged records that logged values of the page at a, which takes span pages of the file, live, and that no
// reader below birth reaches them. bytes is the total length of their records, or 0 if that is not known.
func (sp *Usage) BearLogged(a Addr, span int, mask uint16, bytes int, birth uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	g, o := sp.at(a)
	g.birth = min(g.birth, birth)
	if g.logged == nil {
		g.logged = &loggedValues{masks: make([]uint16, sp.segmentPages), raw: make(bitmap, sp.words)}
	}
	l, live := g.logged, sp.within(&g.liveMap)
	if bytes == 0 { // recovery: assume that the records fill the page
		bytes = span*format.PageSize - format.MuxSize
	}
	defer sp.repacked(g, g.packed())
	mean := int32(bytes / bits.OnesCount16(mask))
	if l.values > 0 {
		mean = (mean + 7*l.mean) / 8
	} else {
		sp.logged++
	}
	l.mean = mean
	l.values += int32(bits.OnesCount16(mask &^ l.masks[o]))
	for i := o; i < o+uint64(span) && (i == o || l.masks[i] == 0); i++ { // a page with values of its own contradicts the span: a damaged space map
		if l.masks[i] == 0 && !l.isRaw(i) {
			l.pages++
			sp.loggedPages++
			if !live.has(i) {
				live.set(i)
				sp.count(g, 1)
			}
		}
		if i > o {
			l.raw.set(i)
		}
	}
	l.raw.unset(o)
	l.masks[o] |= mask
}

// KillLogged records that no snapshot from seq on sees some logged values of the page at a.
func (sp *Usage) KillLogged(a Addr, mask uint16, seq uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	g, o := sp.at(a)
	l := g.logged
	if l == nil {
		return
	}
	died := l.masks[o] & mask
	if died == 0 {
		return
	}
	defer sp.repacked(g, g.packed())
	l.values -= int32(bits.OnesCount16(died))
	if l.values == 0 {
		sp.logged--
	}
	l.masks[o] &^= mask
	g.death = max(g.death, seq)
	if l.masks[o] != 0 {
		return
	}
	for i := o; i == o || i < sp.segmentPages && l.isRaw(i); i++ {
		l.raw.unset(i)
		l.pages--
		sp.loggedPages--
		if g.nodeMap.has(i) { // a damaged space map contradicts itself: see Kill
			continue
		}
		if g.noteDying(seq, sp.words); g.diedMap != nil {
			g.diedMap.set(i)
		}
		g.liveMap.unset(i)
		sp.count(g, -1)
		sp.readers.noteDead(a+(i-o), 1, seq)
	}
}

// repacked replaces what a segment counts as when its values are packed; before is what it counted as.
func (sp *Usage) repacked(g *segment, before int64) { sp.packedPages += g.packed() - before }

// LoggedIn returns the live logged values of a segment: pages and masks.
func (sp *Usage) LoggedIn(segment uint32) (pages []Addr, masks []uint16) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	l := sp.segments[segment].logged
	if l == nil {
		return nil, nil
	}
	for o, m := range l.masks {
		if m != 0 {
			pages, masks = append(pages, uint64(segment)*sp.segmentPages+uint64(o)), append(masks, m)
		}
	}
	return pages, masks
}

// checkLogged compares the counters of segment n with its masks.
func (g *segment) checkLogged(n int) error {
	l := g.logged
	if l == nil {
		return nil
	}
	var pages, values int
	for o, m := range l.masks {
		raw := l.isRaw(uint64(o))
		if m == 0 && !raw {
			continue
		}
		pages++
		values += bits.OnesCount16(m)
		if !g.liveMap.has(uint64(o)) {
			return fmt.Errorf("flashdbm: segment %d has logged values in a dead page", n)
		}
		if raw && (m != 0 || o == 0 || l.masks[o-1] == 0 && !l.isRaw(uint64(o-1))) {
			return fmt.Errorf("flashdbm: segment %d has a raw page of records that follows none, or begins one", n)
		}
	}
	if pages != int(l.pages) || values != int(l.values) {
		return fmt.Errorf("flashdbm: segment %d counts %d logged values in %d pages, its map %d in %d", n, l.values, l.pages, values, pages)
	}
	return nil
}
