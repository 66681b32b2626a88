package logstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// A ScannedGroup is a group that recovery accepted.
type ScannedGroup struct {
	No    uint64
	Kind  GroupKind
	Count uint64 // of its commit record
	Pages []ScannedPage
	lag   uint16
	start Position // of its first page
}

// ScannedPage is a page of an accepted group; raw pages of runs are not listed.
type ScannedPage struct {
	Addr Addr
	Kind Kind
	Name PageID
	Run  int64 // KindRun: pages of the run, the first included
}

// A scanner follows the log through the file, reading a segment at a time. It never touches the mapping, so a file that was cut short
// ends the log instead of faulting.
type scanner struct {
	s       *Store
	end     uint64 // pages of the file
	buf     []byte // the segment at hand, zeros where the file ends
	segment uint32 // which one; noSegment at first
	header  header
	valid   bool // its header is
	page    uint64
	group   uint64 // next group expected
	digest  uint32
}

const noSegment = ^uint32(0)

func (s *Store) newScanner() *scanner {
	return &scanner{s: s, end: s.space.end(), buf: make([]byte, uint64(s.segmentPages)*PageSize), segment: noSegment}
}

// load reads segment n and decodes its header.
func (sc *scanner) load(n uint32) error {
	if sc.segment == n {
		return nil
	}
	sc.segment, sc.valid = n, false
	read, err := sc.s.file.ReadAt(sc.buf, int64(sc.s.firstPage(n))*PageSize)
	if err != nil && err != io.EOF {
		return fmt.Errorf("flashdbm: read %s: %w", sc.s.path, err)
	}
	clear(sc.buf[read:])
	at := headerPage(n) * PageSize
	sc.header, sc.valid = getHeader(sc.buf[at:], n, sc.s.uuid)
	return nil
}

// peek reads the header of segment n without leaving the one at hand.
func (sc *scanner) peek(n uint32) (header, bool, error) {
	var b [headerSize]byte
	at := int64(sc.s.firstPage(n)+headerPage(n)) * PageSize
	if read, err := sc.s.file.ReadAt(b[:], at); err != nil && err != io.EOF {
		return header{}, false, fmt.Errorf("flashdbm: read %s: %w", sc.s.path, err)
	} else if read < len(b) {
		return header{}, false, nil
	}
	h, ok := getHeader(b[:], n, sc.s.uuid)
	return h, ok, nil
}

// seek goes to a position of a superblock.
func (sc *scanner) seek(p Position) error {
	if uint64(p.Segment) >= sc.end/uint64(sc.s.segmentPages)+1 {
		return sc.damaged(p.Segment, "the superblock names a segment beyond the end of the file")
	}
	if err := sc.load(p.Segment); err != nil {
		return err
	}
	if !sc.valid || uint32(sc.header.salt) != p.Check {
		return sc.damaged(p.Segment, "segment header")
	}
	sc.page, sc.group, sc.digest = uint64(p.Page), p.Group, p.Digest
	return nil
}

func (sc *scanner) damaged(segment uint32, what string) error {
	return sc.s.pageError(sc.s.firstPage(segment)+headerPage(segment), "%s", what)
}

// at returns page o of the segment at hand if it is valid, with its mux area.
func (sc *scanner) at(o uint64) ([]byte, mux, bool) {
	p := sc.buf[o*PageSize : (o+1)*PageSize]
	m := getMux(p)
	a := sc.s.firstPage(sc.segment) + o
	return p, m, a < sc.end && m.crc == pageCRC(sc.header.salt, a, p)
}

// follow goes on in the successor if its header continues the chain exactly here.
func (sc *scanner) follow(group uint64, index uint32, digest uint32) (bool, error) {
	h := sc.header
	if uint64(h.successor+1)*uint64(sc.s.segmentPages) > sc.end || h.successor == sc.segment {
		return false, nil
	}
	next, ok, err := sc.peek(h.successor)
	if err != nil || !ok || next.private || next.predecessor != h.salt || next.sequence != h.sequence+1 ||
		next.group != group || next.index != index || next.digest != digest {
		return false, err
	}
	if err := sc.load(h.successor); err != nil {
		return false, err
	}
	sc.page = headerPage(h.successor) + 1
	return sc.valid, nil
}

