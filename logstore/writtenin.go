package logstore

import (
	"encoding/binary"
	"math"
)

// WrittenIn returns the number of the group that wrote a page of the log; p is the page's image.
func WrittenIn(p []byte) uint64 { return binary.LittleEndian.Uint64(p[16:]) }

// GroupOfLogged returns the number of the group that carries a logged value, or the largest number if no sync
// has covered the value's page.
func (s *reader) GroupOfLogged(place Place) (uint64, error) {
	p, inMemory, err := s.recordPage(place.Addr())
	if err != nil || inMemory {
		return math.MaxUint64, err
	}
	return WrittenIn(p), nil
}
