package logstore

// After a crash the log goes on right behind its last group. What was cut off there, a part of a group or whole groups behind a hole, may
// still lie in the way: beside new pages, or beside those sectors of new pages that the next power cut lets through, it could join the log.
// So recovery voids it: what can be told of it is written over, in place, before anything is appended.
//
//   - A voided page is zero but for its group's number: it is of no kind, so it is no page of the log.
//   - A voided header is as it was, with group 0: it continues no chain.
//
// Invariants:
//
//  1. What could join is void on the disk before a page is appended: the sync of EndRecovery lies in between. A power cut before that
//     leaves each page as it was, or void, or broken.
//  2. What was void is found again: by the number, or the predecessor. If that sync fails, the system may show a page as void and believe
//     it is on the disk; so the next recovery writes it again, as it does with the groups that it accepts.
//  3. Nothing of the log is voided: only what lies behind its end, in its last segment, and the header of the successor, which it has not
//     entered.

// A remnant is a page that may be of a group that was cut off.
type remnant struct {
	addr  Addr
	group uint64
}

// remnants finds what could join the log from here on.
//
// That is each page from here to the end of the segment that names the next group, or a later one: no other can follow. Of a page of such
// a group that does not name it, at least the first sector is not on the disk, and a page that supplies that sector is that page. Some
// that do are of an earlier life of the segment, or a user's bytes, and could not join; but they are as dead.
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
		if g := getMux(p).group; g >= sc.group {
			pages = append(pages, remnant{a, g})
		}
	}
	h, ok, err := sc.headerOf(sc.header.successor)
	if err != nil || !ok || h.predecessor != sc.header.salt {
		return pages, nil, err
	}
	return pages, &h, nil
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
