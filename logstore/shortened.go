package logstore

import "fmt"

// A file that somebody else cuts short under us must not grow again by our next write: pages in between would be read as zeros through
// mappings that were checked before. So the size is looked at before each group is written. Between the look and the write there is time
// for a cut still; a reader may then see zeros for as long as it takes to write the next group.

// notShortened returns ErrCorrupt if the file is shorter than it was made. By whoever is about to write: the baton holder, or the owner of a
// private segment.
func (s *disk) notShortened() error {
	err := s.shorter()
	if err == nil {
		return nil
	}
	// Or it was getting longer or shorter through us between the two looks.
	s.growing.Lock()
	defer s.growing.Unlock()
	return s.shorter()
}

// shorter compares the size of the file with what it should be. For certain only with growing held.
func (s *disk) shorter() error {
	size, err := s.file.Size()
	if err != nil {
		return err
	}
	if end := s.space.End(); uint64(size) < end*PageSize {
		return fmt.Errorf("%w: %s was cut short from %d to %d bytes while it was open", ErrCorrupt, s.path, end*PageSize, size)
	}
	return nil
}
