package writeset

import (
	"math"

	"flashdbm/logstore"
)

// ValueRef says where a value is that was written before the transaction commits.
type ValueRef struct {
	Len     uint64 // bytes of the value
	Extents []logstore.Extent
}

// Entry is what a write set says of a key: the value it puts, here or elsewhere, or that it deletes the key. The slices are the write set's
// own; they must not be changed, and are valid until its Reset.
type Entry struct {
	Key     []byte
	Value   []byte    // nil if Deleted or Ref
	Deleted bool      // the key is deleted
	Ref     *ValueRef // where the value is, nil if here
}

type recordKind uint8

const (
	recordPut recordKind = iota
	recordDelete
	recordRef
)

// record is an entry as it is kept. It has no pointers, so that the garbage collector need not look at a million of them. The key never
// changes.
type record struct {
	key        place
	value      place // for recordRef the index in Set.refs
	keyBytes   uint32
	valueBytes uint32 // 0 unless recordPut
	kind       recordKind
}

const (
	recordBytes      = 32
	recordChunkShift = 8
	recordChunk      = 1 << recordChunkShift // records

	// keepRecordChunks is the most that reset keeps.
	keepRecordChunks = 16
)

// recordList is an append-only list of records. It grows by chunks, so that growing copies nothing; only the first grows from small
// beginnings. A record is known by its index.
type recordList struct {
	chunks [][]record // those from before the last reset are empty
	n      uint32
}

func (l *recordList) at(id uint32) *record {
	return &l.chunks[id>>recordChunkShift][id%recordChunk]
}

// add adds a record, which the caller fills in.
func (l *recordList) add() (id uint32, r *record) {
	id = l.n
	if id == math.MaxUint32 {
		panic("writeset: too many records in a write set")
	}
	c := int(id >> recordChunkShift)
	if c == len(l.chunks) {
		var chunk []record
		if c > 0 {
			chunk = make([]record, 0, recordChunk)
		}
		l.chunks = append(l.chunks, chunk)
	}
	chunk := l.chunks[c]
	if n := len(chunk); n < cap(chunk) {
		chunk = chunk[:n+1]
	} else {
		chunk = append(chunk, record{})
	}
	l.chunks[c] = chunk
	l.n++
	return id, &chunk[len(chunk)-1]
}

// bytes returns the memory held.
func (l *recordList) bytes() int64 {
	if len(l.chunks) == 0 {
		return 0
	}
	return recordBytes * int64(cap(l.chunks[0])+(len(l.chunks)-1)*recordChunk)
}

// reset forgets all records. It keeps the memory unless that is much.
func (l *recordList) reset() {
	if len(l.chunks) > keepRecordChunks {
		l.chunks = nil
	}
	for i := range l.chunks {
		l.chunks[i] = l.chunks[i][:0]
	}
	l.n = 0
}
