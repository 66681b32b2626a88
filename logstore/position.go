package logstore

import "encoding/binary"

const positionSize = 24

// Position is a place in the log between two groups: the next group starts there, or in the segment's
// successor.
type Position struct {
	Segment uint32
	Page    uint32 // index in the segment, from 1 up to and including the segment's size
	Group   uint64 // number of the group that starts here
	Digest  uint32 // chain digest of the log before it
	Check   uint32 // low half of the segment's salt: the position is invalid once the segment is reused
}

func (p Position) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, p.Segment)
	le.PutUint32(b[4:], p.Page)
	le.PutUint64(b[8:], p.Group)
	le.PutUint32(b[16:], p.Digest)
	le.PutUint32(b[20:], p.Check)
}

func getPosition(b []byte) Position {
	le := binary.LittleEndian
	return Position{le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint32(b[16:]), le.Uint32(b[20:])}
}
