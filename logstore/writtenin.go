package logstore

import (
	"encoding/binary"
	"math"
)

// WrittenIn returns the number of the group that a page of the log, of which p is the image, was written in.
func WrittenIn(p []byte) uint64 { return binary.LittleEndian.Uint64(p[16:]) }

// GroupOfLogged returns the number of the group that carries a logged value, and a number above all if it is in memory only.
func (s *reader) GroupOfLogged(place Place) (uint64, error) {
	p, inMemory, err := s.recordPage(place.Addr())
	if err != nil || inMemory {
		return math.MaxUint64, err
	}
	return WrittenIn(p), nil
}
