package logstore

import (
	"encoding/binary"
	"hash/crc32"
)

// A ScannedGroup is a group that recovery has accepted.
type ScannedGroup struct {
	No    uint64
	Kind  GroupKind
	Count uint64 // count in its commit record
	Pages []ScannedPage
	lag   uint16
	open  bool     // the group is one page, which the writer may rewrite with more records appended
	body  []byte   // reading beside a writer: the body of that page as it was accepted, while no group follows; else nil
	start Position // position of its first page
}

// Body returns the body of a one-page group that the writer may be rewriting: the file may hold more records by now
// than this group has. It is nil if the group's pages no longer change.
func (g *ScannedGroup) Body() []byte { return g.body }

// ScannedPage is a page of an accepted group; raw pages of runs are not listed.
type ScannedPage struct {
	Addr Addr
	Kind Kind
	Name PageID // name of a page of a tree, or of a run
	Run  int64  // number of pages of a run, or of a page of records, the first one included; 0 means 1

	Values int // KindRecord: number of logged values
}

// BodyBytes returns the length of the body of a page of a stream, in bytes.
func (p *ScannedPage) BodyBytes() int { return int(max(p.Run, 1))*PageSize - MuxSize }

// RedoPages returns the number of pages of the group that hold records.
func (g *ScannedGroup) RedoPages() int {
	n := 0
	for i := range g.Pages {
		if p := &g.Pages[i]; p.Kind == KindRecord {
			n += int(max(p.Run, 1))
		}
	}
	return n
}

// pages returns the number of pages of the group, raw pages included.
func (g *ScannedGroup) pages() uint64 {
	var n uint64
	for i := range g.Pages {
		n += uint64(max(g.Pages[i].Run, 1))
	}
	return n
}

// A scanner follows the log through the file. It always stands between two groups: at the end of the last accepted
// group, or at the start of a segment whose header says that the next group begins there.
type scanner struct {
	window
	segment uint32
	header  header // header of the segment
	page    uint64 // index in the segment of the next group's first page
	group   uint64 // number of the next group
	digest  uint32
	torn    bool          // whole pages of a group preceded the last hole
	spare   []ScannedPage // reused memory for pages of later groups
	peeked  []byte        // page of the last header read outside of the window
	waited  uint32        // checksum of the page that awaitWhole waited for last
	waits   int           // how often it waited for that page
}

func (s *Store) newScanner() *scanner {
	return &scanner{window: s.newWindow(), peeked: make([]byte, PageSize)}
}

// headerOf reads the header of segment n.
func (sc *scanner) headerOf(n uint32) (header, bool, error) {
	p, err := sc.readHeader(n)
	h, ok := getHeader(p, n, sc.s.uuid)
	return h, ok, err
}

// readHeader returns the page that holds the header of segment n, as far as the file contains it. The slice is
// valid until the next call.
func (sc *scanner) readHeader(n uint32) ([]byte, error) {
	a := sc.s.firstPage(n) + headerPage(n)
	if a >= sc.end {
		return nil, nil
	}
	if sc.first == a&^(sc.pages-1) && len(sc.buf) > 0 {
		return sc.window.page(a)
	}
	read, err := sc.s.read(sc.peeked, a)
	return sc.peeked[:read], err
}

// seek moves the scanner to a position from a superblock.
func (sc *scanner) seek(p Position) error {
	h, ok, err := sc.headerOf(p.Segment)
	if err != nil {
		return err
	}
	if !ok || h.private || uint32(h.salt) != p.Check {
		return sc.s.pageError(sc.s.firstPage(p.Segment)+headerPage(p.Segment), "segment header")
	}
	sc.segment, sc.header = p.Segment, h
	sc.page, sc.group, sc.digest = uint64(p.Page), p.Group, p.Digest
	return nil
}

// here returns the address of the page at which the scanner stands.
func (sc *scanner) here() Addr { return sc.s.firstPage(sc.segment) + sc.page }

// next reads the group expected here; ok is false at a hole. accept is called with the headers of the segments that
// the group enters. It is called before the group is known to be whole only if the group begins in that segment.
func (sc *scanner) next(accept func(header)) (g ScannedGroup, ok bool, err error) {
	for {
		at := sc.place()
		g, entered, ok, err := sc.whole()
		if err != nil {
			return g, false, err
		}
		if ok {
			for _, h := range entered {
				accept(h)
			}
			return g, true, nil
		}
		sc.restore(at)
		sc.torn = len(g.Pages) > 0
		// Pages of an interrupted group may remain here; the group that took its number begins in the successor.
		moved, err := sc.follow(sc.group, 0, sc.digest)
		if err != nil || !moved {
			return g, false, err
		}
		accept(sc.header)
	}
}

// place is a state to which a scanner can return.
type place struct {
	segment uint32
	header  header
	page    uint64
}

func (sc *scanner) place() place     { return place{sc.segment, sc.header, sc.page} }
func (sc *scanner) restore(at place) { sc.segment, sc.header, sc.page = at.segment, at.header, at.page }

