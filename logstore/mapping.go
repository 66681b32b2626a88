package logstore

import (
	"fmt"
	"sync/atomic"
)

// A chunk is one mapping of the file, with two bits for each of its pages. Chunks are mapped as the file grows into them and live
// until the store is closed, so a slice of a page never moves.
//
//   - checked: the page's checksum and structure were verified since the segment was last opened for writing. Set by readers and by
//     the appender, cleared by the appender when it reuses a segment, which no reader can then be looking at.
//   - overridden: the translation table has an entry for the page's address. Owned by the table (package override).
type chunk struct {
	data       []byte
	checked    []atomic.Uint64
	overridden []atomic.Uint64
}

func newChunk(data []byte) *chunk {
	words := (len(data)/PageSize + 63) / 64
	return &chunk{data: data, checked: make([]atomic.Uint64, words), overridden: make([]atomic.Uint64, words)}
}

func (c *chunk) page(o uint64) []byte { return c.data[o*PageSize : (o+1)*PageSize : (o+1)*PageSize] }

func (c *chunk) isChecked(o uint64) bool { return c.checked[o/64].Load()>>(o%64)&1 != 0 }

func (c *chunk) setChecked(o uint64) { c.checked[o/64].Or(1 << (o % 64)) }

// mapTo maps chunks until the file's first n pages are covered. Called under space.mu or before the store is shared.
func (s *Store) mapTo(n uint64) error {
	chunks := *s.chunks.Load()
	for uint64(len(chunks))<<s.chunkShift < n {
		size := int64(PageSize) << s.chunkShift
		data, err := s.file.Map(int64(len(chunks))*size, size)
		if err != nil {
			return fmt.Errorf("flashdbm: map %s: %w", s.path, err)
		}
		chunks = append(chunks[:len(chunks):len(chunks)], newChunk(data))
		s.chunks.Store(&chunks)
	}
	return nil
}

func (s *Store) unmap() error {
	var first error
	for _, c := range *s.chunks.Load() {
		if err := s.file.Unmap(c.data); err != nil && first == nil {
			first = err
		}
	}
	s.chunks.Store(&[]*chunk{})
	return first
}

func (s *Store) chunkOf(a Addr) (*chunk, uint64) {
	chunks := *s.chunks.Load()
	i := a >> s.chunkShift
	if i >= uint64(len(chunks)) {
		return nil, 0
	}
	return chunks[i], a & (1<<s.chunkShift - 1)
}

// Page returns the image of a tree page, verified at its first touch. The slice is read-only and stays unchanged as long as the
// caller's snapshot is registered. No lock and no allocation after the first touch.
func (s *Store) Page(a Addr) ([]byte, error) {
	if c, o := s.chunkOf(a); c != nil && c.isChecked(o) {
		if p := c.page(o); PageKind(p) == KindTree {
			return p, nil
		}
	}
	return s.verifyPage(a, KindTree)
}

// Overridden reports whether the translation table has an entry for the page at a.
func (s *Store) Overridden(a Addr) bool {
	c, o := s.chunkOf(a)
	return c != nil && c.overridden[o/64].Load()>>(o%64)&1 != 0
}

// SetOverridden moves the bit that Overridden reports.
func (s *Store) SetOverridden(a Addr, on bool) {
	c, o := s.chunkOf(a)
	switch {
	case c == nil:
	case on:
		c.overridden[o/64].Or(1 << (o % 64))
	default:
		c.overridden[o/64].And(^uint64(1 << (o % 64)))
	}
}

func (s *Store) pageError(a Addr, format string, args ...any) error {
	return &PageError{Path: s.path, Addr: a, What: fmt.Sprintf(format, args...)}
}

// verifyPage checks a page of the given kind whole and sets its checked bit.
func (s *Store) verifyPage(a Addr, kind Kind) ([]byte, error) {
	c, o := s.chunkOf(a)
	salt, ok := s.space.saltOf(a)
	if c == nil || !ok {
		return nil, s.pageError(a, "no such page in the file")
	}
	p := c.page(o)
	m := getMux(p)
	switch {
	case m.crc != pageCRC(salt, a, p):
		return nil, s.pageError(a, "checksum")
	case m.kind != kind:
		return nil, s.pageError(a, "kind %d where %d belongs", m.kind, kind)
	}
	var err error
	if kind == KindTree {
		err = s.opts.CheckNode(p)
	} else {
		err = s.verifyRun(a, p)
	}
	if err != nil {
		return nil, s.pageError(a, "%v", err)
	}
	c.setChecked(o)
	return p, nil
}

// trust sets the checked bits of pages that this process has just written or verified.
func (s *Store) trust(a Addr, pages uint64) {
	for i := range pages {
		if c, o := s.chunkOf(a + i); c != nil {
			c.setChecked(o)
		}
	}
}

// forget clears both bits of a segment that is about to be reused.
func (s *Store) forget(segment uint32) {
	first := s.firstPage(segment)
	for a := first; a < first+uint64(s.segmentPages); a++ {
		if c, o := s.chunkOf(a); c != nil {
			c.checked[o/64].And(^uint64(1 << (o % 64)))
		}
		s.SetOverridden(a, false)
	}
}
