package btree

import "flashdbm/internal/invariants"

// A cell heap is a block to which the writer appends the cells of a leaf's new records. Successive versions of the
// leaf share it: each version refers to its cells, no cell is ever changed, and the block is freed when the last
// version that refers to it is released. Readers never read the block's header:
//
//	references u32 | bytes used u16 | class u8 | 0 | cells
//
// Invariant: only the newest version of a leaf appends.
const (
	heapHeader = 8
	minHeap    = 256
	maxHeap    = maxBlock

	heapUsedAt  = 4
	heapClassAt = 6
)

// newHeap returns a heap with room for the given bytes of cells and one reference.
func newHeap(m *Memory, cells int) pointer {
	c := classOf(max(minHeap, heapHeader+cells))
	h := m.alloc(c)
	store32(h, 0, 1)
	store16(h, heapUsedAt, heapHeader)
	store16(h, heapClassAt, int(c))
	return h
}

func heapUsed(h pointer) int { return load16(h, heapUsedAt) }

// heapRoom returns how many bytes can still be appended.
func heapRoom(h pointer) int { return classBytes[load16(h, heapClassAt)&0xFF] - heapUsed(h) }

func heapHold(h pointer) {
	mustBeShared(h)
	store32(h, 0, load32(h, 0)+1)
}

// mustBeShared checks, in builds with the tag invariants, that h has not been released: the release of a block
// overwrites the byte after the class.
func mustBeShared(h pointer) {
	if invariants.Enabled {
		invariants.Check(load32(h, 0) > 0 && load16(h, heapClassAt)>>8 == 0, "nobody holds a block that is shared or released")
	}
}

func heapRelease(m *Memory, h pointer) {
	mustBeShared(h)
	r := load32(h, 0) - 1
	if r == 0 {
		m.release(h)
		return
	}
	store32(h, 0, r)
}

// heapAppend reserves n bytes and returns their offset in the heap.
func heapAppend(h pointer, n int) int {
	at := heapUsed(h)
	store16(h, heapUsedAt, at+n)
	return at
}
