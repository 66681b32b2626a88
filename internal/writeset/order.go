package writeset

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
)

const (
	// blockRecords is the most records of a block. An insertion moves half of them on average, and every block costs the directory an
	// entry; between 128 and 512 the sum hardly changes.
	blockRecords = 256
	blockBytes   = 16 + 12*blockRecords

	// keepBlocks is the most that Reset keeps.
	keepBlocks = 16
)

// block is a run of records in key order.
type block struct {
	n int

	// skip is the length of a prefix that all keys share that are in the block or ever will be, so that heads can begin after it.
	skip int

	heads   [blockRecords]uint64 // HeadOf the keys
	records [blockRecords]uint32 // indices in Set.records
}

// order lists the records of a write set by key. Invariants:
//
//  1. The blocks, one after the other, list every record once, keys ascending. No block is empty, unless there are no records and it is the
//     only one.
//  2. fences[b], for b > 0, is the first key of blocks[b]. It is so for good: lower keys go into the block before. fences[0] is empty, a
//     lower bound.
//  3. firsts[b] is HeadOf(fences[b], 0).
//  4. A block's skip is the prefix that its fence and the next one share, and so do all keys between them. The first and the last block
//     have no two fences, and skip 0.
type order struct {
	blocks []*block
	firsts []uint64
	fences [][]byte
	spare  []*block // from before the last Reset
}

// keys are the records of a write set that are in memory, in the order of their keys.
type keys struct {
	arena   Arena // keys and values
	records recordList
	order   order
	version uint64 // moves with each change: positions of before are void
}

// HeadOf returns the eight bytes of key after skip as a number that compares like them, zeros standing for bytes that are not there. Of
// keys that share the bytes before, those with different heads are in the order of their heads; of those with equal heads nothing is known.
func HeadOf(key []byte, skip int) uint64 {
	if len(key) >= skip+8 {
		return binary.BigEndian.Uint64(key[skip:])
	}
	if len(key) >= skip+4 { // without a copy, whose bytes the processor could not load as one number at once
		n := len(key) - skip
		last := uint64(binary.BigEndian.Uint32(key[len(key)-4:]))
		return uint64(binary.BigEndian.Uint32(key[skip:]))<<32 | last<<(8*(8-n))&math.MaxUint32
	}
	var head uint64
	for i := skip; i < len(key); i++ {
		head |= uint64(key[i]) << (56 - 8*(i-skip))
	}
	return head
}

// CommonPrefix returns the number of leading bytes that a and b share.
func CommonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// keyOf returns the key of a record.
func (w *keys) keyOf(id uint32) []byte {
	r := w.records.at(id)
	return w.arena.at(r.key, r.keyBytes)
}

// find returns where the first record at or after key is or would be, and whether its key is key. The index may be one past the block's
// last. There must be a block.
func (w *keys) find(key []byte) (b, i int, found bool) {
	b = w.findBlock(key)
	bl := w.order.blocks[b]
	head := HeadOf(key, bl.skip)
	lo, hi := 0, bl.n
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		order := 1
		switch at := bl.heads[m]; {
		case at < head:
			order = -1
		case at == head:
			order = bytes.Compare(w.keyOf(bl.records[m]), key)
		}
		switch {
		case order < 0:
			lo = m + 1
		case order > 0:
			hi = m
		default:
			return b, m, true
		}
	}
	return b, lo, false
}

// findBlock returns the block in which key is or would be.
func (w *keys) findBlock(key []byte) int {
	o := &w.order
	head := HeadOf(key, 0)
	lo, hi := 1, len(o.blocks)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		first := o.firsts[m]
		if first < head || first == head && bytes.Compare(o.fences[m], key) <= 0 {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo - 1
}

// isPastEnd reports whether key, whose head is given, comes after all keys, of which there must be one. It spares ascending insertions the
// search.
func (w *keys) isPastEnd(key []byte, head uint64) bool {
	bl := w.order.blocks[len(w.order.blocks)-1]
	last := bl.heads[bl.n-1]
	return last < head || last == head && bytes.Compare(w.keyOf(bl.records[bl.n-1]), key) < 0
}

// insert lists a record before the place that find returned for its key.
func (w *keys) insert(b, i int, id uint32) {
	bl := w.order.blocks[b]
	if bl.n == blockRecords {
		b, i = w.split(b, i, id)
		bl = w.order.blocks[b]
	}
	copy(bl.heads[i+1:], bl.heads[i:bl.n])
	copy(bl.records[i+1:], bl.records[i:bl.n])
	bl.heads[i], bl.records[i] = HeadOf(w.keyOf(id), bl.skip), id
	bl.n++
}

// split makes room for record id at place (b, i) of a full block, and returns the place where that is now.
func (w *keys) split(b, i int, id uint32) (int, int) {
	bl := w.order.blocks[b]
	// At the very end the block stays full and the new one begins with id, so that ascending insertions leave no gaps. Anywhere else it is
	// halved, also behind its last record: descending insertions between it and the next block would begin a new one each.
	keep, fence := bl.n, id
	if i < bl.n || b+1 < len(w.order.blocks) {
		keep = blockRecords / 2
		fence = bl.records[keep]
	}
	right := w.addBlock(b+1, w.keyOf(fence))
	right.n = copy(right.records[:], bl.records[keep:bl.n])
	bl.n = keep
	w.setHeads(b)
	w.setHeads(b + 1)
	if fence == id || i > keep {
		return b + 1, i - keep
	}
	return b, i
}

// addBlock puts an empty block at position b of the directory.
func (w *keys) addBlock(b int, fence []byte) *block {
	o := &w.order
	var bl *block
	if n := len(o.spare); n > 0 {
		bl, o.spare = o.spare[n-1], o.spare[:n-1]
		bl.n, bl.skip = 0, 0
	} else {
		bl = &block{}
	}
	o.blocks = slices.Insert(o.blocks, b, bl)
	o.firsts = slices.Insert(o.firsts, b, HeadOf(fence, 0))
	o.fences = slices.Insert(o.fences, b, fence)
	return bl
}

// setHeads sets the skip and the heads of block b from its fences and records.
func (w *keys) setHeads(b int) {
	o := &w.order
	bl := o.blocks[b]
	bl.skip = 0
	if b+1 < len(o.blocks) {
		bl.skip = CommonPrefix(o.fences[b], o.fences[b+1])
	}
	for i, id := range bl.records[:bl.n] {
		bl.heads[i] = HeadOf(w.keyOf(id), bl.skip)
	}
}

// reset forgets all records. It keeps the blocks unless there are many, the first one in its place.
func (o *order) reset() {
	if len(o.blocks)+len(o.spare) > keepBlocks {
		*o = order{}
	}
	if len(o.blocks) > 1 {
		o.spare = append(o.spare, o.blocks[1:]...)
		clear(o.blocks[1:])
		clear(o.fences[1:])
		o.blocks, o.firsts, o.fences = o.blocks[:1], o.firsts[:1], o.fences[:1]
	}
	if len(o.blocks) > 0 {
		o.blocks[0].n = 0
	}
}
