package dbm

import "flashdbm/mvcc"

// Segment describes a segment of the file: the unit in which space is reused.
type Segment struct {
	Kind  string `json:"kind"`       // one of the constants below
	Bytes int64  `json:"bytes"`      // size of the segment
	Live  int64  `json:"live_bytes"` // bytes of the pages that the newest tree uses
	Group uint64 `json:"group"`      // number of the newest log group in the segment; 0 if none or unknown
}

// Kinds of segments.
const (
	SegmentAbsent = "absent" // has no space on disk: the space was returned to the file system
	SegmentFree   = "free"   // can be written at once
	SegmentLog    = "log"    // has pages of the log, live or dead: pages of the tree, values, commits
	SegmentValues = "values" // has large values
	SegmentTail   = "tail"   // the log is being written here
	SegmentNext   = "next"   // where the log goes on after the tail
)

var segmentKinds = [...]string{SegmentAbsent, SegmentFree, SegmentLog, SegmentValues, SegmentTail, SegmentNext}

// Segments describes all segments of the file, by ascending offset; nil after Close. Its time and memory are
// proportional to their number.
func (db *DB) Segments() []Segment {
	var all []Segment
	_ = db.maintain(func(e *mvcc.Engine) error {
		raw, bytes := e.Segments()
		all = make([]Segment, len(raw))
		for i, s := range raw {
			all[i] = Segment{Kind: segmentKinds[s.State], Bytes: bytes, Live: int64(s.Live) * pageBytes, Group: s.Group}
		}
		return nil
	})
	return all
}

const pageBytes = 4096
