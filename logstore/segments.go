package logstore

// Segment describes a segment of the file.
type Segment struct {
	State SegmentState
	Live  int    // pages that the newest tree uses
	Group uint64 // newest group that wrote into it, 0 if that is not known
}

// SegmentState is what a segment is used for.
type SegmentState uint8

const (
	Absent SegmentState = iota // has no space: given back to the file system
	Free                       // has space and may be opened at once
	Log                        // holds pages of the log, alive or dead
	Values                     // holds values of more than a segment's run, off the log's chain
	Tail                       // is where the log is being written
	Next                       // is where it goes on
)

// Segments describes all segments of the file in the order of their addresses. It takes memory and time for each of them.
func (s *Store) Segments() []Segment {
	sp := s.space
	sp.mu.Lock()
	defer sp.mu.Unlock()
	n := (sp.pages + sp.segmentPages - 1) / sp.segmentPages
	all := make([]Segment, min(n, uint64(len(sp.segments))))
	for i := range all {
		g := &sp.segments[i]
		all[i] = Segment{Live: int(g.live), Group: g.written}
		switch {
		case uint32(i) == sp.tail:
			all[i].State = Tail
		case uint32(i) == sp.successor && g.state != segmentAbsent:
			all[i].State = Next
		case g.state == segmentAbsent:
			all[i].State = Absent
		case g.state == segmentFree:
			all[i].State = Free
		case g.state == segmentPrivate || g.sequence == 0 && g.salt != 0:
			all[i].State = Values
		default:
			all[i].State = Log
		}
	}
	return all
}

// RestOfSegment returns how many pages the segment that the log is written in has room for. Baton holder.
func (s *Store) RestOfSegment() int64 { return int64(s.segmentPages) - int64(s.tail.page) }
