package salvage

import (
	"flashdbm/internal/pagefile"
	"flashdbm/logstore"
)

// Pages that are lost inside the log leave a gap in the numbers of the groups. Pages lost at its end leave no gap,
// because no later page is there. These are the signs that groups may be missing after the newest group with a sound
// page:
//
//   - A superblock names a later group; or it names a checkpoint and no checkpoint can be read, so that the segments of
//     the log are unknown.
//   - The page after the newest group names the next group, or has the digest that the next page should have. A
//     crash can leave the same.
//   - A segment without a readable header may hold more: its pages could not be recognized.
//   - The log continues in a segment that the file does not have. But the header of the last segment names such a
//     segment also in a file that has not grown since it was created or written as a backup: see fresh.
//
// If all pages after the newest group are lost, and either they are in its segment or the header of their segment is
// lost too, the file looks as if they had never been written. Then no loss is reported, and the recovered state is
// that after the newest group.

// ending looks for signs of groups after the newest one that was found.
type ending struct {
	f          *pagefile.File
	checkpoint *checkpoint
}

// end reports what is missing at the end of the log; newest is the newest group found.
func (s *salvager) end(newest uint64) error {
	e := ending{s.f, s.checkpoint}
	if known := e.knownGroup(); newest < known {
		s.lose(newest+1, known)
	}
	if sb := s.f.Newest(); sb != nil && s.checkpoint == nil {
		err := s.f.Error(s.f.FirstPage(sb.Run.Segment)+uint64(sb.Run.Page), "neither this checkpoint nor another one can be read, and the groups before and behind it may be missing too")
		s.missing(Missing{Scope: Groups, FirstGroup: sb.FirstGroup, LastGroup: sb.LastGroup, Err: err})
	}
	var last *entry
	if len(s.refs) > 0 {
		last = &s.refs[len(s.refs)-1]
	}
	if last != nil && s.result.Dropped == 0 && e.began(last, s.buf) {
		s.result.Dropped = newest + 1
	}
	if g, n := e.lastSegment(); g != nil && s.f.FirstPage(g.Header.Successor) >= s.f.Pages && !e.fresh(last, &g.Header) {
		s.missing(Missing{Scope: Segment, Page: s.f.FirstPage(n), Err: s.f.Error(s.f.FirstPage(n), "the log goes on in segment %d, which is not in the file", g.Header.Successor)})
	}
	return s.f.EachSegment(func(n uint32) error {
		if e.salted(n) || !s.f.MayHoldMore(n, newest) {
			return nil
		}
		a := s.f.FirstPage(n) + logstore.HeaderPage(n)
		s.missing(Missing{Scope: Segment, Page: a, Err: s.f.Error(a, "the header of segment %d is lost, and not all of its pages could be recognized", n)})
		return nil
	})
}

// knownGroup returns the newest group that a superblock mentions.
func (e ending) knownGroup() (no uint64) {
	for i := range e.f.Supers {
		if sb := &e.f.Supers[i]; sb.Err == nil {
			no = max(no, sb.LastGroup)
		}
	}
	return no
}

// began reports whether the write of the group after the given page, the last one of the log, had begun. It uses buf
// to read pages.
func (e ending) began(last *entry, buf []byte) bool {
	next := last.addr + uint64(last.span)
	if e.f.SegmentOf(next) != e.f.SegmentOf(last.addr) || e.f.Read(last.addr, buf) != nil {
		return false
	}
	h := logstore.DecodePageHead(buf)
	digest := h.DigestBehind()
	if e.f.Read(next, buf) != nil {
		return false
	}
	h = logstore.DecodePageHead(buf)
	return h.No == last.group+1 || h.Digest == digest
}

// fresh reports whether the file has not grown since it was created or written as a backup, and the log ends in it, as
// far as can be told. last is the last page of the log, nil if there is none, and h the header of the segment that the
// log entered last.
func (e ending) fresh(last *entry, h *logstore.SegmentHeader) bool {
	if last == nil {
		return false
	}
	end := last.addr + uint64(last.span)
	if sb := e.f.Newest(); sb != nil && sb.Run.Digest == 0 && sb.LastGroup == last.group { // nothing follows the checkpoint of a backup
		return e.f.Pages == logstore.ImagePages(end, uint64(e.f.SegmentPages))
	}
	// A program has opened the file since, and checkpoints or commits follow.
	if h.Segment == 0 {
		return end < e.f.Pages && logstore.IsCreated(e.f.Pages)
	}
	return end < e.f.Pages && h.Group <= lastImageGroup
}

// lastImageGroup is the newest group in a backup, whose checkpoint has one part unless the backup has gigabytes. In
// other files the headers of later segments than the first name later groups.
const lastImageGroup = 2

// lastSegment returns the segment with a readable header that the log entered last; nil if there is none.
func (e ending) lastSegment() (last *pagefile.Segment, no uint32) {
	for _, n := range e.f.Segments() {
		if g := e.f.Segment(n); g.HasHeader && !g.Private() && (last == nil || g.Header.Sequence > last.Header.Sequence) {
			last, no = g, n
		}
	}
	return last, no
}

// salted reports whether the salt of a segment without a header is known for certain. It is if the newest checkpoint
// that was ever written says that pages of the segment are in use, because the log cannot have entered the segment
// since.
func (e ending) salted(n uint32) bool {
	c := e.checkpoint
	return c != nil && e.f.Supers[0].Err == nil && e.f.Supers[1].Err == nil && c.last == e.knownGroup() &&
		uint64(n) < uint64(len(c.live)) && len(c.live[n].Live) > 0
}
