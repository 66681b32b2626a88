package logstore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"sync/atomic"
)

// appender writes the log. One goroutine at a time uses it.
type appender struct {
	*disk
	*mapping
	*syncer
	*growth
	tail      tail
	group     Group  // reused builder
	sinceBase []mark // record and page groups after the base
	features  features
	startAt   atomic.Uint64 // pages appended before the newest checkpoint's scan start
	groups    [CheckpointGroup + 1]atomic.Uint64
}

// A Group is one atomic append to the log, built by the log's one appender (see Concurrency in doc.go). Pages get
// their addresses as they are added, in address order along the segment chain; Commit completes their mux areas and
// writes them. Begin returns the same builder every time, so that its buffers are reused.
//
//   - The caller has reserved every page that it adds, and RunReserve pages for each run.
//   - A group that has pages must be committed. A dropped group would leave a gap in the log, and recovery would
//     find nothing after the gap. The next Begin therefore poisons the store.
type Group struct {
	s       *appender
	kind    GroupKind
	pages   []pendingPage
	opened  []openedSegment
	slabs   [][]byte // page buffers, reused by later groups
	used    int      // number of pages of slabs in use
	stream  []byte   // unused part of the body of the stream's last page
	skind   Kind     // kind of the stream's pages
	filling int      // index in pages of the stream's last page; runs may have been added after it
	split   bool     // the stream's last page begins in the middle of one Write
	bufs    [][]byte // vector of one write
	begin   Position // end of the log at Begin
	first   Position // position of the group's first page; set once pages are written
	before  uint32   // pages already written, raw pages included: see put
	// rawPages is the number of raw pages in pages. It is kept as a counter because each Buffered commit calls
	// Pages, on a group that grows for thousands of commits.
	rawPages uint32
	err      error        // first error of writing pages
	written  bool         // Commit has written the group
	keep     bool         // the group stays open if it is one page: see lastPage
	records  []byte       // unused part of a slab for pages of records; these slabs are never reused
	Held     func() error // commits a group that was held open, before the next one begins; cleared by Commit
}

var errDropped = errors.New("logstore: a group was built and not committed")

type pendingPage struct {
	addr     Addr
	kind     Kind
	name     PageID
	buf      []byte   // the page; for a page of records, its raw pages too
	raw      [][]byte // the raw pages after a run's first page
	rawPages uint32
	values   uint8 // number of logged values
}

// span returns the number of pages in buf.
func (p *pendingPage) span() int {
	if p.kind == KindRecord {
		return 1 + int(p.rawPages)
	}
	return 1
}

type openedSegment struct {
	before int // index in pages of the first page in the segment
	header header
	buf    []byte
}

const (
	slabPages   = 64
	keptSlabs   = 4    // slabs kept between groups: 1 MiB
	streamPages = 1024 // pages that a group buffers before it writes a long stream early
)

// Begin starts a group.
func (s *appender) Begin(kind GroupKind) *Group {
	g := &s.group
	if g.Held != nil {
		if err := g.Held(); err != nil {
			s.fail(err)
		}
	}
	empty := len(g.pages) == 0 && g.before == 0
	switch {
	case !empty && !g.written:
		s.fail(errDropped)
	case empty && !g.written && g.s != nil: // the group begun before got no pages, as happens with groups of Buffered commits
		g.kind, g.begin, g.keep = kind, s.position(), false
		return g
	}
	clear(g.pages)
	if len(g.slabs) > keptSlabs {
		clear(g.slabs[keptSlabs:])
		g.slabs = g.slabs[:keptSlabs]
	}
	*g = Group{s: s, kind: kind, pages: g.pages[:0], opened: g.opened[:0], slabs: g.slabs, records: g.records, bufs: g.bufs[:0], begin: s.position()}
	return g
}

// SetKind changes the kind of the group, which decides what recovery does with it.
func (g *Group) SetKind(kind GroupKind) { g.kind = kind }

