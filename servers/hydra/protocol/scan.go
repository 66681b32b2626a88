package protocol

import (
	"fmt"
	"iter"
)

// Scan is a SCAN: the items whose key's hash is from First to Last, in no order. Items with the same hash are in the
// same answer.
type Scan struct {
	First, Last uint64 // hashes, Last included
	Items       uint32 // about the most items wanted; 0: the shard's default
	Bytes       uint32 // about the most bytes wanted; 0: the shard's default
}

const scanSize = 24

// AppendBody appends the request's body.
func (s *Scan) AppendBody(b []byte) []byte {
	b = le.AppendUint64(b, s.First)
	b = le.AppendUint64(b, s.Last)
	b = le.AppendUint32(b, s.Items)
	return le.AppendUint32(b, s.Bytes)
}

// Parse decodes the body.
func (s *Scan) Parse(body []byte) error {
	if len(body) != scanSize {
		return fmt.Errorf("%w: a SCAN of %d bytes", ErrMalformed, len(body))
	}
	*s = Scan{le.Uint64(body), le.Uint64(body[8:]), le.Uint32(body[16:]), le.Uint32(body[20:])}
	if s.First > s.Last {
		return fmt.Errorf("%w: a SCAN from %#x to %#x", ErrMalformed, s.First, s.Last)
	}
	return nil
}

// Scanned is one item in the answer to a SCAN.
type Scanned struct {
	Version   uint64
	Expiry    uint64
	ItemFlags ItemFlags
	Key       []byte
	Value     []byte // empty with FlagKeysOnly
}

const (
	scannedHead     = 24
	scanAnswerStart = 8
)

// AppendScanStart begins the body of a SCAN's answer. Once the items are known, SetScanNext sets where the range
// continues.
func AppendScanStart(b []byte) []byte { return le.AppendUint64(b, 0) }

// SetScanNext sets, in a body that AppendScanStart has begun, the first hash that is not covered. It is valid only
// with FlagMore.
func SetScanNext(body []byte, next uint64) { le.PutUint64(body, next) }

// AppendBody appends the item to the body of a SCAN's answer.
func (s *Scanned) AppendBody(b []byte) []byte {
	b = le.AppendUint64(b, s.Version)
	b = le.AppendUint64(b, s.Expiry)
	b = le.AppendUint16(b, uint16(len(s.Key)))
	b = le.AppendUint16(b, uint16(s.ItemFlags))
	b = le.AppendUint32(b, uint32(len(s.Value)))
	b = append(b, s.Key...)
	return append(b, s.Value...)
}

// CheckScan reports whether the answer to a SCAN is valid, where the range continues, and how many items it has.
func CheckScan(body []byte) (next uint64, n int, err error) {
	if len(body) < scanAnswerStart {
		return 0, 0, fmt.Errorf("%w: the answer to a SCAN, of %d bytes", ErrMalformed, len(body))
	}
	for b := body[scanAnswerStart:]; len(b) > 0; n++ {
		size := scannedSize(b)
		if size > uint64(len(b)) {
			return 0, 0, fmt.Errorf("%w: the answer to a SCAN, at item %d", ErrMalformed, n)
		}
		b = b[size:]
	}
	return le.Uint64(body), n, nil
}

// scannedSize returns the size of the item at b; more than len(b) if the item is cut off.
func scannedSize(b []byte) uint64 {
	if len(b) < scannedHead {
		return scannedHead
	}
	return scannedHead + uint64(le.Uint16(b[16:])) + uint64(le.Uint32(b[20:]))
}

// ScannedItems yields the items of an answer that CheckScan has found valid. Keys and values are slices of it.
func ScannedItems(body []byte) iter.Seq[Scanned] {
	return func(yield func(Scanned) bool) {
		for b := body[scanAnswerStart:]; len(b) > 0; {
			key := scannedHead + int(le.Uint16(b[16:]))
			end := int(scannedSize(b))
			if !yield(Scanned{
				Version: le.Uint64(b), Expiry: le.Uint64(b[8:]), ItemFlags: ItemFlags(le.Uint16(b[18:])),
				Key: b[scannedHead:key:key], Value: b[key:end:end],
			}) {
				return
			}
			b = b[end:]
		}
	}
}
