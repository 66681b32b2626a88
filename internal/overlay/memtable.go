package overlay

import (
	"bytes"
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
)

// Memtable holds committed ops that the tree does not have yet, or did not have when some reader began, in the
// order of their commits. It finds the newest op of a key for a reader at any Seq. One goroutine, the leader,
// inserts; any goroutine reads. Entries do not move when it grows.
//
// Invariants:
//
//  1. An entry is complete, and its tag is marked, before its index word is stored, and it does not change until
//     Reset. So a reader that finds a word finds a complete entry.
//  2. Entries are in the order of their Seqs. The index leads to the newest entry of a key, and prev leads from an
//     entry to the previous one of the same key. A reader at an older Seq follows prev past the newer entries.
//  3. To grow the index, the leader fills a larger one and publishes it. The old index stays unchanged for the
//     readers that are using it: entries inserted since are above their Seqs.
//  4. Reset may be called only when no registered reader has a view with the table.
type Memtable struct {
	chunks atomic.Pointer[[]*chunk]
	index  atomic.Pointer[index]
	shown  atomic.Uint32         // entries that readers may access by number: whole batches
	order  atomic.Pointer[order] // sorted keys of the first entries; made by readers

	// The fields below belong to the leader.
	Copies writeset.Arena // redo records of small batches, which hold the keys and values of their entries
	n      uint32         // number of entries
	keys   int            // number of distinct keys
	bytes  int64          // bytes of keys and values
	ascend bool           // each key is above the one inserted before it
}

// entry is an op and the Seq of its batch.
type entry struct {
	op   btree.Op
	seq  uint64
	prev uint32 // 1 + number of the previous entry of the same key, 0 if there is none
	tag  uint32 // lower half of the hash of the key
}

// index finds the newest entry of a key by the key's tag.
type index struct {
	words []atomic.Uint64 // a power of two: tag << 32 | 1 + number of an entry; 0 is free
	// marks is a Bloom filter with one hash function: it has a bit for each tag in words, and wordMarks bits for each
	// word. Most lookups are of keys that the table does not have; the filter answers them from less memory. It is nil if
	// words are so few that they stay in the processor's cache. After a load of 1 M records, of which 290,000 were in two
	// tables, lookups rose from 1.75 to 1.95 M/s.
	marks []atomic.Uint64
}

const wordMarks = 4 // bits. More: the filter is wrong less often, and takes more memory

// markedWords is the least number of words for which there are marks. So many words take 2 MiB; fewer stay in the
// processor's cache. With marks an insertion takes 22 ns instead of 19.
var markedWords = 1 << 18

func newIndex(words int) *index {
	x := &index{words: make([]atomic.Uint64, words)}
	if words >= markedWords {
		x.marks = make([]atomic.Uint64, words*wordMarks/64)
	}
	return x
}

// marksOf returns the word of marks that has the bit of a tag.
func (x *index) marksOf(tag uint32) *atomic.Uint64 { return &x.marks[tag>>6&uint32(len(x.marks)-1)] }

// has reports whether the table may have a key with the tag.
func (x *index) has(tag uint32) bool {
	return x.marksOf(tag).Load()>>(tag&63)&1 != 0
}

// mark comes before the tag is stored in words. Only the leader calls it.
func (x *index) mark(tag uint32) {
	m := x.marksOf(tag)
	m.Store(m.Load() | 1<<(tag&63))
}

const (
	chunkEntries = 256     // entries of 80 bytes: a table that has any takes at least 20 KiB
	leastWords   = 64      // words of the smallest index
	fastGrowth   = 1 << 15 // words below which the index grows fourfold
)

type chunk [chunkEntries]entry

// EntryBytes is the most memory that an entry takes, with its part of the index and of the order, but without key
// and value.
const EntryBytes = 80 + 4*8 + 4*wordMarks/8 + 16

// NewMemtable returns an empty table.
func NewMemtable() *Memtable {
	m := &Memtable{ascend: true}
	chunks := []*chunk(nil)
	m.index.Store(newIndex(leastWords))
	m.chunks.Store(&chunks)
	return m
}

func (m *Memtable) at(i uint32) *entry { return &(*m.chunks.Load())[i/chunkEntries][i%chunkEntries] }

// Insert adds an op of the batch at seq, which must not be below earlier Seqs. hash is the HashKey of the op's key.
// It returns the previous op of the same key and its number, or nil. Readers may find the entry at once, and skip
// it as long as seq is above the Seq that they read at.
func (m *Memtable) Insert(op *btree.Op, hash, seq uint64) (before *btree.Op, number int) {
	i := m.n
	if i%chunkEntries == 0 {
		m.grow(i)
	}
	e := m.at(i)
	e.op, e.seq, e.prev, e.tag = *op, seq, 0, uint32(hash)
	if m.ascend && i > 0 {
		m.ascend = bytes.Compare(m.at(i-1).op.Key, op.Key) < 0
	}
	m.n, m.bytes = i+1, m.bytes+int64(len(op.Key)+len(op.Value))
	x := m.index.Load()
	if x.marks != nil {
		x.mark(e.tag)
	}
	words := x.words
	mask := uint32(len(words) - 1)
	for at := e.tag & mask; ; at = (at + 1) & mask {
		word := words[at].Load()
		if word == 0 {
			m.keys++
			words[at].Store(uint64(e.tag)<<32 | uint64(i+1))
			return nil, 0
		}
		if uint32(word>>32) == e.tag {
			if old := m.at(uint32(word) - 1); bytes.Equal(old.op.Key, op.Key) {
				e.prev = uint32(word)
				words[at].Store(uint64(e.tag)<<32 | uint64(i+1))
				return &old.op, int(e.prev) - 1
			}
		}
	}
}

