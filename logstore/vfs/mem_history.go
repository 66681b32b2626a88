package vfs

import (
	"cmp"
	"slices"
)

// blockSize is the unit in bytes in which Mem allocates space, and in which the kernel tracks dirty pages.
const blockSize = 4096

const sectorsPerBlock = blockSize / SectorSize

// history records the changes of a Mem file since it was last durable: an undo log by sector. Undoing some of
// the entries, so that each sector shows one of the contents that it had, makes an image that a power cut may
// leave.
//
//  1. A sector without entries is durable as it is.
//  2. An entry holds the content of the sector before one change. The content after the change is in the
//     sector's next entry, or in the file if there is none.
//  3. Entries are in order of seq, which is unique among the sectors of a Mem.
//  4. A block is dirty if it was changed since a Datasync last tried to write it. Entries of clean blocks are
//     those of a failed Datasync, which may or may not have written them. No later Datasync will write them
//     unless the block changes again and is therefore written again.
//  5. The arena has touched the block of every entry.
//  6. sizes obeys the same rules, as if it were one more block.
type history struct {
	entries []change
	cells   cells   // contents of sectors before changes
	newest  []int32 // for each sector 1 + the index of its newest entry, 0 if it has none
	dirty   []dirt  // for each block

	sizes     []sizeChange
	sizeDirty dirt

	// syncedAlloc are the blocks whose allocation is durable.
	syncedAlloc bitset
	failed      bool // a Datasync failed: there may be entries of clean blocks
}

// change is one change of one sector.
type change struct {
	seq    uint64
	sector int64
	before int32 // cell with the content before the change, or zeroCell
	older  int32 // index of the sector's entry before this one, or -1
}

// zeroCell is the number of a cell that is all zero and not stored.
const zeroCell = -1

// dirt is the seq of a block's first change since a Datasync last tried to
// write it, 0 for a clean block.
type dirt uint64

// sizeChange is one change of the file's size.
type sizeChange struct {
	seq    uint64
	before int64
}

func (d *dirt) touch(seq uint64) {
	if *d == 0 {
		*d = dirt(seq)
	}
}

// dirtyAt reports whether a Datasync that starts at seq writes the block.
func (d dirt) dirtyAt(seq uint64) bool { return d != 0 && uint64(d) <= seq }

// changed records that the sector is about to change. before is its present content, nil for zeros.
func (h *history) changed(seq uint64, sector int64, before []byte) {
	for int64(len(h.newest)) <= sector|(sectorsPerBlock-1) {
		h.newest = append(h.newest, make([]int32, max(sectorsPerBlock, len(h.newest)))...)
		h.dirty = append(h.dirty, make([]dirt, len(h.newest)/sectorsPerBlock-len(h.dirty))...)
	}
	cell := int32(zeroCell)
	if before != nil {
		cell = h.cells.add(before)
	}
	h.append(change{seq: seq, sector: sector, before: cell})
	h.dirty[sector/sectorsPerBlock].touch(seq)
}

func (h *history) append(c change) {
	c.older = h.newest[c.sector] - 1
	h.entries = append(h.entries, c)
	h.newest[c.sector] = int32(len(h.entries))
}

func (h *history) resized(seq uint64, before int64) {
	h.sizes = append(h.sizes, sizeChange{seq: seq, before: before})
	h.sizeDirty.touch(seq)
}

// cell returns a stored cell, nil for zeros.
func (h *history) cell(n int32) []byte {
	if n == zeroCell {
		return nil
	}
	return h.cells.at(n)
}

// cells holds contents of sectors. It consists of parts, so that growth does not copy the contents already
// there.
type cells struct {
	parts [][]byte
	n     int32
}

const cellsOfPart = 32

func (c *cells) at(n int32) []byte {
	return c.parts[n/cellsOfPart][n%cellsOfPart*SectorSize:][:SectorSize]
}

func (c *cells) add(b []byte) (n int32) {
	if int(c.n/cellsOfPart) == len(c.parts) {
		c.parts = append(c.parts, make([]byte, cellsOfPart*SectorSize))
	}
	n = c.n
	c.n++
	copy(c.at(n), b)
	return n
}