// Number returns the number that the group will have.
func (g *Group) Number() uint64 { return g.s.tail.group }

// Pages returns the number of pages in the group so far, raw pages included.
func (g *Group) Pages() int64 {
	return int64(g.before) + int64(len(g.pages)) + int64(g.rawPages)
}

// buffer returns a zeroed page. Its capacity extends to the end of the slab, so that adjacent pages are written as
// one buffer.
func (g *Group) buffer() []byte {
	slab, i := g.used/slabPages, g.used%slabPages
	if slab == len(g.slabs) {
		g.slabs = append(g.slabs, make([]byte, slabPages*PageSize))
	}
	g.used++
	b := g.slabs[slab][i*PageSize : (i+1)*PageSize]
	clear(b)
	return b
}

// place finds room for n consecutive pages.
func (g *Group) place(n uint64) Addr {
	s, t := g.s, &g.s.tail
	if len(g.pages) == 0 {
		s.last.close()
	}
	if t.page+n > uint64(s.segmentPages) {
		g.open()
		if t.page+n > uint64(s.segmentPages) {
			panic(fmt.Sprintf("logstore: a run of %d pages", n))
		}
	}
	a := s.firstPage(t.header.segment) + t.page
	t.page += n
	return a
}

// open enters the successor of the current segment. Commit completes the new segment's header, because only Commit
// knows the digest.
func (g *Group) open() {
	s, t := g.s, &g.s.tail
	n := t.header.successor
	s.forget(n)
	h := header{
		segment: n, successor: s.space.SuccessorOf(n), salt: randomSalt(), sequence: t.header.sequence + 1,
		predecessor: t.header.salt, group: t.group, uuid: s.uuid,
	}
	t.header, t.page, t.fresh = h, headerPage(n)+1, uint64(s.segmentPages)
	if blank := s.enter(h); blank {
		t.fresh = t.page
	}
	s.space.Reborn(n)
	s.setTail()
	if len(g.pages) < smallGroup {
		s.zeroDue.Store(true)
	}
	g.opened = append(g.opened, openedSegment{before: len(g.pages), header: h, buf: g.buffer()})
}

func (g *Group) add(kind Kind, name PageID) (Addr, []byte) {
	a := g.place(1)
	var b []byte
	if kind == KindRecord {
		if len(g.records) < MaxSpan*PageSize {
			g.records = make([]byte, slabPages*PageSize)
		}
		b, g.records = g.records[:PageSize], g.records[PageSize:]
	} else {
		b = g.buffer()
	}
	g.pages = append(g.pages, pendingPage{addr: a, kind: kind, name: name, buf: b})
	return a, b[MuxSize:PageSize:PageSize]
}

// Page adds a tree page with the given name. It returns the page's address and its zeroed body, to be filled before
// Write or Commit.
func (g *Group) Page(name PageID) (Addr, []byte) { return g.add(KindTree, name) }

// SelfNamed adds a tree page whose name is its own address. Otherwise it is Page.
func (g *Group) SelfNamed() (Addr, []byte) {
	a, body := g.add(KindTree, 0)
	g.pages[len(g.pages)-1].name = a
	return a, body
}

// Write appends to the stream of the given kind. The stream spans the bodies of as many consecutive pages as it
// needs, so no other page may be added until the stream is complete. A long stream is written before Commit, so
// that a transaction of any size takes only a few MiB of memory here. The group still counts only once its last
// page is written.
func (g *Group) Write(kind Kind, p []byte) {
	if kind == g.skind && len(p) <= len(g.stream) {
		g.stream = g.stream[copy(g.stream, p):]
		return
	}
	if kind != g.skind {
		g.stream, g.skind = nil, kind
	}
	for amid := false; len(p) > 0; amid = true {
		if len(g.stream) == 0 {
			if len(g.pages) >= streamPages && g.err == nil {
				g.err = g.put(false, 0)
			}
			_, g.stream = g.add(kind, 0)
			g.filling, g.split = len(g.pages)-1, amid
		}
		n := copy(g.stream, p)
		g.stream, p = g.stream[n:], p[n:]
	}
}

