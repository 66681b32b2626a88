// Package redo is the codec of redo records: commits write them in record groups, and recovery and followers read
// them. It does not know the log, only the stream in a group's pages. If the stream is damaged, decoding returns
// an error that wraps [logstore.ErrCorrupt].
package redo

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// The pages of a record group carry a stream of redo records in commit order. Those of one batch are sorted by key,
// with logged values before the others:
//
//	put     1 | key length uvarint | value length uvarint | key | value
//	delete  2 | key length uvarint | key
//	run     3 | key length uvarint | key | value length uvarint | address of the run u64
//	list    4 | the same; the run lists the extents of a large value
//	range   5 | length of from uvarint | 1 + length of to uvarint, 0: no end | from | to: the records from from on and below to go, before anything
//	        else in the group counts, wherever it stands in the stream; the group is of one commit
//	layer   6 | number of lists uvarint | address of each u64: their extents, in a row, are a layer of a write set; the older layer first
//	owned   7 | length of the list uvarint | address u64: its extents are the pages of runs that layers lead to
//	lost    8 | kind of the reference u8 | key length uvarint | value length uvarint | address u64: a run that no record leads to
//	logged  9 | key length uvarint | value length uvarint | key | value: a put whose value stays here; in one page, which begins with a record
//	end     0 | zeros to the end of the page; the next record begins the next page
//
// Bits 6 (for a tree id after the code) and 7 are reserved; a stream that has them set is refused.
const (
	codeEnd    = 0
	codePut    = 1
	codeDelete = 2
	codeRun    = 3
	codeList   = 4
	codeRange  = 5
	codeLayer  = 6
	codeOwned  = 7
	codeLost   = 8
	Logged     = 9 // written by the code that places the value in the page
)

// Special is a redo record that is not about a single key: it removes a range, or belongs to a write set that
// was spilled to the file. One of its fields is set.
type Special struct {
	Range *Range
	Layer []logstore.Addr // runs that list the extents of the layer
	Drop  *btree.Ref      // a reference that is removed from the tree, or never was in it: see package writeset
}

// Range is a range of keys, from From on and below To; a nil To is the end of
// all keys.
type Range struct{ From, To []byte }

// AppendRange encodes the removal of a range.
func AppendRange(b []byte, r Range) []byte {
	b = binary.AppendUvarint(append(b, codeRange), uint64(len(r.From)))
	end := uint64(0)
	if r.To != nil {
		end = uint64(len(r.To)) + 1
	}
	b = binary.AppendUvarint(b, end)
	return append(append(b, r.From...), r.To...)
}

// AppendLayer encodes a layer, by the runs that list its extents.
func AppendLayer(b []byte, lists []logstore.Addr) []byte {
	b = binary.AppendUvarint(append(b, codeLayer), uint64(len(lists)))
	for _, a := range lists {
		b = binary.LittleEndian.AppendUint64(b, a)
	}
	return b
}

// AppendOwned encodes the list of the pages of runs to which layers refer; bytes is the length of the list.
func AppendOwned(b []byte, list logstore.Addr, bytes int64) []byte {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(append(b, codeOwned), uint64(bytes)), list)
}

// AppendLost encodes a run to which no record refers.
func AppendLost(b []byte, ref *btree.Ref) []byte {
	b = binary.AppendUvarint(append(b, codeLost, byte(ref.Kind)), uint64(ref.KeyLen))
	b = binary.AppendUvarint(b, ref.ValueLen)
	return binary.LittleEndian.AppendUint64(b, ref.ID)
}

// Append encodes op.
func Append(b []byte, op *btree.Op) []byte {
	switch {
	case op.Delete:
		b = binary.AppendUvarint(append(b, codeDelete), uint64(len(op.Key)))
		return append(b, op.Key...)
	case op.Ref == nil:
		b = binary.AppendUvarint(append(b, codePut), uint64(len(op.Key)))
		b = binary.AppendUvarint(b, uint64(len(op.Value)))
		return append(append(b, op.Key...), op.Value...)
	}
	code := byte(codeRun)
	if op.Ref.Kind == btree.Extents {
		code = codeList
	}
	b = binary.AppendUvarint(append(b, code), uint64(len(op.Key)))
	b = append(b, op.Key...)
	b = binary.AppendUvarint(b, op.Ref.ValueLen)
	return binary.LittleEndian.AppendUint64(b, op.Ref.ID)
}

// AppendOp is Append that makes op's key and value slices of b. b must have room for the record, so that it is not
// moved.
func AppendOp(b []byte, op *btree.Op) []byte {
	at := len(b)
	if op.Delete || op.Ref != nil {
		b = Append(b, op)
		_, size := binary.Uvarint(b[at+1:])
		key := at + 1 + size
		op.Key = b[key : key+len(op.Key) : key+len(op.Key)]
		return b
	}
	if len(op.Key) < 1<<7 && len(op.Value) < 1<<7 {
		b = append(b, codePut, byte(len(op.Key)), byte(len(op.Value)))
	} else {
		b = binary.AppendUvarint(append(b, codePut), uint64(len(op.Key)))
		b = binary.AppendUvarint(b, uint64(len(op.Value)))
	}
	key := len(b)
	b = append(b, op.Key...)
	value := len(b)
	b = append(b, op.Value...)
	op.Key, op.Value = b[key:value:value], b[value:len(b):len(b)]
	return b
}

