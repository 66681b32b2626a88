package logstore

// After a crash the log continues right after its last group. Remnants of interrupted groups may still lie there: a part
// of a group, or whole groups after a hole. New pages are then written among them. After another power cut, when only
// some sectors of the new pages are on the device, a remnant might continue the chain and be taken for a part of the
// log. So recovery invalidates remnants: it overwrites them in place before anything is appended.
//
//   - An invalid page is zero except for its group's number. It has no kind, so it is no page of the log.
//   - An invalid header is unchanged except for its group, which is 0. It continues no chain.
//
// Invariants:
//
//  1. Every remnant that could join is invalid on the device before a page is appended, because the sync of
//     EndRecovery lies in between. If a crash ends recovery before that sync, recovery has shown nothing. It leaves
//     each page unchanged, invalid, or with some sectors of each. In all three cases the first sector still holds the
//     group's number (or the predecessor, in a header), so the next recovery finds the same remnants.
//  2. If that sync fails, the system may show a page as invalid and take it for written, while the device still has
//     the old page. The next recovery overwrites it again, because the number is the same. The log that it finds may
//     end earlier than the one found now, but not later: a failed sync can only lose pages.
//  3. Nothing of the log is invalidated, only pages after its end in its last segment, and the header of the
//     successor, which the log has not entered. A reader beside the writer may still look at pages there from an
//     earlier life of the segment; that reader will soon get ErrSnapshotTooOld anyway.

// A remnant is a page that may belong to an interrupted group.
type remnant struct {
	addr  Addr
	group uint64
}

// remnants finds the pages that could join the log from here on.
//
// These are the pages from here to the end of the segment that name a group as which they could be accepted. Groups
// are numbered consecutively and take at least one page, so the page n places after this one can only belong to one
// of the next n+1 groups. If a page of such a group does not name the group, at least its first sector is not on
// the device, and only that same page could supply the sector. A page that names any other group is from an earlier
// life of the segment, or a user's bytes. No page becomes a candidate later, because each group that the log
// appends takes at least as many pages as numbers.
//
// The successor's header is a remnant too, if it was opened from this segment. Once that header is invalid, no
// other segment of the chain holds a page of an interrupted group: before the log enters the successor, the segment
// gets another salt.
func (sc *scanner) remnants() (pages []remnant, successor *header, err error) {
	last := sc.s.firstPage(sc.segment) + uint64(sc.s.segmentPages)
	for a := sc.here(); a < last; a++ {
		p, err := sc.window.page(a)
		if err != nil {
			return nil, nil, err
		}
		if p == nil {
			break
		}
		if g := getMux(p).group; g >= sc.group && g-sc.group <= a-sc.here() {
			pages = append(pages, remnant{a, g})
		}
	}
	h, err := sc.openedFrom(sc.header.successor, sc.header.salt)
	return pages, h, err
}

// openedFrom returns the header of segment n if either of its copies names salt as its predecessor. One copy
// suffices: if the first one is damaged later, the other one counts.
func (sc *scanner) openedFrom(n uint32, salt uint64) (*header, error) {
	p, err := sc.readHeader(n)
	if err != nil || len(p) < PageSize {
		return nil, err
	}
	for _, at := range []int{0, headerCopyAt} {
		h, ok := getHeaderCopy(p[at:])
		if ok && h.predecessor == salt && h.segment == n && h.uuid == sc.s.uuid {
			return &h, nil
		}
	}
	return nil, nil
}

// invalidate overwrites the remnants that recovery has found.
func (s *Store) invalidate(rec *Recovery) error {
	buf := make([]byte, PageSize)
	for _, r := range rec.remnants {
		m := mux{group: r.group}
		m.put(buf)
		if _, err := s.file.WriteAt(buf, int64(r.addr)*PageSize); err != nil {
			return err
		}
	}
	if h := rec.successor; h != nil {
		h.group = invalidGroup
		return s.writeHeader(h, buf)
	}
	return nil
}