// whole reads the group that starts here and returns the headers of the segments that the group continues in.
// Afterwards the scanner stands after the group; if the group is not whole, the scanner's place is undefined.
func (sc *scanner) whole() (g ScannedGroup, entered []header, ok bool, err error) {
	g.No = sc.group
	if cap(sc.spare) == 0 {
		sc.spare = make([]ScannedPage, 0, 512)
	}
	g.Pages = sc.spare
	digest, index := sc.digest, uint32(0)
	for {
		m, pages, err := sc.step(&g, index, digest)
		if err != nil {
			return g, nil, false, err
		}
		if pages > 0 {
			digest = chain(digest, m.crc)
			index += uint32(pages)
			sc.page += pages
			if m.last() {
				sc.digest, sc.group = digest, g.No+1
				sc.keep(&g)
				return g, entered, true, nil
			}
			continue
		}
		if index == 0 {
			return g, nil, false, nil
		}
		if moved, err := sc.follow(g.No, index, digest); err != nil || !moved {
			return g, nil, false, err
		}
		entered = append(entered, sc.header)
	}
}

// keep moves the pages of an accepted group out of the reused memory, if they lie there.
func (sc *scanner) keep(g *ScannedGroup) {
	n := len(g.Pages)
	g.Pages = g.Pages[:n:n]
	if n <= cap(sc.spare) {
		sc.spare = sc.spare[:n][n:]
	}
}

// follow moves to the successor segment if its header continues the chain at exactly this point. Headers are
// numbered upwards along the chain, so no file can make a scan go in circles.
func (sc *scanner) follow(group uint64, index uint32, digest uint32) (bool, error) {
	h := sc.header
	next, ok, err := sc.headerOf(h.successor)
	if err != nil || !ok || next.private || next.predecessor != h.salt || next.sequence != h.sequence+1 ||
		next.group != group || next.index != index || next.digest != digest {
		return false, err
	}
	sc.segment, sc.header, sc.page = h.successor, next, headerPage(h.successor)+1
	return true, nil
}

// step accepts the page here, with the raw pages after it if it starts a run, and returns how many pages that are.
// It returns 0 if this is not the expected page.
func (sc *scanner) step(g *ScannedGroup, index uint32, digest uint32) (m mux, pages uint64, err error) {
	if sc.page >= uint64(sc.s.segmentPages) {
		return m, 0, nil
	}
	a := sc.here()
	p, err := sc.window.page(a)
	if err != nil || p == nil {
		return m, 0, err
	}
	m = getMux(p)
	kind := m.groupKind()
	if m.group != g.No || m.digest != digest || m.kind == 0 || m.kind >= kindHeader ||
		kind < RecordGroup || kind > CheckpointGroup || (index > 0 && kind != g.Kind) ||
		m.crc != pageCRC(sc.header.salt, a, p) {
		return m, 0, nil
	}
	pages = 1
	page := ScannedPage{Addr: a, Kind: m.kind, Name: m.name}
	switch m.kind {
	case KindRun:
		if pages, err = sc.runAt(a, p); pages == 0 {
			return m, 0, err
		}
		page.Run = int64(pages)
	case KindRecord:
		if pages, err = sc.spanAt(a, m.name); pages == 0 {
			return m, 0, err
		}
		page.Name, page.Run, page.Values = 0, int64(pages), recordValues(m.name)
	}
	if want := index + uint32(pages); (m.last() && m.pages != want) || (!m.last() && m.pages != index) {
		return m, 0, nil
	}
	g.Kind, g.Count, g.lag = kind, m.count, m.lag
	g.open = m.flags&flagOpen != 0 && index == 0 && pages == 1 && m.last() // a group of several pages is never rewritten
	if index == 0 {
		g.start = Position{Segment: sc.segment, Page: uint32(sc.page), Group: g.No, Digest: digest, Check: uint32(sc.header.salt)}
	}
	g.Pages = append(g.Pages, page)
	return m, pages, nil
}

// runAt checks the payload of the run whose first page is p at a. It returns the run's length in pages, or 0 if the
// payload is damaged.
func (sc *scanner) runAt(a Addr, p []byte) (pages uint64, err error) {
	n, ok := sc.s.runLength(a, p)
	if !ok {
		return 0, nil
	}
	want := binary.LittleEndian.Uint32(p[MuxSize+8:])
	pages = uint64(RunPages(n))
	crc, ok, err := sc.sum(a, runPayloadAt, n)
	if !ok || crc != want {
		return 0, err
	}
	return pages, nil
}

// spanAt is runAt for a page of records with the given name.
func (sc *scanner) spanAt(a Addr, name PageID) (pages uint64, err error) {
	if pages = sc.s.spanOf(a, name); pages <= 1 {
		return pages, nil
	}
	crc, ok, err := sc.sum(a+1, 0, int64(pages-1)*PageSize)
	if !ok || crc != rawCRC(name) {
		return 0, err
	}
	return pages, nil
}

// sum returns the checksum of n bytes that begin at offset skip of the page at a; ok is false if the file ends before them.
func (sc *scanner) sum(a Addr, skip, n int64) (crc uint32, ok bool, err error) {
	for ; n > 0; skip = 0 {
		b, err := sc.from(a)
		if err != nil || len(b) == 0 {
			return 0, false, err
		}
		a += uint64(len(b)) / PageSize
		b = b[skip:min(int64(len(b)), skip+n)]
		n -= int64(len(b))
		crc = crc32.Update(crc, castagnoli, b)
	}
	return crc, true, nil
}