// Pages returns the least number of pages that n bytes of redo need.
func Pages(n int64) int64 { return (n + logstore.BodySize - 1) / logstore.BodySize }

// MaxRecord is the most bytes of a redo record without its key and its inline
// value.
const MaxRecord = 1 + 3*binary.MaxVarintLen64 + 8

// ErrStream: no encoder of this package wrote the stream, or it has special records where none are expected.
var ErrStream = fmt.Errorf("%w: redo stream", logstore.ErrCorrupt)

// Read decodes a stream. It calls f for each record of a key, and special for each other record; if special is nil,
// there must be none. Keys and values are slices of b.
func Read(b []byte, f func(op btree.Op), special func(Special)) error {
	return ReadAt(b, func(op btree.Op, _, _ int, _ bool) { f(op) }, special)
}

// ReadAt is Read that also passes to f the offsets at which the record begins and ends in the stream, and
// whether the record is a put whose value stays in the log.
func ReadAt(b []byte, f func(op btree.Op, from, end int, logged bool), special func(Special)) error {
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
		if code == codeEnd { // zeros up to the end of the page follow
			b = bytes.TrimLeft(b, "\x00")
			continue
		}
		from := all - len(b)
		b = b[1:]
		if code >= codeRange && code <= codeLost {
			if special == nil {
				return ErrStream
			}
			x, rest, ok := getSpecial(code, b)
			if !ok {
				return ErrStream
			}
			b = rest
			special(x)
			continue
		}
		klen, ok := length()
		if !ok || klen > btree.MaxKey || code > codeList && code != Logged {
			return ErrStream
		}
		var vlen uint64
		if code == codePut || code == Logged {
			if vlen, ok = length(); !ok {
				return ErrStream
			}
		}
		var op btree.Op
		if op.Key, ok = take(klen); !ok {
			return ErrStream
		}
		switch code {
		case codePut, Logged:
			if op.Value, ok = take(vlen); !ok || !btree.FitsInline(int(klen), int(vlen)) {
				return ErrStream
			}
		case codeDelete:
			op.Delete = true
		default:
			n, ok := length()
			if !ok || n > btree.MaxValue || len(b) < 8 {
				return ErrStream
			}
			op.Ref = &btree.Ref{Kind: btree.Run, ID: binary.LittleEndian.Uint64(b), ValueLen: n, KeyLen: btree.RunKeyLen(op.Key)}
			if code == codeList {
				op.Ref.Kind = btree.Extents
			}
			b = b[8:]
		}
		f(op, from, all-len(b), code == Logged)
	}
	return nil
}

// getSpecial decodes what follows a code between codeRange and codeLost.
func getSpecial(code byte, b []byte) (x Special, rest []byte, ok bool) {
	if code == codeRange {
		return getRange(b)
	}
	kind := btree.Run
	if code == codeLost {
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
	if code == codeLayer {
		if n == 0 || n > uint64(len(b)/8) {
			return x, nil, false
		}
		for range n {
			x.Layer, b = append(x.Layer, binary.LittleEndian.Uint64(b)), b[8:]
		}
		return x, b, true
	}
	x.Drop = &btree.Ref{Kind: kind, ValueLen: n}
	if code == codeLost {
		if n > btree.MaxKey {
			return x, nil, false
		}
		x.Drop.KeyLen = uint32(n)
		if x.Drop.ValueLen, size = binary.Uvarint(b); size <= 0 || x.Drop.ValueLen > btree.MaxValue {
			return x, nil, false
		}
		b = b[size:]
	}
	if n > btree.MaxValue || len(b) < 8 {
		return x, nil, false
	}
	x.Drop.ID = binary.LittleEndian.Uint64(b)
	return x, b[8:], true
}

// getRange decodes what follows codeRange.
func getRange(b []byte) (x Special, rest []byte, ok bool) {
	from, size := binary.Uvarint(b)
	if size <= 0 || from > btree.MaxKey {
		return x, nil, false
	}
	b = b[size:]
	end, size := binary.Uvarint(b)
	if size <= 0 || end > btree.MaxKey+1 {
		return x, nil, false
	}
	b = b[size:]
	to := uint64(0)
	if end > 0 {
		to = end - 1
	}
	if from+to > uint64(len(b)) {
		return x, nil, false
	}
	x.Range = &Range{From: b[:from:from]}
	if end > 0 {
		x.Range.To = b[from : from+to : from+to]
		if bytes.Compare(x.Range.From, x.Range.To) >= 0 {
			return x, nil, false
		}
	}
	return x, b[from+to:], true
}
