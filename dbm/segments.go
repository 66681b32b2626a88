package dbm

import "flashdbm/mvcc"

// Segment describes a segment, the unit in which the file's space is used again.
type Segment struct {
	Kind  string `json:"kind"`       // see below
	Bytes int64  `json:"bytes"`      // its size
	Live  int64  `json:"live_bytes"` // pages that the newest tree uses
	Group uint64 `json:"group"`      // number of the newest group of the log that wrote into it; 0 if none or unknown
}

// Kinds of segments.
const (
	SegmentAbsent = "absent" // has no space: it was given back to the file system
	SegmentFree   = "free"   // may be written at once
	SegmentLog    = "log"    // has pages of the log: of the tree, values, commits; alive or dead
	SegmentValues = "values" // has large values
	SegmentTail   = "tail"   // the log is being written here
	SegmentNext   = "next"   // and goes on here
)

var segmentKinds = [...]string{SegmentAbsent, SegmentFree, SegmentLog, SegmentValues, SegmentTail, SegmentNext}

// Segments describes all segments of the file in the order of their place in it; nil after Close. It takes time and memory for each.
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
