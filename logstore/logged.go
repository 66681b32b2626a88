package logstore

import (
	"errors"
	"hash/crc32"
	"sync/atomic"
)

// A logged value stays in the page of the record group that carried it: a leaf refers to it by its place.
//
//	place: address of the page << 18 | offset in the page << 4 | ordinal of the value among the logged values of the page
//
// Such a page is a *span* of up to MaxSpan consecutive pages of the file in one segment. The first has the mux
// area, the others are raw, and the mux area holds their checksum. The span is live as long as one of its values
// is; a mask of 16 bits says which values are live.
//
//  1. A record with a logged value lies in one span, and a span with such values begins with a record. So the value
//     is one slice, and the cleaner finds the value and its key in the span alone.
//  2. Recovery may record a birth or a death again; it counts once. A counter of values could not do that.
//  3. A value is born with its group. Before, references to it exist in memory only: no flush is written before the
//     group that has its values.
//  4. The key of a value lies in front of it in its page, and every read compares the key. So where a leaf
//     contradicts the space map and the page has been overwritten, a read never answers with the value of another
//     key.
//  5. A page that no sync has covered is read from memory, where it stays until then: see unsynced.go.

// Place is the position of a logged value in the file, encoded as above.
type Place uint64

// PlaceOf returns the place of a value that begins at offset at of the body of the page at a.
func PlaceOf(a Addr, at, ordinal int) Place {
	return Place(a<<18 | uint64(MuxSize+at)<<4 | uint64(ordinal))
}

// LeastLogged is the bytes of the shortest logged value, so that a page of the file has no more values than a mask
// has bits.
const LeastLogged = 256

func (p Place) Addr() Addr   { return Addr(p >> 18) }
func (p Place) offset() int  { return int(p >> 4 & (MaxSpan*PageSize - 1)) }
func (p Place) Mask() uint16 { return 1 << (p & 15) }

// In the mux area of a page of records, the name's place holds a description of the span:
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

// spanOf returns the number of pages that the page of records at a takes, according to its name; 0 if the name is
// impossible.
func (s *disk) spanOf(a Addr, name PageID) uint64 {
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

// verifySpan checks the raw pages of the page of records at a, which b begins with and which is verified, and
// returns the whole span.
func (s *disk) verifySpan(a Addr, b []byte) ([]byte, error) {
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

// tailPages holds the pages of records that no sync has covered, of 256 consecutive pages of the file. It is
// dropped with the last of them.
type tailPages struct {
	pages [1 << 8]atomic.Pointer[[MaxSpan * PageSize]byte] // bytes after a page's end must not be looked at
	kept  int                                              // number of pages in memory; guarded by unsynced.mu
}

// Record appends a redo record with a logged value, head and value adjacent, to one page of a record group's
// stream. The value can be read from now on. Record returns the value's place and the number of pages of the file
// that its page takes so far.
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

// extend makes the stream's page of records one page of the file longer, and reports whether it did. It does so if the
// page has logged values, if the next page of the file is available, and if the page may still have so many more logged
// values (the mask has 16 bits) that the added page of the file will be as full as those before it.
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
	g.rawPages++
	g.records = g.records[PageSize:]
	g.stream = p.buf[span*PageSize-len(g.stream) : (span+1)*PageSize : (span+1)*PageSize]
	return true
}

// Append appends a redo record without a logged value. A long record continues in the next page. A short record
// that does not fit begins the next page: a page that begins in the middle of a record can have no logged value, so
// each one in front of such a page would leave the rest of its own page unused.
func (g *Group) Append(record []byte) {
	if n := len(record); n > len(g.stream) && n <= shortRecord && g.s.LogsValues() {
		g.endPage()
	}
	g.Write(KindRecord, record)
}

// shortRecord is the length of the longest redo record that is never split. Pages filled with such records are at
// least three quarters full, which is what commits reserve for.
const shortRecord = BodySize / 4

// endPage makes the next record begin a page.
func (g *Group) endPage() {
	if g.skind == KindRecord {
		g.stream = nil
	}
}

func (s *syncer) keepTail(a Addr, buf *[MaxSpan * PageSize]byte) {
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

// UnsyncedBytes returns the bytes of written pages with logged values that stay in memory until a sync.
func (s *syncer) UnsyncedBytes() int64 { return s.unsynced.records.Load() * PageSize }

// Logged returns a logged value of n bytes. At the first touch of its page the page is verified; the key must lie
// in front of the value. The slice is read-only. It points into the mapping and lives as long as a slice of Page
// does, or into the page in memory if no sync has covered the page. Any goroutine may call Logged; after the first
// touch it takes no lock and allocates nothing.
func (s *reader) Logged(place Place, key []byte, n int) ([]byte, error) {
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

// recordPage returns a page of redo records with its raw pages. inMemory: the page is not synced, and perhaps not
// written; only bytes whose place is known may be looked at, and there may be bytes after the end of the page. A
// page that is neither in memory nor has the record bit may be verified in the mapping: at a sync the bit is set
// before the page in memory is dropped.
func (s *reader) recordPage(a Addr) (p []byte, inMemory bool, err error) {
	c, o := s.chunkOf(a)
	if c != nil {
		if b := c.bits.Load(); b != nil {
			if t := b.tail[o>>8].Load(); t != nil {
				if p := t.pages[o&255].Load(); p != nil {
					return p[:], true, nil
				}
			}
			if b.record.has(o) {
				if n := s.spanOf(a, getMux(c.page(o)).name); n > 0 { // 0: it is a raw page
					return c.data[o*PageSize : (o+n)*PageSize : (o+n)*PageSize], false, nil
				}
			}
		}
	}
	p, err = s.verifyPage(a, KindRecord)
	return p, false, err
}

// RecordPage returns the body of a page of records that a sync has covered.
func (s *reader) RecordPage(a Addr) ([]byte, error) {
	p, inMemory, err := s.recordPage(a)
	if err != nil {
		return nil, err
	}
	if inMemory {
		return nil, s.pageError(a, "no sync has covered this page of records")
	}
	return p[MuxSize:len(p):len(p)], nil
}

// UseLogged adds the logged value of a key, of n bytes. It returns an error, which is damage, if the value is not
// in the file, or if another reference leads to the value, or to its page as something else.
func (s *reader) UseLogged(p *UsedPages, place Place, key []byte, n int) error {
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
		if end := place.offset() + n; end > len(page) { // Logged returns it if the next page is a page of records that was verified
			return s.pageError(a, "a reference leads to a value that ends at byte %d of %d", end, len(page))
		}
		if raw := len(page)/PageSize - 1; first && raw > 0 && !p.Add(a+1, int64(raw)) {
			return s.pageError(a+1, "a second reference leads here")
		}
	}
	_, err = s.Logged(place, key, n)
	return err
}
