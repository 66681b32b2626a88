package writeset

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
)

const (
	// blockRecords is the most records of a block. With more, an insertion moves more records (half a block on
	// average); with fewer, the directory has more entries. Between 128 and 512 the total cost hardly changes.
	blockRecords = 256
	// firstRecords is the initial capacity of the first block: most transactions write only a few records.
	firstRecords = 8
	slotBytes    = 8 + 4 // of a record in a block
	blockBytes   = 64    // of a block in addition to its slots

	// keepBlocks is the most blocks that Reset keeps.
	keepBlocks = 16
)

// block is a run of records in key order.
type block struct {
	n int

	// skip is the length of a prefix that all keys share which are in the block or can be added to it. Heads
	// begin after that prefix.
	skip int

	heads   []uint64 // HeadOf each key; as long as the block's capacity
	records []uint32 // indexes in keys.records; as long as heads
}

// firstBlock has the whole directory of a small set in one piece of memory.
type firstBlock struct {
	block   block
	heads   [firstRecords]uint64
	records [firstRecords]uint32
	blocks  [1]*block
	firsts  [1]uint64
	fences  [1][]byte
}

// order lists the records of a write set by key. Invariants:
//
//  1. The blocks, one after the other, list every record once, by ascending key. No block is empty, unless there
//     are no records; then it is the only one.
//  2. fences[b], for b > 0, is the first key of blocks[b], and stays so: lower keys go into the previous
//     block. fences[0] is empty, a lower bound.
//  3. firsts[b] is HeadOf(fences[b], 0).
//  4. A block's skip is the length of the prefix shared by its fence and the next one, and so by all keys between
//     them. The first and the last block have no two fences: their skip is 0.
//  5. The first block has the capacity for firstRecords to blockRecords records, all others for blockRecords.
type order struct {
	blocks []*block
	firsts []uint64
	fences [][]byte
	spare  []*block // blocks from before the last Reset
	slots  int      // capacity of all blocks, in records
}

// keys are the records of a write set in memory, sorted by key.
type keys struct {
	arena   Arena // keys and values
	records recordList
	order   order
	version uint64 // changes with each change: positions of earlier versions are invalid
}

// HeadOf returns the eight bytes of key after the first skip bytes, padded with zeros, as a big-endian number. If
// two keys share their first skip bytes and have different heads, the keys compare like the heads; if the heads are
// equal, the order of the keys is not known.
func HeadOf(key []byte, skip int) uint64 {
	if len(key) >= skip+8 {
		return binary.BigEndian.Uint64(key[skip:])
	}
	if len(key) >= skip+4 { // two overlapping loads: bytes copied one by one could not be loaded as one number at once
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

// keyOf returns the key of record id.
func (w *keys) keyOf(id uint32) []byte {
	r := w.records.at(id)
	return w.arena.at(r.key, r.keyBytes)
}

// find returns the place of the first record with a key >= key, and whether the two are equal. The index may be one
// past the block's last record. There must be at least one block.
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

// findBlock returns the block to which key belongs.
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

// isPastEnd reports whether key, whose head is given, is above all keys, of which there must be at least one.
// With it, insertions in ascending order need no search.
func (w *keys) isPastEnd(key []byte, head uint64) bool {
	bl := w.order.blocks[len(w.order.blocks)-1]
	last := bl.heads[bl.n-1]
	return last < head || last == head && bytes.Compare(w.keyOf(bl.records[bl.n-1]), key) < 0
}

// insert inserts a record at the place that find returned for its key.
func (w *keys) insert(b, i int, id uint32) {
	bl := w.order.blocks[b]
	if bl.n == blockRecords {
		b, i = w.split(b, i, id)
		bl = w.order.blocks[b]
	}
	w.order.grow(bl)
	copy(bl.heads[i+1:], bl.heads[i:bl.n])
	copy(bl.records[i+1:], bl.records[i:bl.n])
	bl.heads[i], bl.records[i] = HeadOf(w.keyOf(id), bl.skip), id
	bl.n++
}

// split makes room for record id at place (b, i) of a full block, and returns the place for the record afterwards.
func (w *keys) split(b, i int, id uint32) (int, int) {
	bl := w.order.blocks[b]
	// At the very end, the block stays full and a new one begins with id, so that ascending insertions leave no
	// gaps. Anywhere else the block is halved, even if id belongs after its last record: otherwise, descending
	// insertions between it and the next block would begin a block each.
	keep, fence := bl.n, id
	if i < bl.n || b+1 < len(w.order.blocks) {
		keep = blockRecords / 2
		fence = bl.records[keep]
	}
	right := w.addBlock(b+1, w.keyOf(fence))
	right.n = copy(right.records, bl.records[keep:bl.n])
	bl.n = keep
	w.setHeads(b)
	w.setHeads(b + 1)
	if fence == id || i > keep {
		return b + 1, i - keep
	}
	return b, i
}

// begin makes the first block.
func (o *order) begin() {
	f := new(firstBlock)
	f.block.heads, f.block.records = f.heads[:], f.records[:]
	f.blocks[0] = &f.block
	o.blocks, o.firsts, o.fences, o.slots = f.blocks[:], f.firsts[:], f.fences[:], firstRecords
}

// grow makes room for another record in a block with a capacity of less than
// blockRecords.
func (o *order) grow(bl *block) {
	if bl.n < len(bl.heads) {
		return
	}
	n := min(4*len(bl.heads), blockRecords)
	o.slots += n - len(bl.heads)
	heads, records := make([]uint64, n), make([]uint32, n)
	copy(heads, bl.heads)
	copy(records, bl.records)
	bl.heads, bl.records = heads, records
}

// addBlock inserts an empty block at index b > 0 of the directory.
func (w *keys) addBlock(b int, fence []byte) *block {
	o := &w.order
	var bl *block
	if n := len(o.spare); n > 0 {
		bl, o.spare = o.spare[n-1], o.spare[:n-1]
		bl.n, bl.skip = 0, 0
	} else {
		bl = &block{heads: make([]uint64, blockRecords), records: make([]uint32, blockRecords)}
		o.slots += blockRecords
	}
	o.blocks = slices.Insert(o.blocks, b, bl)
	o.firsts = slices.Insert(o.firsts, b, HeadOf(fence, 0))
	o.fences = slices.Insert(o.fences, b, fence)
	return bl
}

// setHeads computes the skip and the heads of block b from its fences and records.
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

// reset forgets all records. It keeps the blocks, the first one in its place, unless there are more than
// keepBlocks.
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
