package logstore

import (
	"flashdbm/logstore/format"
	"flashdbm/logstore/space"
)

// Names of packages format and space that callers of this package use.

const (
	PageSize  = format.PageSize
	MuxSize   = format.MuxSize
	BodySize  = format.BodySize
	BornBit   = format.BornBit
	MaxLogged = format.MaxLogged
	MaxSpan   = format.MaxSpan
)

type (
	Addr   = format.Addr
	PageID = format.PageID

	Claim        = space.Claim
	SpaceStats   = space.SpaceStats
	Account      = space.Account
	Segment      = space.Segment
	SegmentState = space.SegmentState
	Victim       = space.Victim
	Live         = space.Live
	MapEntry     = space.Entry
	SegmentTable = space.SegmentTable
	UsedPages    = space.Pages
)

const (
	ForWrites  = space.ForWrites
	ForDeletes = space.ForDeletes
	ForWant    = space.ForWant
)

const (
	Absent = space.StateAbsent
	Free   = space.StateFree
	Log    = space.StateLog
	Values = space.StateValues
	Tail   = space.StateTail
	Next   = space.StateNext
)

// IsAddr reports whether a name is an address.
func IsAddr(id PageID) bool { return format.IsAddr(id) }

// HeaderPage returns the index in a segment of the segment's header. Segment 0 begins with the two superblocks.
func HeaderPage(segment uint32) uint64 { return format.HeaderPage(segment) }

// DecodeSpaceMap decodes a space map of a file with segments of segmentPages pages.
func DecodeSpaceMap(b []byte, segmentPages uint32) ([]MapEntry, error) {
	return space.DecodeEntries(b, segmentPages)
}

// NewPageSet returns an empty set of pages of a file with segments of segmentPages pages.
func NewPageSet(segmentPages uint32) *UsedPages { return space.NewPages(segmentPages) }

// setSpace sets the map of the file's space.
func (s *Store) setSpace(m *space.Map) {
	s.space = m
	s.Usage, s.Readers, s.Reuse, s.Reservations = &m.Usage, &m.Readers, &m.Reuse, &m.Reservations
}

// enter tells the space map of a header of the chain. It reports whether the segment was never written since it got
// its space.
func (s *appender) enter(h header) (blank bool) {
	return s.space.Enter(h.segment, h.salt, h.sequence, h.group)
}

// setTail tells the space map where the log continues.
func (s *appender) setTail() {
	t := &s.tail
	s.space.SetTail(t.header.segment, t.page, t.header.successor)
}

// RestOfSegment returns how many pages the segment that the log is written in has room for. Called by the log's appender.
func (s *appender) RestOfSegment() int64 { return int64(s.segmentPages) - int64(s.tail.page) }
