package logstore

// Contents returns, in order, the live pages of a segment that can move: pages of trees and the first pages of
// value runs. It also returns the number of the other live pages: lists of extents, damaged pages, and pages of
// damaged runs.
func (s *reader) Contents(segment uint32) (tree, runs []Addr, others int64) {
	first, live := s.firstPage(segment), s.space.LiveMap(segment)
	for o := uint64(0); o < uint64(len(live))*64; o++ {
		if live[o/64]>>(o%64)&1 == 0 {
			continue
		}
		switch kind, name, err := s.KindAt(first + o); {
		case err != nil:
			others++
		case kind == KindRecord: // see LoggedIn
			o += max(s.spanOf(first+o, name), 1) - 1
		case kind == KindTree:
			tree = append(tree, first+o)
		default:
			form, payload, err := s.run(first + o)
			if err != nil || form == runList {
				others++
			} else {
				runs = append(runs, first+o)
			}
			if err == nil {
				o += uint64(RunPages(int64(len(payload)))) - 1
			}
		}
	}
	return tree, runs, others
}

// KindAt returns the kind and the name of the live page at a, which is a page of a tree or the first page of a
// value run. It verifies the page.
func (s *reader) KindAt(a Addr) (kind Kind, name PageID, err error) {
	c, o := s.chunkOf(a)
	if c == nil {
		return 0, 0, s.pageError(a, "no such page in the file")
	}
	p := c.page(o)
	if kind = PageKind(p); kind != KindTree && kind != KindRecord {
		kind = KindRun
	}
	if !c.isChecked(o) {
		if p, err = s.verifyPage(a, kind); err != nil {
			return 0, 0, err
		}
	}
	return kind, getMux(p).name, nil
}
