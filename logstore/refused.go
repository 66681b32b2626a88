package logstore

// A file system may refuse to allocate what the file has: XFS does where less is free than the whole range would take. Writing there it
// does not refuse. So on a device without room, segments that may have their space, because a crash has made the map forget how they came
// to have it, are filled with zeros. One for which that fails is punched, and has none.
//
// Only absent segments are filled so: nothing lives in them, and no log that a recovery may start from leads there. The caller syncs
// before anything refers to them, as after any growth.

// recall finds an absent segment that has its space, and reports whether there was one. Each is tried once. The caller holds growing.
func (s *growth) recall() (found bool, err error) {
	for {
		n, ok := s.space.Unsure()
		if !ok {
			return false, nil
		}
		if found, err = s.fill(n); err != nil {
			return false, err
		}
		if found {
			s.syncing.Lock()
			defer s.syncing.Unlock()
			if err := s.datasync(); err != nil {
				return false, err
			}
			s.space.Filled(n, 1)
			return true, nil
		}
	}
}

// fill writes zeros to all of a segment, and reports whether there was space for them. Its first page is tried alone, so that next to
// nothing is taken where there is none.
func (s *growth) fill(n uint32) (filled bool, err error) {
	if err := s.shorter(); err != nil {
		return false, s.fail(err)
	}
	a, end := s.firstPage(n), s.firstPage(n+1)
	for pages := uint64(1); a < end; pages = partPages {
		pages = min(pages, end-a)
		if _, err = s.file.WriteAt(zeroPages[:pages*PageSize], int64(a)*PageSize); err != nil {
			break
		}
		a += pages
	}
	if isNoSpace(err) {
		return false, s.punch(n, 1)
	}
	if err != nil {
		return false, s.fail(err)
	}
	return true, nil
}
