package logstore

import (
	"hash/crc32"
)

// An Extent is a stretch of raw pages in a private segment. It holds a part of a large value.
type Extent struct {
	Addr  Addr
	Bytes uint32 // number of the value's bytes in it; the rest of the last page is zero
	CRC   uint32 // CRC32C of those bytes
}

// Pages returns the number of pages of the extent.
func (e Extent) Pages() int64 { return (int64(e.Bytes) + PageSize - 1) / PageSize }

// A Private writes a value that is too large for a run into segments outside of the log's chain, before its
// transaction commits. The segments belong to the transaction until Publish or Discard; recovery frees them unless
// an accepted group lists them. One goroutine uses a Private. It needs no right to append to the log.
type Private struct {
	Claim    Claim // on whose behalf further segments are taken
	s        *growth
	extents  []Extent
	segments []uint32
	page     uint64 // next page in the last segment
	salt     uint64 // salt of the last segment
	rest     []byte // bytes that do not fill a page yet, not written
	stage    []byte // copy of what is being written, so that the checksum fits even if the caller changes its bytes meanwhile
	buf      []byte // stretches not yet written, after page
}

// NewPrivate starts a large value.
func (s *growth) NewPrivate() *Private { return &Private{s: s, rest: make([]byte, 0, PageSize)} }

// Write appends to the value. After ErrFull the caller calls Discard to free what was written. Write reads b once,
// piece by piece. If b cannot be read, Write panics with no lock held, and the caller calls Discard.
func (p *Private) Write(b []byte) (int, error) {
	written := len(b)
	if len(p.rest) > 0 {
		n := copy(p.rest[len(p.rest):PageSize], b)
		p.rest, b = p.rest[:len(p.rest)+n], b[n:]
		if len(p.rest) < PageSize {
			return written, nil
		}
		if err := p.pages(p.rest); err != nil {
			return 0, err
		}
		p.rest = p.rest[:0]
	}
	if whole := len(b) / PageSize * PageSize; whole > 0 {
		if err := p.pages(b[:whole]); err != nil {
			return 0, err
		}
		b = b[whole:]
	}
	p.rest = append(p.rest, b...)
	return written, nil
}

// pages writes whole pages.
func (p *Private) pages(b []byte) error {
	for len(b) > 0 {
		n, err := p.room(uint64(len(b)) / PageSize)
		if err != nil {
			return err
		}
		if p.stage == nil {
			p.stage = make([]byte, min(uint64(len(b)), partPages*PageSize))
		} else if uint64(len(p.stage)) < n*PageSize {
			p.stage = make([]byte, partPages*PageSize)
		}
		whole := p.stage[:copy(p.stage[:n*PageSize], b)]
		if err := p.extend(whole, uint32(len(whole))); err != nil {
			return err
		}
		b = b[n*PageSize:]
	}
	return nil
}

// room returns how many of n pages fit consecutively at the present place. It opens a segment if the last one is full.
func (p *Private) room(n uint64) (uint64, error) {
	s := p.s
	if len(p.segments) == 0 || p.page == uint64(s.segmentPages) {
		if err := p.enter(); err != nil {
			return 0, err
		}
	}
	return min(n, uint64(s.segmentPages)-p.page, partPages), nil
}

// enter opens a new segment.
func (p *Private) enter() error {
	h, err := p.s.takePrivate(p.Claim)
	if err == nil {
		p.segments, p.page, p.salt = append(p.segments, h.segment), headerPage(h.segment)+1, h.salt
	}
	return err
}

// extend writes pages at the present place; count is the number of the value's bytes in them.
func (p *Private) extend(b []byte, count uint32) error {
	s := p.s
	a := s.firstPage(p.segments[len(p.segments)-1]) + p.page
	if err := s.write(b, a); err != nil {
		return s.fail(err)
	}
	if err := s.WriteOut(a, int64(len(b)/PageSize)); err != nil {
		return s.fail(err)
	}
	s.space.WrotePrivate(p.segments[len(p.segments)-1], s.private.written.Add(1))
	p.page += uint64(len(b)) / PageSize
	s.appended.Add(uint64(len(b)) / PageSize)
	if n := len(p.extents); n > 0 {
		if e := &p.extents[n-1]; e.Addr+uint64(e.Pages()) == a && e.Bytes%PageSize == 0 {
			e.CRC = crc32.Update(e.CRC, castagnoli, b[:count])
			e.Bytes += count
			return nil
		}
	}
	p.extents = append(p.extents, Extent{Addr: a, Bytes: count, CRC: crc32.Checksum(b[:count], castagnoli)})
	return nil
}

