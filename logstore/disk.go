package logstore

import (
	"fmt"
	"io"
	"math/bits"
	"sync"
	"sync/atomic"

	"flashdbm/internal/event"
	"flashdbm/logstore/format"
	"flashdbm/logstore/space"
	"flashdbm/logstore/vfs"
)

// disk is the file of a store: its identity, its segment size, and whether the store has failed.
type disk struct {
	file         vfs.File
	fs           vfs.FS
	path         string
	opts         Options
	uuid         [16]byte
	lineage      uint64 // lineage in the superblocks; set by Open and EndRecovery
	segmentPages uint32
	segmentShift uint
	space        *space.Map
	growing      sync.Mutex // held while the file grows; guards mapping.chunks; taken before syncing and the mutex of the space map
	failed       atomic.Pointer[failedError]
	events       *event.Hub // nil, or told of slow syncs, of damage, and of the error that poisons the store
}

func (s *disk) setSegmentPages(n uint32) {
	s.segmentPages = n
	s.segmentShift = uint(bits.TrailingZeros32(n))
}

func (s *disk) segmentOf(a Addr) uint32 { return uint32(a >> s.segmentShift) }

func (s *disk) firstPage(segment uint32) Addr { return Addr(segment) << s.segmentShift }

// Path returns the name by which the file was opened.
func (s *disk) Path() string { return s.path }

// UUID returns the file's identity, drawn at its creation.
func (s *disk) UUID() [16]byte { return s.uuid }

// SegmentPages returns the file's segment size in pages.
func (s *disk) SegmentPages() uint32 { return s.segmentPages }

// Failed returns the error that poisoned the store, or nil.
func (s *disk) Failed() error {
	if f := s.failed.Load(); f != nil {
		return f
	}
	return nil
}

// fail poisons the store, and returns the error that the store returns from now on: that of the first call.
func (s *disk) fail(err error) error {
	if f := (&failedError{err}); s.failed.CompareAndSwap(nil, f) {
		s.events.Post(event.Event{Kind: event.Poisoned, Err: f})
	}
	return s.failed.Load()
}

// Fail poisons the store for a reason found by the caller.
func (s *disk) Fail(err error) error { return s.fail(err) }

// Tell sets the hub to which the store posts events. The caller calls it before other goroutines use the store.
func (s *disk) Tell(events *event.Hub) { s.events = events }

// End returns the number of pages of the file, punched ones included.
func (s *disk) End() Addr { return s.space.End() }

// InFile reports whether the n pages from a on are in the file and in one segment.
func (s *disk) InFile(a Addr, n int64) bool {
	end := s.space.End()
	return n > 0 && a > 1 && a < end && uint64(n) <= end-a && s.segmentOf(a+uint64(n)-1) == s.segmentOf(a)
}

func (s *disk) pageError(a Addr, format string, args ...any) error {
	return &PageError{Path: s.path, Addr: a, What: fmt.Sprintf(format, args...)}
}

// stretchPages is the largest number of pages of the log that background work reads or writes in one call: a
// part, but at most a segment.
func (s *disk) stretchPages() uint64 { return min(partPages, uint64(s.segmentPages)) }

// read reads pages, from page a on, into b, and returns how many bytes the file has there. It zeroes the rest
// of b.
func (s *disk) read(b []byte, a Addr) (n int, err error) {
	n, err = s.file.ReadAt(b, int64(a)*PageSize)
	if err != nil && err != io.EOF {
		return n, fmt.Errorf("flashdbm: read %s: %w", s.path, err)
	}
	clear(b[n:])
	return n, nil
}

// writeHeader writes both copies of a header. buf has room for one page.
func (s *disk) writeHeader(h *header, buf []byte) error {
	h.put(buf)
	_, err := s.file.WriteAt(buf[:PageSize], int64(s.firstPage(h.segment)+headerPage(h.segment))*PageSize)
	return err
}

func headerPage(segment uint32) uint64 { return format.HeaderPage(segment) }
