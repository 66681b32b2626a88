package protocol

import (
	"fmt"
	"iter"
)

// Part is one request of a BATCH, or its answer. The parts of an answer are in the order of the request. A batch
// contains no batch, and its parts are no transaction: each is applied, or refused, on its own.
type Part struct {
	Op     Op
	Flags  Flags
	Status Status // 0 in a request
	Body   []byte
}

const partHead = 8

// AppendPart appends the head of a part to the body of a BATCH. The caller appends the part's body and calls EndPart.
func AppendPart(b []byte, op Op, flags Flags, status Status) []byte {
	b = append(b, byte(op), byte(flags))
	b = le.AppendUint16(b, uint16(status))
	return le.AppendUint32(b, 0)
}

// EndPart ends the part whose head AppendPart has written at offset start of b: it sets the size, and pads to 8
// bytes.
func EndPart(b []byte, start int) []byte {
	le.PutUint32(b[start+4:], uint32(len(b)-start-partHead))
	for (len(b)-start)%8 != 0 {
		b = append(b, 0)
	}
	return b
}

// partSize returns the size of the part at b, padding included; more than len(b) if the part is cut off.
func partSize(b []byte) uint64 {
	if len(b) < partHead {
		return partHead
	}
	return (partHead + uint64(le.Uint32(b[4:])) + 7) &^ 7
}

// CheckBatch reports whether the body of a BATCH, or of its answer, is valid, and how many parts it has.
func CheckBatch(body []byte) (n int, err error) {
	for b := body; len(b) > 0; n++ {
		size := partSize(b)
		if size > uint64(len(b)) || n == MaxBatch || Op(b[0]) == OpBatch {
			return 0, fmt.Errorf("%w: a BATCH of %d bytes, at part %d", ErrMalformed, len(body), n)
		}
		b = b[size:]
	}
	return n, nil
}

// Parts yields the parts of a body that CheckBatch has found valid. Bodies are slices of it.
func Parts(body []byte) iter.Seq[Part] {
	return func(yield func(Part) bool) {
		for b := body; len(b) > 0; {
			end := partHead + int(le.Uint32(b[4:]))
			if !yield(Part{Op(b[0]), Flags(b[1]), Status(le.Uint16(b[2:])), b[partHead:end:end]}) {
				return
			}
			b = b[partSize(b):]
		}
	}
}