// Finish writes the last bytes and returns the value's extents. SyncPrivate makes them durable.
func (p *Private) Finish() ([]Extent, error) {
	if len(p.rest) > 0 {
		if _, err := p.room(1); err != nil {
			return nil, err
		}
		count := uint32(len(p.rest))
		if err := p.extend(append(p.rest, make([]byte, PageSize-len(p.rest))...)[:PageSize], count); err != nil {
			return nil, err
		}
		p.rest = p.rest[:0]
	}
	p.stage = nil
	return p.extents, nil
}

// Start returns the address at which the value begins, or 0 if it has no bytes.
func (p *Private) Start() Addr {
	if len(p.extents) == 0 {
		return 0
	}
	return p.extents[0].Addr
}

// SyncPrivate makes all private pages written so far durable. In every durability mode it comes before the group
// that lists them is written, so that recovery need not read them.
func (s *syncer) SyncPrivate() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.Failed(); err != nil {
		return err
	}
	return s.datasync()
}

// Publish gives the segments to the tree after the group that lists the extents was written. No reader below birth
// reaches them.
func (p *Private) Publish(group, birth uint64) {
	for _, e := range p.extents {
		p.s.space.MarkLive(e.Addr, e.Pages(), birth)
	}
	p.s.space.Publish(p.segments, group)
	p.segments = nil
}

// NoteListed is Publish for a group that recovery has found.
func (s *Store) NoteListed(extents []Extent, group uint64) error {
	for _, e := range extents {
		if !s.InFile(e.Addr, e.Pages()) {
			return s.pageError(e.Addr, "extent of a large value listed by group %d", group)
		}
		s.MarkLive(e.Addr, e.Pages(), 0)
		s.space.Listed(e.Addr, group)
		if err := s.saltListed(e.Addr); err != nil {
			return err
		}
	}
	return nil
}

// Discard frees the segments: the transaction did not commit.
func (p *Private) Discard() {
	p.s.space.Discard(p.segments)
	p.segments, p.extents, p.buf = nil, nil, nil
}

// takePrivate takes a whole free segment for private use and writes its header.
func (s *growth) takePrivate(c Claim) (header, error) {
	h := header{private: true, salt: randomSalt(), uuid: s.uuid}
	n, err := s.freeSegment(h.salt, c)
	if err != nil {
		return h, err
	}
	h.segment = n
	s.forget(n)
	page := make([]byte, PageSize)
	h.put(page)
	if err := s.write(page, s.firstPage(n)+headerPage(n)); err != nil {
		return h, s.fail(err)
	}
	return h, nil
}

// freeSegment takes a segment off the free list. It grows the file if the free segments are promised to others.
func (s *growth) freeSegment(salt uint64, c Claim) (n uint32, err error) {
	take := func() (missing int64) {
		var ok bool
		if n, missing, ok = s.space.TakePrivate(salt, c); ok {
			return 0
		}
		return missing
	}
	if take() == 0 {
		return n, nil
	}
	return n, s.growUntil(take)
}

// Raw returns the bytes of an extent, verified at the first touch. If no sync has covered the extent, Raw syncs it first.
func (s *reader) Raw(e Extent) ([]byte, error) {
	if s.beside != nil {
		return s.copyRaw(e)
	}
	c, o := s.chunkOf(e.Addr)
	last := e.Addr + uint64(e.Pages())
	if c == nil || e.Bytes == 0 || last > s.space.End() || s.segmentOf(last-1) != s.segmentOf(e.Addr) {
		return nil, s.pageError(e.Addr, "extent of a large value")
	}
	b := c.data[o*PageSize : o*PageSize+uint64(e.Bytes) : o*PageSize+uint64(e.Bytes)]
	if !c.isExtent(o) {
		if err := s.syncBeforeRead(e.Addr); err != nil {
			return nil, err
		}
		if s.marked && (!s.space.IsUsed(e.Addr) || !s.space.IsUsed(last-1)) {
			return nil, s.pageError(e.Addr, "a large value leads here, and the space map says that nothing is here")
		}
		s.prefetch(e.Addr, uint64(e.Pages()))
		if crc32.Checksum(b, castagnoli) != e.CRC {
			return nil, s.pageError(e.Addr, "checksum of a large value")
		}
		c.sets().extent.set(o)
	}
	return b, nil
}
