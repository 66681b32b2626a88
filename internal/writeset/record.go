package writeset

import (
	"math"

	"flashdbm/logstore"
)

// ValueRef is the place of a value that was written before the transaction commits.
type ValueRef struct {
	Len     uint64 // bytes of the value
	Extents []logstore.Extent
}

// Entry is the last write of a key: a put, with the value or its place, or a delete. Its slices belong to the write
// set: they must not be modified, and are valid until its Reset.
type Entry struct {
	Key     []byte
	Value   []byte    // nil if Deleted or Ref is set
	Deleted bool      // the key is deleted
	Ref     *ValueRef // place of the value, nil if it is in Value
}

type recordKind uint8

const (
	recordPut recordKind = iota
	recordDelete
	recordRef
)

// record is an entry as it is stored. It has no pointers, so the garbage collector does not scan records. The key
// never changes.
type record struct {
	key        place
	value      place // for recordRef: the index in Set.refs
	keyBytes   uint32
	valueBytes uint32 // 0 unless recordPut
	kind       recordKind
}

const (
	recordBytes      = 32
	recordChunkShift = 8
	recordChunk      = 1 << recordChunkShift // records

	// keepRecordChunks is the most chunks that reset keeps.
	keepRecordChunks = 16
)

// recordList is an append-only list of records, known by their indexes. It grows by chunks, so growth copies
// no records; only the first chunk starts small and is reallocated.
type recordList struct {
	chunks [][]record // those from before the last reset are empty
	n      uint32
}

func (l *recordList) at(id uint32) *record {
	return &l.chunks[id>>recordChunkShift][id%recordChunk]
}

// add adds a record, which the caller has to fill in.
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

// bytes returns the memory of the list.
func (l *recordList) bytes() int64 {
	if len(l.chunks) == 0 {
		return 0
	}
	return recordBytes * int64(cap(l.chunks[0])+(len(l.chunks)-1)*recordChunk)
}

// reset forgets all records. It keeps the memory of at most keepRecordChunks chunks.
func (l *recordList) reset() {
	if len(l.chunks) > keepRecordChunks {
		l.chunks = nil
	}
	for i := range l.chunks {
		l.chunks[i] = l.chunks[i][:0]
	}
	l.n = 0
}
