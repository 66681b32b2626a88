package logstore

import "fmt"

// Another process may cut the file short while it is open. The next write must not make the file longer again: the
// pages in between would read as zeros through mappings that were checked before. So the store looks at the size
// before it writes a group. A cut between that look and the write is not noticed at once: a reader may see zeros
// until the next group is written.

// notShortened returns ErrCorrupt if the file is shorter than the store has made it. Whoever is about to write
// calls it: the appender, or the owner of a private segment.
func (s *disk) notShortened() error {
	err := s.shorter()
	if err == nil {
		return nil
	}
	// The store itself may have made the file longer or shorter between the look at the size and the look at the map.
	s.growing.Lock()
	defer s.growing.Unlock()
	return s.shorter()
}

// write writes pages from a on, unless the file is shorter than the store has made it.
func (s *disk) write(b []byte, a Addr) error {
	if err := s.notShortened(); err != nil {
		return err
	}
	_, err := s.file.WriteAt(b, int64(a)*PageSize)
	return err
}

// shorter compares the size of the file with what the map says. The result is certain only while growing is held.
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
