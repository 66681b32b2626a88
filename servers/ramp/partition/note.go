package partition

import (
	"encoding/binary"
	"fmt"
)

var le = binary.LittleEndian

// A Note to another node is encoded as
//
//	offset  size  field
//	0       4     from
//	4       1     state
//	5       1     flags: 1 synced, 2 settled, 4 question
//	6       2     n, hashes
//	8       8     timestamp
//	16      8     client
//	24      8     life
//	32      8n    hashes
//
// All integers are little-endian.
const noteHead = 32

// Append appends the note.
func (n *Note) Append(b []byte) []byte {
	flags := uint8(0)
	for i, set := range []bool{n.Synced, n.Settled, n.Question} {
		if set {
			flags |= 1 << i
		}
	}
	b = append(le.AppendUint32(b, n.From), byte(n.State), flags)
	b = le.AppendUint16(b, uint16(len(n.Hashes)))
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, uint64(n.TS)), n.Client), n.Life)
	for _, h := range n.Hashes {
		b = le.AppendUint64(b, h)
	}
	return b
}

// Parse decodes a note. It keeps nothing of b.
func (n *Note) Parse(b []byte) error {
	if len(b) < noteHead || len(b) != noteHead+8*int(le.Uint16(b[6:])) || b[4] < byte(NotePrepared) || b[4] > byte(NoteRefused) {
		return fmt.Errorf("partition: a note of %d bytes that says nothing", len(b))
	}
	f := b[5]
	*n = Note{
		From: le.Uint32(b), State: NoteState(b[4]), TS: Timestamp(le.Uint64(b[8:])), Client: le.Uint64(b[16:]), Life: le.Uint64(b[24:]),
		Synced: f&1 != 0, Settled: f&2 != 0, Question: f&4 != 0,
	}
	for r := b[noteHead:]; len(r) > 0; r = r[8:] {
		n.Hashes = append(n.Hashes, le.Uint64(r))
	}
	return nil
}
