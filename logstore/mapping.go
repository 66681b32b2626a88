package logstore

import (
	"fmt"
	"math/bits"
	"reflect"
	"sync/atomic"
)

// A chunk is one mapping of the file, with four bits per page. Chunks are mapped as the file grows into them and
// live until the store is closed, so a slice of a page never moves.
//
// The bits are allocated when the first of them is set. A mapping takes address space only, so the memory for a
// long file with few pages is proportional to its pages.
//
//   - checked: the page's checksum and structure were verified since the segment was last opened for writing. Set
//     by readers, and by a sync that covers what the appender wrote. Cleared by the appender when it reuses a
//     segment; no reader can look at that segment then.
//   - unsynced: the appender wrote the page and no sync has covered it: see unsynced.go.
//   - extent: like checked, for the extent of a large value that begins here. Such a page holds a user's bytes,
//     whatever they look like.
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

// pageSet is a set of the pages of a chunk. Each operation is atomic; a goroutine that sees a bit also sees
// everything written before it was set.
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

// mapping has the mappings of the file. A store beside a writer maps nothing.
type mapping struct {
	*disk
	chunkShift uint
	chunks     atomic.Pointer[[]*chunk] // replaced as a whole; only grows
}

// setChunkPages sets the number of pages of a mapping: the given number, but at least a segment; 0 means the
// default.
func (s *mapping) setChunkPages(pages uint64) {
	if pages == 0 {
		pages = defaultChunkPages
	}
	s.chunkShift = uint(bits.TrailingZeros64(max(pages, uint64(s.segmentPages))))
}

// mapTo maps chunks until the first n pages of the file are covered. The caller holds growing, or the store is
// not shared yet.
func (s *mapping) mapTo(n uint64) error {
	if s.opts.Beside {
		return nil
	}
	chunks := *s.chunks.Load()
	if uint64(len(chunks))<<s.chunkShift >= n {
		return nil
	}
	longer := chunks[:len(chunks):len(chunks)] // append copies it, because readers use the published slice
	defer func() { s.chunks.Store(&longer) }() // even after an error, so that unmap finds all chunks
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

func (s *mapping) unmap() error {
	var first error
	for _, c := range *s.chunks.Load() {
		if err := s.file.Unmap(c.data); err != nil && first == nil {
			first = err
		}
	}
	s.chunks.Store(&[]*chunk{})
	return first
}

func (s *mapping) chunkOf(a Addr) (*chunk, uint64) {
	chunks := *s.chunks.Load()
	i := a >> s.chunkShift
	if i >= uint64(len(chunks)) {
		return nil, 0
	}
	return chunks[i], a & (1<<s.chunkShift - 1)
}

// Faulted returns the error for a memory fault at an address, if the address lies in a mapping of the file: the
// file was cut short, or the device failed.
func (s *mapping) Faulted(at uintptr) (error, bool) {
	for i, c := range *s.chunks.Load() {
		if start := reflect.ValueOf(c.data).Pointer(); start <= at && at-start < uintptr(len(c.data)) {
			return s.pageError(Addr(i)<<s.chunkShift+Addr(at-start)/PageSize, "the mapping cannot be read: was the file cut short?"), true
		}
	}
	return nil, false
}

// Overridden reports whether the translation table has an entry for the page at a.
func (s *mapping) Overridden(a Addr) bool {
	c, o := s.chunkOf(a)
	if c == nil { // beside a writer there are no bits, so every name is looked up
		return s.opts.Beside
	}
	return c.isOverridden(o)
}

// SetOverridden sets or clears the bit that Overridden reports.
func (s *mapping) SetOverridden(a Addr, on bool) {
	c, o := s.chunkOf(a)
	switch {
	case c == nil:
	case on:
		c.sets().overridden.set(o)
	case c.isOverridden(o):
		c.sets().overridden.unset(o)
	}
}

// forget clears the bits of a segment that is about to be reused.
func (s *mapping) forget(segment uint32) {
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