func (c *cells) clone() cells {
	used := c.parts[:(c.n+cellsOfPart-1)/cellsOfPart]
	d := cells{parts: make([][]byte, len(used)), n: c.n}
	for i, p := range used {
		d.parts[i] = slices.Clone(p)
	}
	return d
}

// synced ends a Datasync that started at seq. If it succeeded, changes before it are durable. In either case
// the blocks that it tried to write are clean.
func (h *history) synced(seq uint64, ok bool, alloc bitset) {
	h.failed = h.failed || !ok
	if ok {
		h.syncedAlloc = append(h.syncedAlloc[:0], alloc...)
	}
	if h.sizeDirty.dirtyAt(seq) {
		h.sizes, h.sizeDirty = syncedSizes(h.sizes, seq, ok)
	}
	if n := len(h.entries); !h.failed && (n == 0 || h.entries[n-1].seq <= seq) {
		h.reset()
		return
	}
	h.syncedSectors(seq, ok)
}

func syncedSizes(sizes []sizeChange, seq uint64, ok bool) ([]sizeChange, dirt) {
	var rest dirt
	i, _ := slices.BinarySearchFunc(sizes, seq+1, func(s sizeChange, seq uint64) int {
		return cmp.Compare(s.seq, seq)
	})
	if i < len(sizes) {
		rest.touch(sizes[i].seq)
	}
	if ok {
		sizes = slices.Delete(sizes, 0, i)
	}
	return sizes, rest
}

// reset is syncedSectors for the common case in which no entry stays.
func (h *history) reset() {
	for _, c := range h.entries {
		h.newest[c.sector] = 0
		h.dirty[c.sector/sectorsPerBlock] = 0
	}
	h.entries, h.cells.n = h.entries[:0], 0
}

// syncedSectors rebuilds the log, in place, without the entries that became
// durable, and marks the blocks that were written as clean.
func (h *history) syncedSectors(seq uint64, ok bool) {
	entries, old := h.entries, h.cells
	for _, c := range entries {
		h.newest[c.sector] = 0
	}
	written := make(map[int64]bool)
	for b, d := range h.dirty {
		if d.dirtyAt(seq) {
			written[int64(b)] = true
			h.dirty[b] = 0
		}
	}
	h.entries, h.cells.n = entries[:0], 0
	for _, c := range entries {
		block := c.sector / sectorsPerBlock
		if written[block] && c.seq > seq {
			h.dirty[block].touch(c.seq)
		}
		if ok && written[block] && c.seq <= seq {
			continue
		}
		if c.before != zeroCell {
			c.before = h.cells.add(old.at(c.before)) // the new cell is at the old cell's index or a lower one
		}
		h.append(c)
	}
	h.failed = h.failed && len(h.entries) > 0
}

// forget drops all entries of some sectors: these sectors are durable as they are.
func (h *history) forget(sectors bitset) {
	entries, old := h.entries, h.cells
	for _, c := range entries {
		h.newest[c.sector] = 0
	}
	h.entries, h.cells.n = entries[:0], 0
	for _, c := range entries {
		if sectors.has(c.sector) {
			continue
		}
		if c.before != zeroCell {
			c.before = h.cells.add(old.at(c.before)) // the new cell is at the old cell's index or a lower one
		}
		h.append(c)
	}
	h.failed = h.failed && len(h.entries) > 0
}

// clean reports whether the sectors in [lo, hi) are durable as they are.
func (h *history) clean(lo, hi int64) bool {
	for s := lo; s < min(hi, int64(len(h.newest))); s++ {
		if h.newest[s] != 0 {
			return false
		}
	}
	return true
}

func (h *history) clone() history {
	c := *h
	c.entries = slices.Clone(h.entries)
	c.cells = h.cells.clone()
	c.newest = slices.Clone(h.newest)
	c.dirty = slices.Clone(h.dirty)
	c.sizes = slices.Clone(h.sizes)
	c.syncedAlloc = slices.Clone(h.syncedAlloc)
	return c
}
