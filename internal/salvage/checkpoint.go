package salvage

import (
	"flashdbm/logstore"
	"flashdbm/override"
)

// A checkpoint is a checkpoint in the log all of whose pages are sound.
type checkpoint struct {
	last  uint64 // number of its last group
	table override.Table
	live  []logstore.MapEntry // indexed by segment
}

// isLive reports whether the tree used a page at the time of the checkpoint.
func (c *checkpoint) isLive(a logstore.Addr, segmentPages uint32) bool {
	n := a / uint64(segmentPages)
	return n < uint64(len(c.live)) && c.live[n].IsLive(a%uint64(segmentPages))
}

// checkpointTries bounds how many groups are tried as the last group of a checkpoint, because each try
// reads the checkpoint.
const checkpointTries = 256

// checkpoints returns at most most complete checkpoints, newest first.
func (s *salvager) checkpoints(most int) (all []*checkpoint) {
	tries := checkpointTries
	for end := len(s.refs); end > 0 && len(all) < most && tries > 0; {
		from := end - 1
		for from > 0 && s.refs[from-1].group == s.refs[end-1].group {
			from--
		}
		if g := groupOf(s.refs[from:end]); g.kind == logstore.CheckpointGroup && g.whole {
			tries--
			if c := s.checkpointAt(end); c != nil {
				all = append(all, c)
			}
		}
		end = from
	}
	return all
}

// checkpointAt returns the checkpoint whose last group ends before page end of the index; nil if that group is not
// the last one of a checkpoint, or the checkpoint is incomplete.
func (s *salvager) checkpointAt(end int) *checkpoint {
	last := s.refs[end-1]
	h, err := s.f.ReadSound(last.addr, s.buf)
	if err != nil {
		return nil
	}
	first := h.Count
	var parts []group
	for i := end; i > 0 && s.refs[i-1].group >= first; {
		from := i - 1
		for from > 0 && s.refs[from-1].group == s.refs[i-1].group {
			from--
		}
		if g := groupOf(s.refs[from:i]); g.kind == logstore.CheckpointGroup {
			h, err := s.f.ReadSound(s.refs[i-1].addr, s.buf)
			if err != nil || !g.whole || h.Count != first {
				return nil
			}
			parts = append(parts, g)
		}
		i = from
	}
	if len(parts) == 0 || parts[len(parts)-1].no != first {
		return nil
	}
	var stream []byte
	for i := len(parts) - 1; i >= 0; i-- {
		for _, r := range parts[i].pages {
			if _, err := s.f.ReadSound(r.addr, s.buf); err != nil {
				return nil
			}
			stream = append(stream, s.buf[logstore.MuxSize:logstore.PageSize]...)
		}
	}
	if n, ok := logstore.CheckpointBytes(stream); !ok || n > uint64(len(stream)) || uint64(len(stream))-n >= logstore.BodySize {
		return nil
	}
	table, spaceMap, err := logstore.SplitCheckpoint(stream)
	if err != nil {
		return nil
	}
	c := &checkpoint{last: last.group}
	if c.table, err = override.DecodeTable(table); err != nil {
		return nil
	}
	if c.live, err = logstore.DecodeSpaceMap(spaceMap, s.f.SegmentPages); err != nil {
		return nil
	}
	return c
}