// Run adds a value run whose payload is the concatenation of parts. The parts must not change until Commit, because
// only their partial last pages are copied. name is 0 for a new run, or the name of the run that this one
// overrides. The payload is at most MaxRun bytes.
func (g *Group) Run(name PageID, parts ...[]byte) Addr { return g.run(name, runValue, parts...) }

func (g *Group) run(name PageID, form uint32, parts ...[]byte) Addr {
	var length int64
	var crc uint32
	for _, p := range parts {
		length += int64(len(p))
		crc = crc32.Update(crc, castagnoli, p)
	}
	pages := RunPages(length)
	a, b := g.place(uint64(pages)), g.buffer()
	putRunHeader(b, length, crc, form)
	run := pendingPage{addr: a, kind: KindRun, name: name, buf: b, rawPages: uint32(pages - 1)}
	room := b[runPayloadAt:]
	for _, p := range parts {
		for len(p) > 0 {
			if len(room) == 0 && len(p) >= PageSize {
				whole := len(p) / PageSize * PageSize
				run.raw = append(run.raw, p[:whole])
				p = p[whole:]
				continue
			}
			if len(room) == 0 {
				room = g.buffer()
				run.raw = append(run.raw, room)
			}
			n := copy(room, p)
			room, p = room[n:], p[n:]
		}
	}
	g.pages, g.rawPages = append(g.pages, run), g.rawPages+run.rawPages
	return a
}

// Commit writes the group, with count in its commit record, and returns the group's number. When Commit
// returns, the group is in the system's page cache and not yet durable. An error has poisoned the store.
func (g *Group) Commit(count uint64) (uint64, error) {
	s, t := g.s, &g.s.tail
	g.Held = nil
	if s.opts.ReadOnly {
		return 0, ErrReadOnly
	}
	if err := s.Failed(); err != nil {
		return 0, err
	}
	if g.err == nil {
		g.err = g.put(true, count)
	}
	if g.err != nil {
		return 0, s.fail(g.err)
	}
	g.written = true
	if g.kind == RecordGroup || g.kind == PageGroup {
		s.sinceBase = append(s.sinceBase, mark{g.first, s.appended.Load()})
	}
	no := t.group
	t.group++
	s.groups[g.kind].Add(1)
	s.appended.Add(uint64(g.before))
	s.lastWritten.Store(no)
	return no, nil
}

// put writes the buffered pages. last tells that the group ends with them.
func (g *Group) put(last bool, count uint64) (err error) {
	s := g.s
	if err := g.checkReserved(); err != nil {
		return err
	}
	g.keep = g.keep && last && g.extendable()
	if g.before == 0 {
		g.first = g.start()
	}
	g.seal(last, count)
	if err := s.notShortened(); err != nil {
		return err
	}
	if g.keep {
		err = g.writeOpen()
	} else {
		err = g.write()
	}
	if err != nil {
		return err
	}
	s.space.Wrote(s.tail.group, len(g.pages), func(i int) Addr { return g.pages[i].addr })
	s.setTail()
	s.unsynced.add(g, s.tail.group)
	clear(g.pages)
	g.pages, g.rawPages, g.opened, g.used = g.pages[:0], 0, g.opened[:0], 0
	return nil
}

// start returns the position of the group's first page. The position names the segment that holds the page, never
// the segment before it, which may be reused while the position is still needed.
func (g *Group) start() Position {
	p := g.begin
	if len(g.opened) > 0 && g.opened[0].before == 0 {
		h := &g.opened[0].header
		p.Segment, p.Check = h.segment, uint32(h.salt)
	}
	p.Page = uint32(g.pages[0].addr - g.s.firstPage(p.Segment))
	return p
}

