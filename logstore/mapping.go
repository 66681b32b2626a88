package logstore

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"flashdbm/internal/event"
)

// A chunk is one mapping of the file, with four bits per page. Chunks are mapped as the file grows into them and live until the store is
// closed, so a slice of a page never moves.
//
// The bits are allocated when the first of them is set. A mapping takes address space only, so the memory for a long file with few pages is
// proportional to its pages.
//
//   - checked: the page's checksum and structure were verified since the segment was last opened for writing. Set by readers, and by a sync
//     that covers what the appender wrote. Cleared by the appender when it reuses a segment; no reader can look at that segment then.
//   - unsynced: the appender wrote the page and no sync has covered it: see unsynced.go.
//   - extent: like checked, for the extent of a large value that begins here. Such a page holds a user's bytes, whatever they look like.
//   - overridden: the translation table has an entry for the page's address. Owned by the table (package override).
type chunk struct {
	data []byte
	bits atomic.Pointer[chunkBits] // nil until a bit is set
}

type chunkBits struct {
	checked    pageSet
	unsynced   pageSet
	extent     pageSet
	overridden pageSet
	record     pageSet                     // verified pages of redo records, raw pages included
	tail       []atomic.Pointer[tailPages] // for each 256 pages: those that no sync has covered
}

// pageSet is a set of the pages of a chunk. Each operation is atomic; whoever sees a bit sees everything written before it was set.
type pageSet []atomic.Uint64

func (b pageSet) has(o uint64) bool { return b[o/64].Load()>>(o%64)&1 != 0 }
func (b pageSet) set(o uint64)      { b[o/64].Or(1 << (o % 64)) }
func (b pageSet) setAll(o uint64, n int) {
	for i := range uint64(n) {
		b.set(o + i)
	}
}
func (b pageSet) unset(o uint64) { b[o/64].And(^uint64(1 << (o % 64))) }

// unsetAll removes n pages from o on, where n is a power of two and o a multiple of n.
func (b pageSet) unsetAll(o, n uint64) {
	if n < 64 {
		b[o/64].And(^((uint64(1)<<n - 1) << (o % 64)))
		return
	}
	for i := range n / 64 {
		b[o/64+i].Store(0)
	}
}

func (c *chunk) isChecked(o uint64) bool {
	b := c.bits.Load()
	return b != nil && b.checked.has(o)
}

func (c *chunk) isUnsynced(o uint64) bool {
	b := c.bits.Load()
	return b != nil && b.unsynced.has(o)
}

func (c *chunk) isExtent(o uint64) bool {
	b := c.bits.Load()
	return b != nil && b.extent.has(o)
}

func (c *chunk) isOverridden(o uint64) bool {
	b := c.bits.Load()
	return b != nil && b.overridden.has(o)
}

// sets returns the chunk's bits for setting one. Any number of goroutines may call it and get the same bits.
func (c *chunk) sets() *chunkBits {
	if b := c.bits.Load(); b != nil {
		return b
	}
	words := (len(c.data)/PageSize + 63) / 64
	c.bits.CompareAndSwap(nil, &chunkBits{make(pageSet, words), make(pageSet, words), make(pageSet, words), make(pageSet, words), make(pageSet, words), make([]atomic.Pointer[tailPages], (words+3)/4)})
	return c.bits.Load()
}

func (c *chunk) page(o uint64) []byte { return c.data[o*PageSize : (o+1)*PageSize : (o+1)*PageSize] }

