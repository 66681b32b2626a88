package logstore

// After a crash between a growth of the file and the next checkpoint, the space map does not know whether the new
// segments have their space on the device. Allocating it again may be refused even if the file has it: XFS refuses if
// less is free than the whole range would take. Writes into space that the file has are not refused. So if the device
// has no room, the store tries to fill such segments with zeros. A segment that cannot be filled is punched, and counts
// as one without space.
//
// Only absent segments are filled: nothing is live in them, and no log that a recovery may start from leads there.
// The caller syncs before anything refers to them, as after any growth.

// recall finds an absent segment that has its space, and reports whether there is one. It tries each segment once.
// The caller holds growing.
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

// fill writes zeros to a whole segment, and reports whether there was space for them. It tries the first page
// alone, so that a segment without space takes next to nothing.
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
