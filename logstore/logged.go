package logstore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"sync/atomic"
)

// A logged value stays in the page of the record group that carried it: a leaf refers to it by its place.
//
//	place: address of the page << 18 | offset in the page << 4 | ordinal of the value among the logged values of the page
//
// Such a page is a span of up to MaxSpan pages of the file, one behind the other in a segment: the first has the mux area, the others are raw,
// and the mux area has their checksum. It lives as long as one of its values does. Which do is a mask of 16 bits.
//
//  1. A record with a logged value lies in one span, and a span with such values begins with a record: the value is one slice, and the cleaner
//     finds it and its key in the span alone.
//  2. A birth or a death may be noted again by recovery, and counts once. A count of values would not do.
//  3. A value is born with its group. Before, who refers to it is in memory only: no flush is written before the group that has its values.
//  4. The key of a value lies in front of it in its page, and every read compares it. So where a leaf and the space map contradict each
//     other, and the page was written again, no value of another key is the answer.
//  5. A page that no sync has covered is read from memory, where it stays until then: see unsynced.

// Place says where a logged value is.
type Place uint64

// PlaceOf returns the place of a value that begins at byte at of the body of the page at a.
func PlaceOf(a Addr, at, ordinal int) Place {
	return Place(a<<18 | uint64(MuxSize+at)<<4 | uint64(ordinal))
}

const (
	MaxLogged   = 16  // logged values that a page of records may have
	LeastLogged = 256 // bytes of the shortest logged value: so a page of the file has no more of them than a mask has bits
	MaxSpan     = 4   // pages of the file that a page of records takes at most
)

func (p Place) Addr() Addr   { return Addr(p >> 18) }
func (p Place) offset() int  { return int(p >> 4 & (MaxSpan*PageSize - 1)) }
func (p Place) Mask() uint16 { return 1 << (p & 15) }

// The mux area of a page of records has in the place of a name what is to be known of the span:
//
//	logged values u8 | raw pages u8 | 0 u16 | checksum of the raw pages u32
func recordName(values uint8, raw []byte) PageID {
	name := PageID(values)
	if len(raw) > 0 {
		name |= PageID(len(raw)/PageSize)<<8 | PageID(crc32.Checksum(raw, castagnoli))<<32
	}
	return name
}

func recordValues(name PageID) int { return int(uint8(name)) }
func rawCRC(name PageID) uint32    { return uint32(name >> 32) }

// spanOf returns how many pages the page of records at a takes, by its name; 0 if that cannot be.
func (s *Store) spanOf(a Addr, name PageID) uint64 {
	raw := uint64(uint8(name >> 8))
	switch {
	case name>>16&0xFFFF != 0 || recordValues(name) > MaxLogged || raw >= MaxSpan:
		return 0
	case raw == 0:
		if rawCRC(name) != 0 {
			return 0
		}
		return 1
	case recordValues(name) == 0 || s.segmentOf(a+raw) != s.segmentOf(a) || !s.InFile(a, int64(raw+1)):
		return 0
	}
	return raw + 1
}

// verifySpan checks the raw pages of the page of records that b, at a, begins with, and returns the whole. The first page was verified before.
func (s *Store) verifySpan(a Addr, b []byte) ([]byte, error) {
	name := getMux(b).name
	n := s.spanOf(a, name) * PageSize
	if n == 0 || n > uint64(len(b)) {
		return nil, errors.New("length of a page of records")
	}
	if n > PageSize && crc32.Checksum(b[PageSize:n], castagnoli) != rawCRC(name) {
		return nil, errors.New("checksum of a page of records")
	}
	return b[:n:n], nil
}

// tailPages has those of 256 pages that no sync has covered, as they are in memory. It goes with the last of them.
type tailPages struct {
	pages [1 << 8]atomic.Pointer[[MaxSpan * PageSize]byte] // nothing is behind a page's end that may be looked at
	kept  int                                              // guarded by unsynced.mu
}

// Record appends a redo record with a logged value to the stream of a record group, in one page: head, and value behind it. The value can
// be read from now on. It returns the value's place, and how many pages of the file its page takes by now.
func (g *Group) Record(head, value []byte) (place Place, span int) {
	if g.skind == KindRecord && len(g.stream) > 0 && (g.split || g.pages[g.filling].values == MaxLogged) {
		g.stream = nil
	}
	if n := len(head) + len(value); n > len(g.stream) && !g.extend() {
		g.endPage()
	}
	g.Write(KindRecord, head)
	if g.split || len(g.stream) < len(value) {
		panic("logstore: a record that is split")
	}
	p := &g.pages[g.filling]
	at := p.span()*PageSize - len(g.stream)
	place = Place(p.addr<<18 | uint64(at)<<4 | uint64(p.values))
	g.stream = g.stream[copy(g.stream, value):]
	if p.values++; p.values > MaxLogged {
		panic("logstore: too many logged values in a page")
	}
	if p.values == 1 {
		g.s.keepTail(p.addr, (*[MaxSpan * PageSize]byte)(p.buf[:MaxSpan*PageSize]))
	}
	return place, p.span()
}

