package salvage

import (
	"flashdbm/internal/pagefile"
	"flashdbm/logstore"
)

// Pages that are lost inside the log leave a gap in the numbers of the groups. At its end nothing does: a later page
// would show that there was more, and there is none. There are these signs that groups may be missing behind the
// newest one of which a page is sound:
//
//   - A superblock names a later group, or a checkpoint and none can be read: which segments the log went to is unknown.
//   - The page behind it names the next group, or the digest that this page was to have. A crash leaves that too.
//   - A segment without a readable header may hold more: its pages could not be recognized.
//   - The log was to go on in a segment that the file does not have.
//
// Where all pages behind the newest group are lost together with the header of their segment, or are in its own
// segment and all lost, it looks as if they had never been written: then nothing is told, and what is recovered is the
// state after the newest group.

// ending looks for signs of groups behind the newest one that was found.
type ending struct {
	f          *pagefile.File
	checkpoint *checkpoint
}

// end tells what is missing at the end of the log, of which newest is the newest group found.
func (s *salvager) end(newest uint64) error {
	e := ending{s.f, s.checkpoint}
	if known := e.knownGroup(); newest < known {
		s.lose(newest+1, known)
	}
	if sb := s.f.Newest(); sb != nil && s.checkpoint == nil {
		err := s.f.Error(s.f.FirstPage(sb.Run.Segment)+uint64(sb.Run.Page), "neither this checkpoint nor another one can be read, and the groups before and behind it may be missing too")
		s.missing(Missing{Scope: Groups, FirstGroup: sb.FirstGroup, LastGroup: sb.LastGroup, Err: err})
	}
	if len(s.refs) > 0 && s.result.Dropped == 0 && e.began(&s.refs[len(s.refs)-1], s.buf) {
		s.result.Dropped = newest + 1
	}
	if g, n := e.lastSegment(); g != nil && s.f.FirstPage(g.Header.Successor) >= s.f.Pages {
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

// began reports whether the group behind the given page, the last one of the log, had begun to be written. It uses buf
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

// lastSegment returns the segment with a readable header that the log entered last; nil if there is none.
func (e ending) lastSegment() (last *pagefile.Segment, no uint32) {
	for _, n := range e.f.Segments() {
		if g := e.f.Segment(n); g.HasHeader && !g.Private() && (last == nil || g.Header.Sequence > last.Header.Sequence) {
			last, no = g, n
		}
	}
	return last, no
}

// salted reports whether the salt of a segment without a header is known for certain: the newest checkpoint that ever
// was says that pages of it are in use, so it has not been entered since.
func (e ending) salted(n uint32) bool {
	c := e.checkpoint
	return c != nil && e.f.Supers[0].Err == nil && e.f.Supers[1].Err == nil && c.last == e.knownGroup() &&
		uint64(n) < uint64(len(c.live)) && len(c.live[n].Live) > 0
}