// next reads the group expected here, or reports ok = false: a hole. The scanner then stands at the end of the last group accepted,
// in that group's segment or in a successor that continues it.
func (sc *scanner) next(accept func(header)) (g ScannedGroup, ok bool, err error) {
	g.No = sc.group
	digest, index := sc.digest, uint32(0)
	segment, page := sc.segment, sc.page
	var entered []header
	for {
		m, pages, ok := sc.step(&g, index, digest)
		if ok {
			digest = chain(digest, m.crc)
			index += uint32(pages)
			sc.page += uint64(pages)
			if m.last() {
				break
			}
			continue
		}
		moved, err := sc.follow(g.No, index, digest)
		if err != nil {
			return g, false, err
		}
		if moved && index == 0 {
			segment, page = sc.segment, sc.page
			accept(sc.header)
			continue
		}
		if moved {
			entered = append(entered, sc.header)
			continue
		}
		if err := sc.load(segment); err != nil {
			return g, false, err
		}
		sc.page = page
		return g, false, nil
	}
	for _, h := range entered {
		accept(h)
	}
	sc.digest, sc.group = digest, g.No+1
	return g, true, nil
}

// step takes one page, with the raw pages behind it if it starts a run, if it is the page expected.
func (sc *scanner) step(g *ScannedGroup, index uint32, digest uint32) (m mux, pages int64, ok bool) {
	if sc.page >= uint64(sc.s.segmentPages) {
		return m, 0, false
	}
	p, m, ok := sc.at(sc.page)
	if !ok || m.group != g.No || m.digest != digest || m.kind == 0 || m.kind >= kindHeader {
		return m, 0, false
	}
	kind := m.groupKind()
	if kind < RecordGroup || kind > CheckpointGroup || (index > 0 && kind != g.Kind) {
		return m, 0, false
	}
	pages = 1
	if m.kind == KindRun {
		if pages, ok = sc.runAt(sc.page, p); !ok {
			return m, 0, false
		}
	}
	if want := index + uint32(pages); (m.last() && m.pages != want) || (!m.last() && m.pages != index) {
		return m, 0, false
	}
	g.Kind, g.Count, g.lag = kind, m.count, m.lag
	if index == 0 {
		g.start = Position{Segment: sc.segment, Page: uint32(sc.page), Group: g.No, Digest: digest, Check: uint32(sc.header.salt)}
	}
	page := ScannedPage{Addr: sc.s.firstPage(sc.segment) + sc.page, Kind: m.kind, Name: m.name}
	if m.kind == KindRun {
		page.Run = pages
	}
	g.Pages = append(g.Pages, page)
	return m, pages, true
}

// runAt checks the payload of the run that starts at page o and returns its length in pages.
func (sc *scanner) runAt(o uint64, p []byte) (int64, bool) {
	n, ok := sc.s.runLength(sc.s.firstPage(sc.segment)+o, p)
	if !ok {
		return 0, false
	}
	from := o*PageSize + runPayloadAt
	crc := crc32.Checksum(sc.buf[from:from+uint64(n)], castagnoli)
	return RunPages(n), crc == binary.LittleEndian.Uint32(p[MuxSize+8:])
}

// vouched looks for a page that was written when group g was durable already: then the hole at g is damage, not the end of the log.
// It reads every segment whose header is not older than the one where the scan stopped. Private segments and raw pages of runs hold
// users' bytes and prove nothing.
func (sc *scanner) vouched(g uint64) (Addr, error) {
	at := sc.header.sequence
	stop := sc.segment
	segments := uint32((sc.end + uint64(sc.s.segmentPages) - 1) / uint64(sc.s.segmentPages))
	for n := range segments {
		h, ok, err := sc.peek(n)
		if err != nil {
			return 0, err
		}
		if !ok || h.private || h.sequence < at {
			continue
		}
		if err := sc.load(n); err != nil {
			return 0, err
		}
		for o := headerPage(n) + 1; o < uint64(sc.s.segmentPages); o++ {
			p, m, ok := sc.at(o)
			if !ok {
				continue
			}
			if m.lag != lagUnknown && m.group-uint64(m.lag) > g && m.group > g {
				return sc.s.firstPage(n) + o, nil
			}
			if m.kind == KindRun {
				if length, ok := sc.s.runLength(sc.s.firstPage(n)+o, p); ok {
					o += uint64(RunPages(length)) - 1
				}
			}
		}
	}
	return 0, sc.load(stop)
}
