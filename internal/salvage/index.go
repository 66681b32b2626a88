package salvage

import (
	"cmp"
	"context"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// An entry is a sound page of the log.
type entry struct {
	addr  logstore.Addr
	name  logstore.PageID
	group uint64
	index uint32 // as in the mux area; for the last page of a group, the number of pages of the group
	span  uint32 // pages that the entry takes, including its raw pages
	kind  logstore.Kind
	in    logstore.GroupKind
	level uint8 // of a tree page
	last  bool
}

// A group is the sound pages of one group of the log, in their order.
type group struct {
	no    uint64
	kind  logstore.GroupKind
	pages []entry
	whole bool
}

// index reads the whole file and collects its sound pages in refs, sorted by group and place in the group. Segments
// whose header is lost are read last, because checkpoints found in the other segments may know their salts.
func (s *salvager) index(ctx context.Context) error {
	var lost []uint32
	err := s.f.EachSegment(func(n uint32) error {
		if g := s.f.Segment(n); !g.Known {
			lost = append(lost, n)
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	err = s.f.EachSegment(func(n uint32) error {
		if g := s.f.Segment(n); !g.Known || g.Private() {
			return ctx.Err()
		}
		return s.indexSegment(ctx, n)
	})
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		s.sort()
		for _, c := range s.checkpoints(2) {
			for n, e := range c.live {
				s.f.NoteSalt(uint32(n), e.Salt)
			}
		}
	}
	for _, n := range lost {
		if err := s.f.Recover(n); err != nil {
			return err
		}
		if !s.f.Segment(n).Known {
			continue
		}
		s.result.Headers++
		if err := s.indexSegment(ctx, n); err != nil {
			return err
		}
	}
	s.sort()
	return nil
}

func (s *salvager) indexSegment(ctx context.Context, n uint32) error {
	err := s.f.EachSound(n, func(a uint64, h logstore.PageHead, p []byte) {
		if h.No == 0 { // a page of a run in a private segment whose header is lost
			return
		}
		r := entry{addr: a, name: h.Name, group: h.No, index: h.Pages, span: uint32(s.f.Span(a, &h, p)), kind: h.Kind, in: h.Group, last: h.Last}
		if h.Kind == logstore.KindTree {
			if btree.CheckPage(p) != nil {
				return
			}
			r.level = uint8(btree.View(p).Level())
		}
		s.refs = append(s.refs, r)
	})
	s.tell(int64(s.f.SegmentPages) * logstore.PageSize)
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// sort sorts the pages. If several have the same place in the same group, it keeps the one in the segment that the
// log entered last: a group that was cut off may have left pages with the number of a later group.
func (s *salvager) sort() {
	place := func(r *entry) uint64 { // place of the page in its group
		if r.last {
			return uint64(r.index) - uint64(min(r.span, r.index))
		}
		return uint64(r.index)
	}
	entered := func(r *entry) uint64 { return s.f.Segment(s.f.SegmentOf(r.addr)).Header.Sequence }
	slices.SortFunc(s.refs, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(place(&a), place(&b)), -cmp.Compare(entered(&a), entered(&b)), cmp.Compare(a.addr, b.addr))
	})
	s.refs = slices.CompactFunc(s.refs, func(a, b entry) bool { return a.group == b.group && place(&a) == place(&b) })
}

// groups calls fn for each group after the given one that has a sound page, in order.
func (s *salvager) groups(behind uint64, fn func(g group) error) error {
	from, _ := slices.BinarySearchFunc(s.refs, behind+1, func(r entry, no uint64) int { return cmp.Compare(r.group, no) })
	for from < len(s.refs) {
		end := from + 1
		for end < len(s.refs) && s.refs[end].group == s.refs[from].group {
			end++
		}
		if err := fn(groupOf(s.refs[from:end])); err != nil {
			return err
		}
		from = end
	}
	return nil
}

func groupOf(pages []entry) group {
	g := group{no: pages[0].group, kind: pages[0].in, pages: pages}
	next := uint64(0)
	for i := range pages {
		r := &pages[i]
		if r.last {
			g.whole = i == len(pages)-1 && next+uint64(r.span) == uint64(r.index)
			return g
		}
		if uint64(r.index) != next || r.in != g.kind {
			return g
		}
		next += uint64(r.span)
	}
	return g
}

// newestGroup returns the number of the newest group, and whether it is complete.
func (s *salvager) newestGroup() (no uint64, whole bool) {
	if len(s.refs) == 0 {
		return 0, true
	}
	no = s.refs[len(s.refs)-1].group
	_ = s.groups(no-1, func(g group) error {
		whole = g.whole
		return nil
	})
	return no, whole
}
