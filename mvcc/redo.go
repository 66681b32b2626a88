package mvcc

import (
	"bytes"
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
//	layer   6 | number of lists uvarint | address of each u64: their extents, in a row, are a layer of a write set; the older layer first
//	owned   7 | length of the list uvarint | address u64: its extents are the pages of runs that layers lead to
//	lost    8 | kind of the reference u8 | key length uvarint | value length uvarint | address u64: a run that no record leads to
//	logged  9 | key length uvarint | value length uvarint | key | value: a put whose value stays here; in one page, which begins with a record
//	end     0 | zeros to the end of the page; the next record begins the next page
//
// Codes 5 (delete of a range) and bits 6 (a tree id follows the code) and 7 (an expiry follows) are reserved; a stream with them is
// refused.
const (
	redoEnd    = 0
	redoPut    = 1
	redoDelete = 2
	redoRun    = 3
	redoList   = 4
	redoLayer  = 6
	redoOwned  = 7
	redoLost   = 8
	redoLogged = 9
)

// redoLayers is a redo record of a write set that was not kept in memory: one of its fields is set.
type redoLayers struct {
	layer []logstore.Addr // lists of its extents
	drop  *btree.Ref      // leaves the tree, or was never there: see spill
}

// appendRedoLayer encodes a layer by the runs that list its extents.
func appendRedoLayer(b []byte, lists []logstore.Addr) []byte {
	b = binary.AppendUvarint(append(b, redoLayer), uint64(len(lists)))
	for _, a := range lists {
		b = binary.LittleEndian.AppendUint64(b, a)
	}
	return b
}

// appendRedoOwned encodes a list, of so many bytes, of pages of runs.
func appendRedoOwned(b []byte, list logstore.Addr, bytes int64) []byte {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(append(b, redoOwned), uint64(bytes)), list)
}

// appendRedoLost encodes a run that no record leads to.
func appendRedoLost(b []byte, ref *btree.Ref) []byte {
	b = binary.AppendUvarint(append(b, redoLost, byte(ref.Kind)), uint64(ref.KeyLen))
	b = binary.AppendUvarint(b, ref.ValueLen)
	return binary.LittleEndian.AppendUint64(b, ref.ID)
}

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

// appendRedoOp is appendRedo that lets op have its key and value in b, which has room for it and is not moved.
func appendRedoOp(b []byte, op *btree.Op) []byte {
	at := len(b)
	if op.Delete || op.Ref != nil {
		b = appendRedo(b, op)
		_, size := binary.Uvarint(b[at+1:])
		key := at + 1 + size
		op.Key = b[key : key+len(op.Key) : key+len(op.Key)]
		return b
	}
	if len(op.Key) < 1<<7 && len(op.Value) < 1<<7 {
		b = append(b, redoPut, byte(len(op.Key)), byte(len(op.Value)))
	} else {
		b = binary.AppendUvarint(append(b, redoPut), uint64(len(op.Key)))
		b = binary.AppendUvarint(b, uint64(len(op.Value)))
	}
	key := len(b)
	b = append(b, op.Key...)
	value := len(b)
	b = append(b, op.Value...)
	op.Key, op.Value = b[key:value:value], b[value:len(b):len(b)]
	return b
}

// redoPages bounds the pages that the redo of n keys with the given bytes of keys and values takes.
func redoPages(n int64) int64 { return (n + logstore.BodySize - 1) / logstore.BodySize }

const maxRedoRecord = 1 + 3*binary.MaxVarintLen64 + 8 // bytes of a redo record beside its key and its inline value

var errRedo = fmt.Errorf("%w: redo stream", logstore.ErrCorrupt)

// readRedo decodes a stream without layers and calls f for each record. Keys and values are slices of b.
func readRedo(b []byte, f func(op btree.Op)) error { return readRedoStream(b, f, nil) }

// readRedoStream is readRedo for any stream. Records of layers go to layers.
func readRedoStream(b []byte, f func(op btree.Op), layers func(redoLayers)) error {
	return readRedoAt(b, func(op btree.Op, _, _ int, _ bool) { f(op) }, layers)
}

// readRedoAt is readRedoStream that tells f where in the stream each record begins and ends, and whether it is a put whose value stays there.
func readRedoAt(b []byte, f func(op btree.Op, from, end int, logged bool), layers func(redoLayers)) error {
	all := len(b)
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
		if code == redoEnd { // of the page
			b = bytes.TrimLeft(b, "\x00")
			continue
		}
		from := all - len(b)
		b = b[1:]
		if code >= redoLayer && code <= redoLost {
			if layers == nil {
				return errHasLayers
			}
			x, rest, ok := getRedoLayers(code, b)
			if !ok {
				return errRedo
			}
			b = rest
			layers(x)
			continue
		}
		klen, ok := length()
		if !ok || klen > btree.MaxKey || code > redoList && code != redoLogged {
			return errRedo
		}
		var vlen uint64
		if code == redoPut || code == redoLogged {
			if vlen, ok = length(); !ok {
				return errRedo
			}
		}
		var op btree.Op
		if op.Key, ok = take(klen); !ok {
			return errRedo
		}
		switch code {
		case redoPut, redoLogged:
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
		f(op, from, all-len(b), code == redoLogged)
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

// getRedoLayers decodes what follows a code from redoLayer to redoLost.
func getRedoLayers(code byte, b []byte) (x redoLayers, rest []byte, ok bool) {
	kind := btree.Run
	if code == redoLost {
		if len(b) == 0 || btree.ValueKind(b[0]) != btree.Run && btree.ValueKind(b[0]) != btree.Extents {
			return x, nil, false
		}
		kind, b = btree.ValueKind(b[0]), b[1:]
	}
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return x, nil, false
	}
	b = b[size:]
	if code == redoLayer {
		if n == 0 || n > uint64(len(b)/8) {
			return x, nil, false
		}
		for range n {
			x.layer, b = append(x.layer, binary.LittleEndian.Uint64(b)), b[8:]
		}
		return x, b, true
	}
	x.drop = &btree.Ref{Kind: kind, ValueLen: n}
	if code == redoLost {
		if n > btree.MaxKey {
			return x, nil, false
		}
		x.drop.KeyLen = uint32(n)
		if x.drop.ValueLen, size = binary.Uvarint(b); size <= 0 || x.drop.ValueLen > MaxValue {
			return x, nil, false
		}
		b = b[size:]
	}
	if n > MaxValue || len(b) < 8 {
		return x, nil, false
	}
	x.drop.ID = binary.LittleEndian.Uint64(b)
	return x, b[8:], true
}