// extend adds a page of the file to the page of records that the stream is in, if that has logged values, the next page of the file is to be
// had, and as many values can still come to it as its pages have on average: with fewer it would end emptier than it is.
func (g *Group) extend() bool {
	t := &g.s.tail
	if g.skind != KindRecord || len(g.stream) == 0 || g.filling != len(g.pages)-1 {
		return false
	}
	p := &g.pages[g.filling]
	span := p.span()
	if p.values == 0 || span == MaxSpan || (MaxLogged-int(p.values))*span < int(p.values) || t.page == uint64(g.s.segmentPages) {
		return false
	}
	t.page++
	p.rawPages++
	g.records = g.records[PageSize:]
	g.stream = p.buf[span*PageSize-len(g.stream) : (span+1)*PageSize : (span+1)*PageSize]
	return true
}

// Append appends a redo record without a logged value. It goes on in the next page if it is long; a short one has that page to itself if it
// does not fit: a page that begins amid a record can have no logged value, so each that comes behind such a page leaves the rest of it free.
func (g *Group) Append(record []byte) {
	if n := len(record); n > len(g.stream) && n <= shortRecord && g.s.LogsValues() {
		g.endPage()
	}
	g.Write(KindRecord, record)
}

// shortRecord is the length of the longest redo record that is not split. Pages that such records leave are three quarters full at least,
// which is what commits reserve.
const shortRecord = BodySize / 4

// endPage has the next record begin a page.
func (g *Group) endPage() {
	if g.skind == KindRecord {
		g.stream = nil
	}
}

func (s *Store) keepTail(a Addr, buf *[MaxSpan * PageSize]byte) {
	c, o := s.chunkOf(a)
	if c == nil {
		panic("logstore: a logged value beyond the mapping")
	}
	b := c.sets()
	b.unsynced.set(o)
	s.unsynced.mu.Lock()
	defer s.unsynced.mu.Unlock()
	t := b.tail[o>>8].Load()
	if t == nil {
		t = new(tailPages)
		b.tail[o>>8].Store(t)
	}
	t.pages[o&255].Store(buf)
	t.kept++
}

// UnsyncedBytes returns the bytes of pages with logged values that are written and kept in memory until a sync.
func (s *Store) UnsyncedBytes() int64 { return s.unsynced.records.Load() * PageSize }

// Logged returns a logged value of n bytes, verified at the first touch of its page; its key must lie in front of it. The slice is read-only.
// It is of the mapping, and lives as Page's does; or of the page as it is in memory, where no sync has covered it. Any goroutine; no lock and
// no allocation after that.
func (s *Store) Logged(place Place, key []byte, n int) ([]byte, error) {
	a, at := place.Addr(), place.offset()
	if at < MuxSize+len(key) || n <= 0 || at+n > MaxSpan*PageSize {
		return nil, s.pageError(a, "a value of %d bytes at byte %d", n, at)
	}
	var p []byte
	if c, o := s.chunkOf(a); c != nil {
		last := o + uint64(at+n-1)/PageSize
		if b := c.bits.Load(); b != nil && last < uint64(len(c.data))/PageSize && b.record.has(o) && b.record.has(last) {
			p = c.data[o*PageSize : (last+1)*PageSize]
		}
	}
	if p == nil {
		var err error
		if p, _, err = s.recordPage(a); err != nil {
			return nil, err
		}
		if at+n > len(p) {
			return nil, s.pageError(a, "a value of %d bytes at byte %d of %d", n, at, len(p))
		}
	}
	if string(p[at-len(key):at]) != string(key) {
		return nil, s.pageError(a, "at byte %d is the value of another key", at)
	}
	return p[at : at+n : at+n], nil
}

// recordPage returns a page of redo records, the raw pages with it. inMemory: it is not synced, and perhaps not written; only what was returned
// of it by place may be looked at, and what is behind its end is there too. Who finds neither it nor the record bit may verify the page: at a sync the bit is set before the page in memory is forgotten.
func (s *Store) recordPage(a Addr) (p []byte, inMemory bool, err error) {
	c, o := s.chunkOf(a)
	if c != nil {
		if b := c.bits.Load(); b != nil {
			if t := b.tail[o>>8].Load(); t != nil {
				if p := t.pages[o&255].Load(); p != nil {
					return p[:], true, nil
				}
			}
			if b.record.has(o) {
				if n := s.spanOf(a, getMux(c.page(o)).name); n > 0 { // 0: it is a raw one
					return c.data[o*PageSize : (o+n)*PageSize : (o+n)*PageSize], false, nil
				}
			}
		}
	}
	p, err = s.verifyPage(a, KindRecord)
	return p, false, err
}