// grow adds a chunk for the entries from number i on, if needed, and enlarges the index if that is nearly full.
func (m *Memtable) grow(i uint32) {
	chunks := *m.chunks.Load()
	if int(i/chunkEntries) == len(chunks) {
		more := append(chunks, new(chunk)) // readers with the old slice header do not access the new element
		m.chunks.Store(&more)
	}
	if size := len(m.index.Load().words); 2*(m.keys+chunkEntries) > size {
		if size < fastGrowth {
			size *= 2
		}
		m.Reserve(max(size, m.keys+chunkEntries))
	}
}

// Reserve makes the index large enough for the given number of keys. Only the leader calls it.
func (m *Memtable) Reserve(keys int) {
	words := m.index.Load().words
	size := len(words)
	for size < 2*keys {
		size *= 2
	}
	if size == len(words) {
		return
	}
	x := newIndex(size)
	larger := x.words
	mask := uint32(size - 1)
	for j := range words {
		word := words[j].Load()
		if word == 0 {
			continue
		}
		if x.marks != nil {
			x.mark(uint32(word >> 32))
		}
		at := uint32(word>>32) & mask
		for larger[at].Load() != 0 {
			at = (at + 1) & mask
		}
		larger[at].Store(word)
	}
	m.index.Store(x)
}

// Show lets readers access all entries by number. It must be called before the watermark moves to their Seq.
func (m *Memtable) Show() { m.shown.Store(m.n) }

// find returns the newest entry of a key with a Seq in (after, upto], nil if there is none.
func (m *Memtable) find(key []byte, tag uint32, after, upto uint64) *entry {
	x := m.index.Load()
	if x.marks != nil && !x.has(tag) {
		return nil
	}
	words := x.words
	mask := uint32(len(words) - 1)
	for at := tag & mask; ; at = (at + 1) & mask {
		word := words[at].Load()
		if word == 0 {
			return nil
		}
		if uint32(word>>32) != tag {
			continue
		}
		e := m.at(uint32(word) - 1)
		if !bytes.Equal(e.op.Key, key) {
			continue
		}
		for e.seq > upto {
			if e.prev == 0 {
				return nil
			}
			e = m.at(e.prev - 1)
		}
		if e.seq <= after {
			return nil
		}
		return e
	}
}

// Len returns the number of ops. Only the leader calls it.
func (m *Memtable) Len() int { return int(m.n) }

// Keys returns the number of distinct keys. Only the leader calls it.
func (m *Memtable) Keys() int { return m.keys }

// Ordered reports whether a cursor has asked for the order of the keys. Only the leader calls it.
func (m *Memtable) Ordered() bool { return m.order.Load() != nil }

// Bytes returns the bytes of all keys and values. Only the leader calls it.
func (m *Memtable) Bytes() int64 { return m.bytes }

// Ascends reports whether each key is above the one inserted before it. Only the leader calls it.
func (m *Memtable) Ascends() bool { return m.ascend }

// Op returns op number i.
func (m *Memtable) Op(i int) *btree.Op { return &m.at(uint32(i)).op }

// Seq returns the Seq of the batch of op number i.
func (m *Memtable) Seq(i int) uint64 { return m.at(uint32(i)).seq }

// Upto returns the number of ops with a Seq of at most seq. Only the leader calls it.
func (m *Memtable) Upto(seq uint64) int {
	if m.n > 0 && m.at(m.n-1).seq <= seq {
		return int(m.n)
	}
	return int(m.upto(m.n, seq))
}

// upto returns how many of the first n entries have a Seq of at most seq.
func (m *Memtable) upto(n uint32, seq uint64) uint32 {
	low, high := uint32(0), n
	for low < high {
		mid := low + (high-low)/2
		if m.at(mid).seq <= seq {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// Reset empties the table. No reader may have the table any more. The memory stays for the next entries, unless it is
// far more than the last ones needed.
func (m *Memtable) Reset() {
	chunks, x := *m.chunks.Load(), m.index.Load()
	words := x.words
	used := int(m.n+chunkEntries-1) / chunkEntries
	if len(chunks) > 4*used+4 { // for example, small batches have followed a load
		kept := chunks[: used+1 : used+1]
		m.chunks.Store(&kept)
	}
	if len(words) > 16*m.keys && len(words) > 64*leastWords {
		m.index.Store(newIndex(leastWords))
	} else if len(words) > 8*m.keys {
		m.clearWords(words)
	} else {
		clear(words) // not by atomic stores, which take ten times as long: no reader has the table
	}
	clear(x.marks)
	for _, c := range chunks[:used] {
		clear(c[:])
	}
	m.Copies.Reset()
	m.shown.Store(0)
	m.order.Store(nil)
	m.n, m.keys, m.bytes, m.ascend = 0, 0, 0, true
}

// clearWords clears only the words of the entries. The word of an entry lies in a run of used words at or after
// the place of its tag.
func (m *Memtable) clearWords(words []atomic.Uint64) {
	mask := uint32(len(words) - 1)
	for i := range m.n {
		for at := m.at(i).tag & mask; words[at].Load() != 0; at = (at + 1) & mask {
			words[at].Store(0)
		}
	}
}
