package btree

import "flashdbm/internal/invariants"

// Memory allocates the blocks of which versions are made, in size classes of 64 to 6144 bytes, outside the Go heap
// where the system allows.
//
// Invariants:
//  1. A block is either free, and then in the free list of its slab, or held by versions. The list is threaded
//     through the free blocks.
//  2. All blocks of a slab are of one class. A slab with a free block is in the open list of its class; a slab
//     without a live block belongs to no class and is in the list of empty slabs.
//  3. At most keepEmpty of the empty slabs, the ones used last, keep memory of the system, and these are reused
//     first. So memory that each batch takes and frees does not go back to the system after each batch.
//  4. Slabs start at multiples of slabBytes, so the address of a block leads to its slab. The last four bytes of a
//     slab with blocks are its index.
//
// Memory belongs to the writer: one goroutine at a time for all methods. Readers use the blocks, never the Memory.
type Memory struct {
	// Even allows even leaves. It is set before Apply and Repack, and never reset.
	Even bool

	slabs  []*slab
	open   [len(classBytes)]*slab
	empty  []*slab // a stack; the memory of the last warm ones is kept
	warm   int
	unmaps []func() error
	held   int64
	pool   *MemoryPool // gets the mapped memory at Close; nil: the memory goes back to the system

	apply applier  // scratch of the batch being applied, kept for the next one
	moved []uint16 // scratch of Rebase

	onHeap bool // tests: take memory from the Go heap, where the race detector sees it
	poison bool // tests: overwrite freed blocks, so that a reader that still uses one is found out
}

// A slab is a stretch of memory divided into blocks of one class.
type slab struct {
	base       pointer
	bytes      []byte
	index      uint32 // in Memory.slabs
	class      class
	live       int // blocks held
	carved     int // bytes handed out at least once; the rest was never touched
	free       int // offset of the first free block, or noBlock
	prev, next *slab
	linked     bool // in the open list
}

const (
	slabBytes  = 256 << 10
	chunkSlabs = 16 // slabs mapped at a time
	keepEmpty  = 16 // warm slabs, at most
	slabUsable = slabBytes - 64
	noBlock    = -1
)

// class is the index of a block size.
type class = uint8

// classBytes are the sizes of blocks: steps of 64 bytes up to 1 KiB, then four steps for each doubling, and two at
// the top. So a directory wastes little of its block.
var classBytes = [...]int{
	64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 704, 768, 832, 896, 960, 1024,
	1152, 1280, 1408, 1536, 1792, 2048, 2304, 2560, 3072, 3584, 4096, 5120, 6144,
}

// classTable maps a size in units of 64 bytes to its class.
var classTable = func() (t [maxBlock/64 + 1]class) {
	c := 0
	for i := range t {
		if i*64 > classBytes[c] {
			c++
		}
		t[i] = class(c)
	}
	return t
}()

const maxBlock = 6144

// classOf returns the smallest class with room for n bytes, at most maxBlock.
func classOf(n int) class { return classTable[(n+63)/64] }

// NewMemory returns a Memory that holds nothing.
func NewMemory() *Memory { return &Memory{} }

// Held returns the bytes of all blocks held by versions that were not released. The system may count more, because
// of free blocks in slabs in use.
func (m *Memory) Held() int64 { return m.held }

// Close returns all memory to the system, or to the pool. After that no goroutine, readers included, may use
// versions of this Memory.
func (m *Memory) Close() {
	if m.pool != nil {
		m.pool.put(m)
		m.slabs, m.unmaps = nil, nil
	}
	for _, unmap := range m.unmaps {
		_ = unmap() // cannot fail: the address and length are those of the mapping
	}
	*m = Memory{poison: m.poison, onHeap: m.onHeap}
}

func (m *Memory) alloc(c class) pointer {
	s := m.open[c]
	if s == nil {
		s = m.newSlab(c)
	}
	var p pointer
	if s.free != noBlock {
		p = add(s.base, s.free)
		s.free = int(int32(load32(p, 0)))
	} else {
		p = add(s.base, s.carved)
		s.carved += classBytes[c]
	}
	s.live++
	if s.full() {
		m.unlink(s)
	}
	m.held += int64(classBytes[c])
	return p
}

func (m *Memory) release(p pointer) {
	base := alignDown(p, slabBytes)
	s := m.slabs[load32(base, slabBytes-4)]
	at := int(uintptr(p) - uintptr(s.base))
	if m.poison || invariants.Enabled {
		for i := range slice(p, 0, classBytes[s.class]) {
			s.bytes[at+i] = 0xDB
		}
	}
	store32(p, 0, uint32(int32(s.free)))
	s.free = at
	s.live--
	m.held -= int64(classBytes[s.class])
	switch {
	case s.live == 0:
		if s.linked {
			m.unlink(s)
		}
		m.empty = append(m.empty, s)
		m.warm++
		if m.warm > keepEmpty {
			m.warm--
			if oldest := m.empty[len(m.empty)-1-m.warm]; !m.poison {
				discard(oldest.bytes)
			}
		}
	case s.live < 0: // this case comes before the next one, because an empty slab is not linked
		panic("btree: block released twice")
	case !s.linked:
		m.link(s)
	}
}

func (s *slab) full() bool {
	return s.free == noBlock && s.carved+classBytes[s.class] > slabUsable
}

// newSlab returns an open slab for blocks of class c.
func (m *Memory) newSlab(c class) *slab {
	if len(m.empty) == 0 {
		m.addChunk()
	}
	s := m.empty[len(m.empty)-1]
	m.empty = m.empty[:len(m.empty)-1]
	m.warm = max(m.warm-1, 0)
	s.class, s.carved, s.free = c, 0, noBlock
	store32(s.base, slabBytes-4, s.index) // written here and not when the slab is mapped: most databases need few slabs, and should not touch the others
	m.link(s)
	return s
}

func (m *Memory) addChunk() {
	from := mapChunk
	if m.onHeap {
		from = heapChunk
	}
	chunk, unmap := from((chunkSlabs + 1) * slabBytes) // one slab more, for alignment
	m.unmaps = append(m.unmaps, unmap)
	chunk = chunk[alignOffset(pointerTo(chunk), slabBytes):]
	for i := chunkSlabs - 1; i >= 0; i-- {
		b := chunk[i*slabBytes:][:slabBytes:slabBytes]
		s := &slab{base: pointerTo(b), bytes: b, index: uint32(len(m.slabs)), free: noBlock}
		m.slabs = append(m.slabs, s)
		m.empty = append(m.empty, s)
	}
}

// heapChunk returns n bytes of the Go heap. It never fails, and its unmap does nothing.
func heapChunk(n int) (chunk []byte, unmap func() error) {
	return make([]byte, n), func() error { return nil }
}

func (m *Memory) link(s *slab) {
	s.linked, s.prev, s.next = true, nil, m.open[s.class]
	if s.next != nil {
		s.next.prev = s
	}
	m.open[s.class] = s
}

func (m *Memory) unlink(s *slab) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		m.open[s.class] = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.linked, s.prev, s.next = false, nil, nil
}