// Ahead fetches the beginning of a logged value, which Logged is going to return: where several are needed, memory answers them together.
//
//go:noinline
func (s *Store) Ahead(place Place) (sum byte) {
	a, at := place.Addr(), place.offset()
	if c, o := s.chunkOf(a); c != nil {
		if b := c.bits.Load(); b != nil && b.record.has(o) {
			return c.data[min(o*PageSize+uint64(at), uint64(len(c.data)-1))]
		}
	}
	return 0
}

// BearLogged notes that logged values of the page at a, which takes span pages of the file, live, and that no reader below birth comes to
// them. bytes is the length of their records together, 0 if it is not known.
func (s *Store) BearLogged(a Addr, span int, mask uint16, bytes int, birth uint64) {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	g := &sp.segments[a/sp.segmentPages]
	o := a % sp.segmentPages
	g.birth = min(g.birth, birth)
	if g.masks == nil {
		g.masks, g.raw = make([]uint16, sp.segmentPages), make([]uint64, sp.words)
	}
	if g.liveMap == nil {
		g.liveMap = make([]uint64, sp.words)
	}
	if bytes == 0 { // at recovery: as if they filled the page
		bytes = span*PageSize - MuxSize
	}
	defer sp.repacked(g, g.effective())
	each := int32(bytes / bits.OnesCount16(mask))
	if g.values > 0 {
		each = (each + 7*g.valueBytes) / 8
	} else {
		sp.logged++
	}
	g.valueBytes = each
	g.values += int32(bits.OnesCount16(mask &^ g.masks[o]))
	for i := o; i < o+uint64(span) && (i == o || g.masks[i] == 0); i++ { // else a contradiction in a damaged space map
		if g.masks[i] == 0 && !g.isRaw(i) {
			g.loggedPages++
			sp.loggedPages++
			if g.liveMap[i/64]>>(i%64)&1 == 0 {
				g.liveMap[i/64] |= 1 << (i % 64)
				g.live++
				sp.livePages++
			}
		}
		if i > o {
			g.raw[i/64] |= 1 << (i % 64)
		}
	}
	g.raw[o/64] &^= 1 << (o % 64)
	g.masks[o] |= mask
}

// isRaw reports whether a page of the segment is a raw one of a page of records.
func (g *segment) isRaw(o uint64) bool { return g.raw != nil && g.raw[o/64]>>(o%64)&1 != 0 }

// KillLogged notes that from seq on no new snapshot sees some logged values of the page at a.
func (s *Store) KillLogged(a Addr, mask uint16, seq uint64) {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	g := &sp.segments[a/sp.segmentPages]
	if g.masks == nil {
		return
	}
	o := a % sp.segmentPages
	died := g.masks[o] & mask
	if died == 0 {
		return
	}
	defer sp.repacked(g, g.effective())
	g.values -= int32(bits.OnesCount16(died))
	if g.values == 0 {
		sp.logged--
	}
	g.masks[o] &^= mask
	g.death = max(g.death, seq)
	if g.masks[o] != 0 {
		return
	}
	for i := o; i == o || i < sp.segmentPages && g.isRaw(i); i++ {
		g.raw[i/64] &^= 1 << (i % 64)
		g.loggedPages--
		sp.loggedPages--
		if g.nodeMap != nil && g.nodeMap[i/64]>>(i%64)&1 != 0 { // a contradiction in a damaged space map: see Kill
			continue
		}
		if g.noteDying(seq, sp.words); g.diedMap != nil {
			g.diedMap[i/64] |= 1 << (i % 64)
		}
		g.liveMap[i/64] &^= 1 << (i % 64)
		g.live--
		sp.livePages--
		sp.noteDead(a+(i-o), 1, seq)
	}
}

// checkLogged compares the counters of segment n with its masks.
func (g *segment) checkLogged(n int) error {
	var pages, values int
	for o, m := range g.masks {
		raw := g.isRaw(uint64(o))
		if m == 0 && !raw {
			continue
		}
		pages++
		values += bits.OnesCount16(m)
		if g.liveMap[o/64]>>(o%64)&1 == 0 {
			return fmt.Errorf("flashdbm: segment %d has logged values in a dead page", n)
		}
		if raw && (m != 0 || o == 0 || g.masks[o-1] == 0 && !g.isRaw(uint64(o-1))) {
			return fmt.Errorf("flashdbm: segment %d has a raw page of records that follows none, or begins one", n)
		}
	}
	if pages != int(g.loggedPages) || values != int(g.values) {
		return fmt.Errorf("flashdbm: segment %d counts %d logged values in %d pages, its map %d in %d", n, g.values, g.loggedPages, values, pages)
	}
	return nil
}

