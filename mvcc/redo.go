package mvcc

import (
	"encoding/binary"
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A record group's pages carry a stream of redo records, in commit order, those of one batch sorted by key:
//
//	put     1 | key length uvarint | value length uvarint | key | value
//	delete  2 | key length uvarint | key
//	run     3 | key length uvarint | key | value length uvarint | address of the run u64
//	list    4 | the same; the run lists the extents of a large value
//	end     0 | zeros to the end of the page
//
// Codes 5 (delete of a range) and bits 6 (a tree id follows the code) and 7 (an expiry follows) are reserved; a stream with them is
// refused.
const (
	redoEnd    = 0
	redoPut    = 1
	redoDelete = 2
	redoRun    = 3
	redoList   = 4
)

// appendRedo encodes op.
func appendRedo(b []byte, op *btree.Op) []byte {
	switch {
	case op.Delete:
		b = binary.AppendUvarint(append(b, redoDelete), uint64(len(op.Key)))
		return append(b, op.Key...)
	case op.Ref == nil:
		b = binary.AppendUvarint(append(b, redoPut), uint64(len(op.Key)))
		b = binary.AppendUvarint(b, uint64(len(op.Value)))
		return append(append(b, op.Key...), op.Value...)
	}
	code := byte(redoRun)
	if op.Ref.Kind == btree.Extents {
		code = redoList
	}
	b = binary.AppendUvarint(append(b, code), uint64(len(op.Key)))
	b = append(b, op.Key...)
	b = binary.AppendUvarint(b, op.Ref.ValueLen)
	return binary.LittleEndian.AppendUint64(b, op.Ref.ID)
}

// redoPages bounds the pages that the redo of n keys with the given bytes of keys and values takes.
func redoPages(bytes int64) int64 { return (bytes + logstore.BodySize - 1) / logstore.BodySize }

const maxRedoRecord = 1 + 3*binary.MaxVarintLen64 + 8 // bytes of a redo record beside its key and its inline value

var errRedo = fmt.Errorf("%w: redo stream", logstore.ErrCorrupt)

// readRedo decodes a stream and calls f for each record. Keys and values are slices of b.
func readRedo(b []byte, f func(op btree.Op)) error {
	take := func(n uint64) ([]byte, bool) {
		if n > uint64(len(b)) {
			return nil, false
		}
		p := b[:n:n]
		b = b[n:]
		return p, true
	}
	length := func() (uint64, bool) {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return 0, false
		}
		b = b[size:]
		return n, true
	}
	for len(b) > 0 {
		code := b[0]
		if code == redoEnd {
			return nil
		}
		b = b[1:]
		klen, ok := length()
		if !ok || klen > btree.MaxKey || code > redoList {
			return errRedo
		}
		var vlen uint64
		if code == redoPut {
			if vlen, ok = length(); !ok {
				return errRedo
			}
		}
		var op btree.Op
		if op.Key, ok = take(klen); !ok {
			return errRedo
		}
		switch code {
		case redoPut:
			if op.Value, ok = take(vlen); !ok || !btree.FitsInline(int(klen), int(vlen)) {
				return errRedo
			}
		case redoDelete:
			op.Delete = true
		default:
			n, ok := length()
			if !ok || n > MaxValue || len(b) < 8 {
				return errRedo
			}
			op.Ref = &btree.Ref{Kind: btree.Run, ID: binary.LittleEndian.Uint64(b), ValueLen: n, KeyLen: refKeyLen(op.Key)}
			if code == redoList {
				op.Ref.Kind = btree.Extents
			}
			b = b[8:]
		}
		f(op)
	}
	return nil
}

// refKeyLen returns how many bytes of the key a record's run holds: all of a long key, none of a short one.
func refKeyLen(key []byte) uint32 {
	if len(key) > btree.MaxInlineKey {
		return uint32(len(key))
	}
	return 0
}
