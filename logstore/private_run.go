package logstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The runs of a transaction whose write set leaves memory lie in private segments. Such a run is written when its
// record leaves memory, and keeps its place. The transaction's group lists the stretches of pages that its runs
// take, so that recovery knows that they live. A run there is read like any other: the checksum of its page covers
// the salt of the segment. The space map knows that salt from the next checkpoint on, and until then the segment's
// header does.

// Run writes a value run whose payload is the parts in a row, at most MaxRun bytes, and returns its address. It can
// be read after the next FinishRuns. A Private holds either runs or one stream from Write.
func (p *Private) Run(parts ...[]byte) (Addr, error) { return p.run(runValue, parts...) }

// List writes a run that lists extents, after the key if that is long. See Group.List.
func (p *Private) List(key []byte, extents []Extent) (Addr, error) {
	return p.run(runList, key, putExtents(extents))
}

func (p *Private) run(form uint32, parts ...[]byte) (Addr, error) {
	s := p.s
	var length int64
	var crc uint32
	for _, b := range parts {
		length += int64(len(b))
		crc = crc32.Update(crc, castagnoli, b)
	}
	pages := uint64(RunPages(length))
	pending := uint64(len(p.buf)) / PageSize
	if len(p.segments) == 0 || p.page+pending+pages > uint64(s.segmentPages) {
		if err := p.FinishRuns(); err != nil {
			return 0, err
		}
		if err := p.enter(); err != nil {
			return 0, err
		}
		pending = 0
	}
	from := len(p.buf)
	p.buf = append(p.buf, make([]byte, pages*PageSize)...)
	b := p.buf[from:]
	putRunHeader(b, length, crc, form)
	at := runPayloadAt
	for _, part := range parts {
		at += copy(b[at:], part)
	}
	a := s.firstPage(p.segments[len(p.segments)-1]) + p.page + pending
	m := mux{kind: KindRun, lag: lagUnknown}
	m.put(b)
	binary.LittleEndian.PutUint32(b, pageCRC(p.salt, a, b[:PageSize]))
	if uint64(len(p.buf)) >= partPages*PageSize {
		return a, p.FinishRuns()
	}
	return a, nil
}

// FinishRuns writes the runs that are still in memory. They are durable after SyncPrivate.
func (p *Private) FinishRuns() error {
	for len(p.buf) > 0 {
		n := min(uint64(len(p.buf))/PageSize, partPages)
		if err := p.extend(p.buf[:n*PageSize], uint32(n)*PageSize); err != nil {
			return err
		}
		p.buf = p.buf[:copy(p.buf, p.buf[n*PageSize:])]
	}
	if cap(p.buf) > 2*partPages*PageSize {
		p.buf = nil
	}
	return nil
}

// Extents returns the pages written so far, of runs or of a stream.
func (p *Private) Extents() []Extent { return p.extents }

// saltListed learns the salt of a private segment that an accepted group lists, because the newest checkpoint may
// not know it. If the segment's header is damaged, the salt stays unknown; reading a run in the segment is then an error.
func (s *Store) saltListed(a Addr) error {
	n := s.segmentOf(a)
	page := make([]byte, PageSize)
	if _, err := s.read(page, s.firstPage(n)+headerPage(n)); err != nil {
		return err
	}
	h, ok := getHeader(page, n, s.uuid)
	if !ok || !h.private {
		return nil
	}
	if s.beside != nil {
		if known, _ := s.space.SaltOf(a); known == h.salt {
			return nil
		}
		if s.CheckpointedSince(s.lastWritten.Load()) { // the header may be that of a later life
			return fmt.Errorf("%w: %s: the writer may have reused segment %d", ErrTooOld, s.path, n)
		}
		s.beside.enter(n)
	}
	s.space.SetSalt(n, h.salt)
	return nil
}