// mapTo maps chunks until the file's first n pages are covered. Called under growing, or before the store is shared.
func (s *Store) mapTo(n uint64) error {
	if s.beside != nil {
		return nil
	}
	chunks := *s.chunks.Load()
	if uint64(len(chunks))<<s.chunkShift >= n {
		return nil
	}
	longer := chunks[:len(chunks):len(chunks)] // append copies it, because readers hold the published one
	defer func() { s.chunks.Store(&longer) }() // chunks mapped before an error too, for unmap
	for uint64(len(longer))<<s.chunkShift < n {
		size := int64(PageSize) << s.chunkShift
		data, err := s.file.Map(int64(len(longer))*size, size)
		if err != nil {
			return fmt.Errorf("flashdbm: map %s: %w", s.path, err)
		}
		longer = append(longer, &chunk{data: data})
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

// Page returns the image of a tree page, verified at its first touch. The slice is read-only and does not change while the caller's snapshot
// is registered. After the first touch Page takes no lock and allocates nothing, except that an unsynced page is copied each time.
func (s *Store) Page(a Addr) ([]byte, error) {
	if c, o := s.chunkOf(a); c != nil && c.isChecked(o) {
		if p := c.page(o); PageKind(p) == KindTree {
			return p, nil
		}
	}
	return s.verifyPage(a, KindTree)
}

// Faulted returns the error for a memory fault at an address, if the address lies in a mapping of the file: the file was cut short, or the
// device failed.
func (s *Store) Faulted(at uintptr) (error, bool) {
	for i, c := range *s.chunks.Load() {
		if start := reflect.ValueOf(c.data).Pointer(); start <= at && at-start < uintptr(len(c.data)) {
			return s.pageError(Addr(i)<<s.chunkShift+Addr(at-start)/PageSize, "the mapping cannot be read: was the file cut short?"), true
		}
	}
	return nil, false
}

// Overridden reports whether the translation table has an entry for the page at a.
func (s *Store) Overridden(a Addr) bool {
	c, o := s.chunkOf(a)
	if c == nil { // beside a writer every name is looked up
		return s.beside != nil
	}
	return c.isOverridden(o)
}

// SetOverridden sets or clears the bit that Overridden reports.
func (s *Store) SetOverridden(a Addr, on bool) {
	c, o := s.chunkOf(a)
	switch {
	case c == nil:
	case on:
		c.sets().overridden.set(o)
	case c.isOverridden(o):
		c.sets().overridden.unset(o)
	}
}

func (s *Store) pageError(a Addr, format string, args ...any) error {
	return &PageError{Path: s.path, Addr: a, What: fmt.Sprintf(format, args...)}
}

const noSuchReference = "a reference leads here, and the space map says that nothing is here"

// verifyPage verifies a whole page of the given kind and sets its checked bit. Damage is posted as an event, except beside a writer: what looks
// like damage there may be a page that was used again.
func (s *Store) verifyPage(a Addr, kind Kind) ([]byte, error) {
	if s.beside != nil {
		return s.copyPage(a, kind)
	}
	p, err := s.checkPage(a, kind)
	if err != nil && errors.Is(err, ErrCorrupt) {
		s.events.Post(event.Event{Kind: event.Corruption, Err: err})
	}
	return p, err
}

func (s *Store) checkPage(a Addr, kind Kind) ([]byte, error) {
	c, o := s.chunkOf(a)
	salt, ok := s.space.SaltOf(a)
	if c == nil || !ok {
		return nil, s.pageError(a, "no such page in the file")
	}
	if c.isUnsynced(o) {
		return s.copyUnsynced(a, kind, salt)
	}
	if err := s.settlePrivate(a); err != nil {
		return nil, err
	}
	p := c.page(o)
	m := getMux(p)
	switch {
	case s.marked && kind != KindTree && !s.IsUsed(a):
		return nil, s.pageError(a, noSuchReference)
	case m.crc != pageCRC(salt, a, p):
		return nil, s.pageError(a, "checksum")
	case m.kind != kind:
		return nil, s.pageError(a, "kind %d where %d belongs", m.kind, kind)
	}
	var err error
	if kind == KindTree {
		err = s.opts.CheckNode(p)
	} else if kind == KindRun {
		err = s.verifyRun(a, p)
	} else if kind == KindRecord {
		p, err = s.verifySpan(a, c.data[o*PageSize:])
	}
	if err != nil {
		return nil, s.pageError(a, "%v", err)
	}
	if kind == KindTree && s.marked && !s.UseNode(a) { // only now: a page that fails verification must not count as a node
		return nil, s.pageError(a, noSuchReference)
	}
	b := c.sets()
	b.checked.set(o)
	if kind == KindRecord {
		b.record.setAll(o, len(p)/PageSize)
	}
	return p, nil
}

// forget clears the bits of a segment that is about to be reused.
func (s *Store) forget(segment uint32) {
	n := uint64(s.segmentPages)
	c, o := s.chunkOf(s.firstPage(segment))
	if c == nil {
		return
	}
	if b := c.bits.Load(); b != nil {
		b.checked.unsetAll(o, n)
		b.record.unsetAll(o, n)
		b.unsynced.unsetAll(o, n)
		b.extent.unsetAll(o, n)
		b.overridden.unsetAll(o, n)
	}
}
