package space

// Account says what the segments of the file are used for, in pages. The sum of the fields is the space that
// the file takes.
type Account struct {
	Live    int64 // pages that the newest tree uses, wherever they lie
	Log     int64 // other pages in segments written since the scan start of the newest checkpoint: redo, and pages that died since
	Sparse  int64 // other pages in older segments that have live pages
	Waiting int64 // pages of segments without live pages that wait for checkpoints
	Named   int64 // pages of segments without live pages that wait until names in the table are gone
	Held    int64 // pages of segments without live pages that wait until readers end
	Values  int64 // dead pages in segments of large values
	Free    int64 // pages that may be written at once
	Leaving int64 // pages of segments that are condemned and not given back yet
}

// Account counts the pages. While a checkpoint is in progress the result may be off by what the checkpoint
// frees.
func (sp *Reuse) Account() (a Account) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	size, start := int64(sp.segmentPages), sp.log.newest().Start
	for n := range sp.whole() {
		g := &sp.segments[n]
		live := int64(g.live)
		a.Live += live
		switch {
		case g.state == segmentAbsent:
			if _, ok := sp.absent.leaving[n]; ok {
				a.Leaving += size
			}
		case n == sp.log.tail:
			a.Log += int64(sp.log.tailPage) - live
			a.Free += size - int64(sp.log.tailPage)
		case g.state == segmentFree || n == sp.log.successor:
			a.Free += size
		case g.state == segmentPrivate || g.sequence == 0:
			a.Values += size - live
		case g.written >= start:
			a.Log += size - live
		case live > 0:
			a.Sparse += size - live
		case sp.held(n):
			a.Held += sp.pagesOf(n)
		case g.names > 0:
			a.Named += size
		default:
			a.Waiting += size
		}
	}
	return a
}

// Segment describes a segment of the file.
type Segment struct {
	State SegmentState
	Live  int    // pages that the newest tree uses
	Group uint64 // newest group that wrote into it, 0 if that is not known
}

// SegmentState is what a segment is used for.
type SegmentState uint8

const (
	StateAbsent SegmentState = iota // has no space: given back to the file system
	StateFree                       // has space and may be opened at once
	StateLog                        // holds pages of the log, live or dead
	StateValues                     // holds extents of large values, outside of the log's chain
	StateTail                       // the segment that the log is written in
	StateNext                       // the segment in which the log continues
)

// Segments describes all segments of the file in the order of their addresses. It takes memory and time in
// proportion to their number.
func (sp *Reuse) Segments() []Segment {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	n := (sp.pages + sp.segmentPages - 1) / sp.segmentPages
	all := make([]Segment, min(n, uint64(len(sp.segments))))
	for i := range all {
		g := &sp.segments[i]
		all[i] = Segment{Live: int(g.live), Group: g.written}
		switch {
		case uint32(i) == sp.log.tail:
			all[i].State = StateTail
		case uint32(i) == sp.log.successor && g.state != segmentAbsent:
			all[i].State = StateNext
		case g.state == segmentAbsent:
			all[i].State = StateAbsent
		case g.state == segmentFree:
			all[i].State = StateFree
		case g.state == segmentPrivate || g.sequence == 0 && g.salt != 0:
			all[i].State = StateValues
		default:
			all[i].State = StateLog
		}
	}
	return all
}