// checkReserved asserts that each page, and the successor of the log's last segment, lies in space that was
// allocated and synced before.
func (g *Group) checkReserved() error {
	s := g.s
	end := s.space.End()
	for i := range g.pages {
		if last := g.pages[i].addr + uint64(g.pages[i].rawPages); last >= end {
			return fmt.Errorf("logstore: page %d was never reserved", last)
		}
	}
	if n := s.tail.header.successor; len(g.opened) > 0 && s.firstPage(n) >= end {
		return fmt.Errorf("logstore: segment %d was never reserved", n)
	}
	return nil
}

// lagOf returns what the mux areas of a group say about the groups before it: how many of them are not known to
// be durable.
func (s *syncer) lagOf(group uint64) uint16 {
	return uint16(min(group-s.durable.Load()-1, lagUnknown))
}

// seal completes the mux areas, and the headers of the segments that the group has entered, in chain order.
func (g *Group) seal(last bool, count uint64) {
	s, t := g.s, &g.s.tail
	lag := s.lagOf(t.group)
	salts := g.opened
	salt := t.header.salt
	if len(salts) > 0 {
		salt = salts[0].header.predecessor
	}
	for i := range g.pages {
		p := &g.pages[i]
		if len(salts) > 0 && salts[0].before == i {
			h := &salts[0].header
			h.index, h.digest = g.before, t.digest
			h.put(salts[0].buf)
			salt = h.salt
			salts = salts[1:]
		}
		m := mux{kind: p.kind, flags: uint8(g.kind) << groupKindAt, lag: lag, name: p.name, group: t.group, pages: g.before, digest: t.digest}
		if p.kind == KindRecord {
			m.name = recordName(p.values, p.buf[PageSize:p.span()*PageSize])
		}
		g.before += 1 + p.rawPages
		if last && i == len(g.pages)-1 {
			m.flags |= flagLast
			m.pages, m.count = g.before, count
			if g.keep {
				m.flags, m.end = growingFlags, uint16(PageSize-len(g.stream))
			}
		}
		m.put(p.buf)
		crc := pageCRC(salt, p.addr, p.buf)
		putCRC(p.buf, crc)
		t.digest = chain(t.digest, crc)
	}
}

// write passes the pages to the system, one call per stretch of adjacent addresses.
func (g *Group) write() error {
	s := g.s
	opened := g.opened
	var at, next Addr
	flush := func() error {
		if len(g.bufs) == 0 {
			return nil
		}
		var err error
		if len(g.bufs) == 1 {
			_, err = s.file.WriteAt(g.bufs[0], int64(at)*PageSize)
		} else {
			err = s.file.WriteVec(g.bufs, int64(at)*PageSize)
		}
		clear(g.bufs)
		g.bufs = g.bufs[:0]
		return err
	}
	for i := range g.pages {
		p := &g.pages[i]
		first := p.addr
		header := len(opened) > 0 && opened[0].before == i
		if header {
			first = s.firstPage(opened[0].header.segment) + headerPage(opened[0].header.segment)
		}
		if first != next || len(g.bufs) == 0 {
			if err := flush(); err != nil {
				return err
			}
			at = first
		}
		if header {
			g.bufs = append(g.bufs, opened[0].buf)
			opened = opened[1:]
		}
		g.bufs = appendBuf(g.bufs, p.buf[:p.span()*PageSize])
		g.bufs = append(g.bufs, p.raw...)
		next = p.addr + 1 + uint64(p.rawPages)
	}
	if zeros := g.zeros(); len(zeros) > 0 {
		g.bufs = append(g.bufs, zeros)
	}
	return flush()
}

// appendBuf appends b to a vector, merged with the last buffer where the two are adjacent in memory.
func appendBuf(bufs [][]byte, b []byte) [][]byte {
	if n := len(bufs) - 1; n >= 0 {
		last := bufs[n]
		if whole := last[:cap(last)]; len(last) < len(whole) && &whole[len(last)] == &b[0] {
			bufs[n] = whole[:len(last)+len(b)]
			return bufs
		}
	}
	return append(bufs, b)
}
