package logstore

// After a crash the log goes on right behind its last group. What was cut off there, a part of a group or whole groups behind a hole, may
// still lie in the way: beside new pages, or beside those sectors of new pages that the next power cut lets through, it could join the log.
// So recovery voids it: what can be told of it is written over, in place, before anything is appended.
//
//   - A void page is zero but for its group's number: it is of no kind, so it is no page of the log.
//   - A void header is as it was, with group 0: it continues no chain.
//
// Invariants:
//
//  1. What could join is void on the disk before a page is appended: the sync of EndRecovery lies in between. A recovery that a crash
//     ends before that has shown nothing; it leaves pages as they were, or void, or mixtures. All three have the number of the group in
//     their first sector, or the predecessor in that of a header, so the next recovery finds them as this one did.
//  2. If that sync fails, the system may show a page as void and believe that it is on the disk, where the old one still is. For the same
//     number the next recovery writes it once more. Its log may end earlier than this one's, but not later: bytes only get lost.
//  3. Nothing of the log is voided, only what lies behind its end, in its last segment, and the header of the successor, which it has not
//     entered. A reader beside may still look at pages there of an earlier life of the segment, which are as good as gone.

// A remnant is a page that may be of a group that was cut off.
type remnant struct {
	addr  Addr
	group uint64
}

// remnants finds what could join the log from here on.
//
// That is each page from here to the end of the segment that names a group as which it could be accepted: groups are numbered one after
// the other and take a page at least, so n pages behind this one only a group from the next one to the n-th behind it can be. Of a page
// of such a group that does not name it, at least the first sector is not on the disk, and a page that supplies that sector is that page.
// What names another group is of an earlier life of the segment, or a user's bytes. No page comes into question later: each group that
// the log appends takes as many pages at least as numbers.
//
// And it is the successor's header, if that was opened from this segment. With it void, no page of such a group is in any other segment
// of the chain: before the log enters that one, it gets another salt.
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

// openedFrom returns what is left of a header of segment n that names salt as its predecessor. Either copy will do: if the first one is
// damaged later, the other counts.
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

// void writes over what recovery has found of groups that were cut off.
func (s *Store) void(rec *Recovery) error {
	buf := make([]byte, PageSize)
	for _, r := range rec.remnants {
		m := mux{group: r.group}
		m.put(buf)
		if _, err := s.file.WriteAt(buf, int64(r.addr)*PageSize); err != nil {
			return err
		}
	}
	if h := rec.successor; h != nil {
		h.group = voidGroup
		return s.writeHeader(h, buf)
	}
	return nil
}
