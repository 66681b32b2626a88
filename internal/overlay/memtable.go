package overlay

import (
	"bytes"
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
)

// Memtable has committed ops that are not in the tree yet, or were not when a reader began, in the order of their commits, and finds the newest
// one of a key for a reader at any Seq. One goroutine inserts, the leader; any goroutine reads. Memory does not move while it grows.
//
// Invariants:
//
//  1. An entry is complete before its index word is stored, and stays as it is until Reset. So a reader that finds a word finds the entry.
//  2. Entries are in the order of their Seqs. The index leads to the newest entry of a key, and from each entry prev leads to the one of the
//     same key before it. So a reader at an older Seq passes the newer ones.
//  3. When the index grows, a new one is filled and published. The old one stays as it is for those that look at it: entries that are inserted
//     since are above their Seqs.
//  4. Reset comes when nobody reads: no registered reader has a view with the table.
type Memtable struct {
	chunks atomic.Pointer[[]*chunk]
	index  atomic.Pointer[[]atomic.Uint64] // a power of two of words: tag << 32 | 1 + number of the entry; 0 is free
	shown  atomic.Uint32                   // entries that readers may ask for by number: whole batches
	order  atomic.Pointer[order]           // of some first entries; made by readers

	// The rest belongs to who inserts.
	Copies writeset.Arena // redo records of small batches, in which their entries have their keys and values
	n      uint32         // entries
	keys   int            // of them, the first ones of their keys
	bytes  int64          // of their keys and values
	ascend bool           // each key is above the one inserted before it
}

// entry is an op and the Seq of its batch.
type entry struct {
	op   btree.Op
	seq  uint64
	prev uint32 // 1 + number of the entry of the same key before it, 0 if it is the first
	tag  uint32 // lower half of the hash of the key
}

const (
	chunkEntries = 256 // 20 KiB: what a table takes at least
	leastWords   = 64
	fastGrowth   = 1 << 15 // words below which the index grows fourfold
)

type chunk [chunkEntries]entry

// EntryBytes is what an entry takes at most, with its part of the index and of the order, without key and value.
const EntryBytes = 80 + 4*8 + 16

// NewMemtable returns an empty table.
func NewMemtable() *Memtable {
	m := &Memtable{ascend: true}
	index, chunks := make([]atomic.Uint64, leastWords), []*chunk(nil)
	m.index.Store(&index)
	m.chunks.Store(&chunks)
	return m
}

func (m *Memtable) at(i uint32) *entry { return &(*m.chunks.Load())[i/chunkEntries][i%chunkEntries] }

// Insert adds an op, whose key has the given hash, of the batch at seq, which is not below those before. It returns the op of the same key
// before it, nil if there is none, and that one's number. Readers that look for the key may come to it at once; they pass it as long as seq is above what they read
// at.
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
	words := *m.index.Load()
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

// grow makes room for a chunk of entries from number i on.
func (m *Memtable) grow(i uint32) {
	chunks := *m.chunks.Load()
	if int(i/chunkEntries) == len(chunks) {
		more := append(chunks, new(chunk)) // behind what readers of the old header look at
		m.chunks.Store(&more)
	}
	if size := len(*m.index.Load()); 2*(m.keys+chunkEntries) > size {
		if size < fastGrowth {
			size *= 2
		}
		m.Reserve(max(size, m.keys+chunkEntries))
	}
}

// Reserve makes the index large enough for the given number of keys. For who inserts.
func (m *Memtable) Reserve(keys int) {
	words := *m.index.Load()
	size := len(words)
	for size < 2*keys {
		size *= 2
	}
	if size == len(words) {
		return
	}
	larger := make([]atomic.Uint64, size)
	mask := uint32(size - 1)
	for j := range words {
		word := words[j].Load()
		if word == 0 {
			continue
		}
		at := uint32(word>>32) & mask
		for larger[at].Load() != 0 {
			at = (at + 1) & mask
		}
		larger[at].Store(word)
	}
	m.index.Store(&larger)
}

// Show lets readers ask for all entries by their numbers. It comes before the watermark moves to their Seq.
func (m *Memtable) Show() { m.shown.Store(m.n) }

// find returns the newest entry of a key at a Seq in (after, upto], nil if there is none.
func (m *Memtable) find(key []byte, tag uint32, after, upto uint64) *entry {
	words := *m.index.Load()
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

// Len returns how many ops were inserted. For who inserts.
func (m *Memtable) Len() int { return int(m.n) }

// Keys returns how many keys they have. For who inserts.
func (m *Memtable) Keys() int { return m.keys }

// Ordered reports whether a cursor has asked for the order of the keys. For who inserts.
func (m *Memtable) Ordered() bool { return m.order.Load() != nil }

// Bytes returns the bytes of their keys and values. For who inserts.
func (m *Memtable) Bytes() int64 { return m.bytes }

// Ascends reports whether each key is above the one inserted before it. For who inserts.
func (m *Memtable) Ascends() bool { return m.ascend }

// Op returns the op with the given number.
func (m *Memtable) Op(i int) *btree.Op { return &m.at(uint32(i)).op }

// Seq returns the Seq of its batch.
func (m *Memtable) Seq(i int) uint64 { return m.at(uint32(i)).seq }

// Upto returns how many ops there are up to a Seq. For who inserts.
func (m *Memtable) Upto(seq uint64) int {
	if m.n > 0 && m.at(m.n-1).seq <= seq {
		return int(m.n)
	}
	return int(m.upto(m.n, seq))
}

// upto returns how many of the first n entries are of Seqs up to the given one.
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

// Reset makes the table empty, with the memory that it has, unless that is much for the entries it had. Nobody reads it any more.
func (m *Memtable) Reset() {
	chunks, words := *m.chunks.Load(), *m.index.Load()
	used := int(m.n+chunkEntries-1) / chunkEntries
	if len(chunks) > 4*used+4 { // after a load, small batches
		kept := chunks[: used+1 : used+1]
		m.chunks.Store(&kept)
	}
	if len(words) > 16*m.keys && len(words) > 64*leastWords {
		words = make([]atomic.Uint64, leastWords)
		m.index.Store(&words)
	} else if len(words) > 8*m.keys {
		m.clearWords(words)
	} else {
		clear(words) // nobody reads them: a store that orders others takes ten times as long
	}
	for _, c := range chunks[:used] {
		clear(c[:])
	}
	m.Copies.Reset()
	m.shown.Store(0)
	m.order.Store(nil)
	m.n, m.keys, m.bytes, m.ascend = 0, 0, 0, true
}

// clearWords clears the words of the entries alone. Each lies in a stretch of words that begins at its own place, or before it.
func (m *Memtable) clearWords(words []atomic.Uint64) {
	mask := uint32(len(words) - 1)
	for i := range m.n {
		for at := m.at(i).tag & mask; words[at].Load() != 0; at = (at + 1) & mask {
			words[at].Store(0)
		}
	}
}