// repacked counts what a segment takes packed, which took so much before.
func (sp *space) repacked(g *segment, before int64) { sp.packedPages += g.effective() - before }

// loggedIn returns which of the 64 pages of a word of the segment's map have logged values that live.
func (g *segment) loggedIn(word uint64) (pages uint64) {
	if g.loggedPages == 0 {
		return 0
	}
	for i, m := range g.masks[word*64 : min((word+1)*64, uint64(len(g.masks)))] {
		if m != 0 {
			pages |= 1 << i
		}
	}
	return pages | g.raw[word]
}

// effective returns what lives in a segment, in pages: of pages with logged values as much as those take that live.
func (g *segment) effective() int64 {
	if g.loggedPages == 0 {
		return int64(g.live)
	}
	values, pages := packedSpan(g.valueBytes)
	return int64(g.live-g.loggedPages) + int64(min((g.values*pages+values-1)/values, g.loggedPages))
}

// packedSpan returns how many values whose records have so many bytes Group.Record has in a page, and how many pages of the file that takes:
// what their records leave of it no cleaning would gain.
func packedSpan(bytes int32) (values, pages int32) {
	for {
		pages++
		values = min(max((pages*PageSize-MuxSize)/max(bytes, 1), 1), MaxLogged)
		if pages == MaxSpan || (MaxLogged-values)*pages < values {
			return values, pages
		}
	}
}

// LoggedIn returns the live logged values of a segment: pages and masks.
func (s *Store) LoggedIn(segment uint32) (pages []Addr, masks []uint16) {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	g := &sp.segments[segment]
	for o, m := range g.masks {
		if m != 0 {
			pages, masks = append(pages, s.firstPage(segment)+uint64(o)), append(masks, m)
		}
	}
	return pages, masks
}

// RecordPage returns the body of a page of records that a sync has covered.
func (s *Store) RecordPage(a Addr) ([]byte, error) {
	p, inMemory, err := s.recordPage(a)
	if err != nil {
		return nil, err
	}
	if inMemory {
		return nil, s.pageError(a, "no sync has covered this page of records")
	}
	return p[MuxSize:len(p):len(p)], nil
}

// UseLogged adds the logged value, of n bytes, of a key. It is damage if it is not in the file, or if another reference leads to it, or to its page in
// another way.
func (s *Store) UseLogged(p *UsedPages, place Place, key []byte, n int) error {
	a := place.Addr()
	if !s.InFile(a, 1) {
		return s.pageError(a, "a reference leads to a value here, which is not in the file")
	}
	if p.Has(a) && (p.Logged(a) == 0 || p.Logged(a)&place.Mask() != 0) {
		return s.pageError(a, "a second reference leads here")
	}
	first := p.Logged(a) == 0
	p.AddLogged(a, place.Mask())
	page, inMemory, err := s.recordPage(a)
	if err != nil {
		return err
	}
	if !inMemory {
		if ordinal, values := int(place&15), recordValues(getMux(page).name); ordinal >= values {
			return s.pageError(a, "a reference leads to value %d of %d", ordinal, values)
		}
		if raw := len(page)/PageSize - 1; first && raw > 0 && !p.Add(a+1, int64(raw)) {
			return s.pageError(a+1, "a second reference leads here")
		}
	}
	_, err = s.Logged(place, key, n)
	return err
}

// AddLogged adds logged values of a page.
func (p *UsedPages) AddLogged(a Addr, mask uint16) {
	p.Add(a, 1)
	if p.logged == nil {
		p.logged = map[Addr]uint16{}
	}
	p.logged[a] |= mask
}

// Logged returns which logged values of a page are in the set.
func (p *UsedPages) Logged(a Addr) uint16 { return p.logged[a] }

// CheckLogged is Check for logged values: must values of a page have to live, others than may values must not.
func (l *Live) CheckLogged(must, born func(a Addr) uint16) (problems []error) {
	for n := range l.end {
		for o := range l.sp.segmentPages {
			a := uint64(n)*l.sp.segmentPages + o
			live := uint16(0)
			if masks := l.masks[n]; masks != nil {
				live = masks[o]
			}
			used := must(a)
			if used&^live != 0 {
				problems = append(problems, fmt.Errorf("%w: values %#x of page %d are in the tree and dead in the space map", ErrCorrupt, used&^live, a))
			}
			if extra := live &^ (used | born(a)); extra != 0 {
				problems = append(problems, fmt.Errorf("%w: values %#x of page %d are live in the space map and in no tree", ErrCorrupt, extra, a))
			}
			if len(problems) >= 100 {
				return problems
			}
		}
	}
	return problems
}
