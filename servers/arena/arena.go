package arena

import (
	"encoding/binary"
	"errors"
	"fmt"

	"flashdbm/servers/fabric"
)

// Sizes in bytes.
const (
	DefaultExtent = 256 << 20
	PrefixSize    = 16
	// unit is the unit of places in bytes; blocks begin at its multiples.
	unit = 16
	// pages is the number of pages of an extent, unless they would be smaller than minPage. More: large blocks waste
	// less, and the search for a run of free pages takes longer (4096 take about 2 µs).
	pages    = 4096
	minPage  = 4 << 10
	unitBits = 24 // low bits of a place: the unit in the extent
)

// The errors of Alloc, for errors.Is.
var (
	ErrFull     = errors.New("arena: no memory is left")
	ErrTooLarge = errors.New("arena: larger than an extent allows")
)

// A Place names a block: the number of its extent, and its first unit there. It has 48 bits.
type Place uint64

// Extent returns the number of the extent.
func (p Place) Extent() uint32 { return uint32(p >> unitBits) }

// Offset returns the offset of the item in the extent's region, in bytes.
func (p Place) Offset() uint64 { return uint64(p&(1<<unitBits-1))*unit + PrefixSize }

// Options configure an arena.
type Options struct {
	Extent int   // bytes of an extent: a power of two from 64 KiB to 256 MiB; 0: DefaultExtent
	Limit  int64 // bytes of all extents together, at least one extent; 0: no limit
}

// An Arena allocates blocks.
type Arena struct {
	alloc     func(n int, a fabric.Access) (fabric.Region, error)
	extent    int
	page      int
	limit     int
	extents   []*extent
	classes   []int // block sizes, prefix included
	partial   [][]*span
	dead      wheel
	liveBytes int64
	deadBytes int64
}

type extent struct {
	region fabric.Region
	bytes  []byte
	spans  []*span // by page; nil for a free page
	free   int     // pages
}

type span struct {
	extent, page, pages int
	class               int // -1: one block of whole pages
	size                int
	used                []uint64 // a bit for each block that is live or dead
	dead                []uint64 // a bit for each dead block
	count, blocks       int      // the number of blocks in use, and of all blocks
	at                  int      // index in the partial list of its class, -1 if it is full
}

// New returns an arena that gets its extents from alloc, usually the method of a fabric.Domain.
func New(alloc func(n int, a fabric.Access) (fabric.Region, error), o Options) (*Arena, error) {
	if o.Extent == 0 {
		o.Extent = DefaultExtent
	}
	if o.Extent < 64<<10 || o.Extent > 256<<20 || o.Extent&(o.Extent-1) != 0 {
		return nil, fmt.Errorf("arena: extents of %d bytes; a power of two from 64 KiB to 256 MiB is needed", o.Extent)
	}
	a := &Arena{alloc: alloc, extent: o.Extent, page: max(minPage, o.Extent/pages)}
	a.limit = int(max(1, o.Limit/int64(o.Extent)))
	if o.Limit == 0 {
		a.limit = 1 << (48 - unitBits)
	}
	for size := 64; size <= a.page/2; { // four classes for each power of two
		a.classes = append(a.classes, size)
		step := 1 << (log2(size) - 2)
		size += max(step, unit)
	}
	a.partial = make([][]*span, len(a.classes))
	a.dead.init()
	return a, nil
}

func log2(n int) int {
	l := 0
	for n > 1 {
		n, l = n>>1, l+1
	}
	return l
}

// MaxItem returns the size of the largest possible item.
func (a *Arena) MaxItem() int { return a.extent - PrefixSize }

// Live returns the bytes of live blocks.
func (a *Arena) Live() int64 { return a.liveBytes }

// Dead returns the bytes of dead blocks.
func (a *Arena) Dead() int64 { return a.deadBytes }

// Capacity returns the bytes of all extents that the limit allows, or, without a limit, of the existing extents.
func (a *Arena) Capacity() int64 {
	n := a.limit
	if n == 1<<(48-unitBits) {
		n = max(1, len(a.extents))
	}
	return int64(n) * int64(a.extent)
}

// Pressed reports that more than a quarter of the arena is dead, so that leases should be short.
func (a *Arena) Pressed() bool { return a.deadBytes*4 > a.Capacity() }

// Key returns the key by which peers reach an extent; ok is false if there is no such extent.
func (a *Arena) Key(extent uint32) (key fabric.Key, ok bool) {
	if int64(extent) >= int64(len(a.extents)) {
		return fabric.Key{}, false
	}
	return a.extents[extent].region.Key(), true
}

// Alloc returns a live block for an item of n bytes. Its prefix is zero; after the prefix it has its old content.
func (a *Arena) Alloc(n int) (Place, error) {
	n += PrefixSize
	if n > a.extent {
		return 0, fmt.Errorf("%w: %d bytes", ErrTooLarge, n-PrefixSize)
	}
	s, err := a.spanFor(n)
	if err != nil {
		return 0, err
	}
	block := s.takeBlock()
	if s.count == s.blocks && s.at >= 0 {
		a.unlist(s)
	}
	a.liveBytes += int64(s.size)
	offset := s.page*a.page + block*s.size
	clear(a.extents[s.extent].bytes[offset : offset+PrefixSize])
	return Place(s.extent)<<unitBits | Place(offset/unit), nil
}

// AllocBeyond is Alloc, but may add an extent above the limit. The arena keeps such an extent.
func (a *Arena) AllocBeyond(n int) (Place, error) {
	limit := a.limit
	a.limit = 1 << (48 - unitBits)
	defer func() { a.limit = limit }()
	return a.Alloc(n)
}

// spanFor returns a span with a free block of at least n bytes.
func (a *Arena) spanFor(n int) (*span, error) {
	class, size := -1, (n+a.page-1)/a.page*a.page
	if len(a.classes) > 0 && n <= a.classes[len(a.classes)-1] {
		class = a.class(n)
		size = a.classes[class]
		if list := a.partial[class]; len(list) > 0 {
			return list[len(list)-1], nil
		}
	}
	want := (size + a.page - 1) / a.page
	if class >= 0 {
		want = (8*size + a.page - 1) / a.page
	}
	s, err := a.newSpan(class, size, want)
	if err != nil && class >= 0 && want > 1 {
		s, err = a.newSpan(class, size, (size+a.page-1)/a.page)
	}
	return s, err
}

// class returns the smallest class whose blocks have n bytes.
func (a *Arena) class(n int) int {
	lo, hi := 0, len(a.classes)-1
	for lo < hi {
		if m := (lo + hi) / 2; a.classes[m] < n {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

func (a *Arena) newSpan(class, size, n int) (*span, error) {
	for i, e := range a.extents {
		if at := e.run(n); at >= 0 {
			return a.carve(i, at, class, size, n), nil
		}
	}
	if len(a.extents) >= a.limit {
		return nil, ErrFull
	}
	r, err := a.alloc(a.extent, fabric.RemoteRead)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFull, err)
	}
	count := a.extent / a.page
	a.extents = append(a.extents, &extent{region: r, bytes: r.Bytes(), spans: make([]*span, count), free: count})
	return a.carve(len(a.extents)-1, 0, class, size, n), nil
}

// run returns the first of n consecutive free pages, -1 if there are none.
func (e *extent) run(n int) int {
	if e.free < n {
		return -1
	}
	for i := 0; i+n <= len(e.spans); {
		if s := e.spans[i]; s != nil {
			i = s.page + s.pages
			continue
		}
		k := 1
		for k < n && e.spans[i+k] == nil {
			k++
		}
		if k == n {
			return i
		}
		i += k
	}
	return -1
}

func (a *Arena) carve(number, at, class, size, n int) *span {
	blocks := 1
	if class >= 0 {
		blocks = n * a.page / size
	}
	s := &span{extent: number, page: at, pages: n, class: class, size: size, blocks: blocks, at: -1}
	s.used, s.dead = make([]uint64, (blocks+63)/64), make([]uint64, (blocks+63)/64)
	e := a.extents[number]
	for i := range n {
		e.spans[at+i] = s
	}
	e.free -= n
	if class >= 0 {
		a.list(s)
	}
	return s
}

func (a *Arena) list(s *span) {
	s.at = len(a.partial[s.class])
	a.partial[s.class] = append(a.partial[s.class], s)
}

func (a *Arena) unlist(s *span) {
	list := a.partial[s.class]
	last := list[len(list)-1]
	list[s.at], last.at = last, s.at
	a.partial[s.class] = list[:len(list)-1]
	s.at = -1
}

// block returns the span and the number of the block at a place, which has to be live or dead; otherwise it panics.
func (a *Arena) block(p Place) (*span, int) {
	s := a.extents[p.Extent()].spans[(p.Offset()-PrefixSize)/uint64(a.page)]
	if s == nil {
		panic(fmt.Sprintf("arena: place %#x is in no span", uint64(p)))
	}
	offset := uint32(int(p.Offset()) - PrefixSize - s.page*a.page) // an extent has at most 256 MiB
	block := int(offset / uint32(s.size))                          // a division of 32 bits takes a third of the time
	if block*s.size != int(offset) || block >= s.blocks || s.used[block/64]>>(block%64)&1 == 0 {
		panic(fmt.Sprintf("arena: place %#x is no block in use", uint64(p)))
	}
	return s, block
}

// Bytes returns the block's memory after the prefix, up to the block's end.
func (a *Arena) Bytes(p Place) []byte {
	s, block := a.block(p)
	start := s.page*a.page + block*s.size
	return a.extents[s.extent].bytes[start+PrefixSize : start+s.size : start+s.size]
}

// Touch loads the beginning of a block into the processor's cache. Ignore the result.
func (a *Arena) Touch(p Place) byte {
	s, block := a.block(p)
	return a.extents[s.extent].bytes[s.page*a.page+block*s.size]
}

func (a *Arena) prefix(p Place) []byte {
	end := p.Offset()
	return a.extents[p.Extent()].bytes[end-PrefixSize : end]
}

// Lease returns the end of the block's lease, in nanoseconds of the shard's clock.
func (a *Arena) Lease(p Place) int64 { return int64(binary.LittleEndian.Uint64(a.prefix(p))) }

// Extend extends the lease of a live block to end, if that is later.
func (a *Arena) Extend(p Place, end int64) {
	if s, block := a.block(p); s.dead[block/64]>>(block%64)&1 != 0 {
		panic("arena: a lease of a dead block is extended")
	}
	if end > a.Lease(p) {
		binary.LittleEndian.PutUint64(a.prefix(p), uint64(end))
	}
}

// Hit counts a use of the item and returns the number of uses so far.
func (a *Arena) Hit(p Place) uint32 {
	b := a.prefix(p)[8:]
	n := binary.LittleEndian.Uint32(b)
	if n < 1<<32-1 {
		n++
	}
	binary.LittleEndian.PutUint32(b, n)
	return n
}

// Mark returns the shard's own word about the block.
func (a *Arena) Mark(p Place) uint32 { return binary.LittleEndian.Uint32(a.prefix(p)[12:]) }

// SetMark sets the shard's own word about the block.
func (a *Arena) SetMark(p Place, v uint32) { binary.LittleEndian.PutUint32(a.prefix(p)[12:], v) }

// Retire makes the block dead until its lease ends, or free at once if the lease has ended by now.
func (a *Arena) Retire(p Place, now int64) {
	s, block := a.block(p)
	if s.dead[block/64]>>(block%64)&1 != 0 {
		panic(fmt.Sprintf("arena: place %#x is retired twice", uint64(p)))
	}
	a.liveBytes -= int64(s.size)
	end := a.Lease(p)
	if end <= now {
		a.free(s, block)
		return
	}
	s.dead[block/64] |= 1 << (block % 64)
	a.deadBytes += int64(s.size)
	a.dead.add(p, end, now)
}

// Reap frees up to limit dead blocks whose lease has ended by now, and returns how many.
func (a *Arena) Reap(now int64, limit int) int {
	n := 0
	for n < limit {
		p, ok := a.dead.next(now, a.Lease)
		if !ok {
			break
		}
		s, block := a.block(p)
		s.dead[block/64] &^= 1 << (block % 64)
		a.deadBytes -= int64(s.size)
		a.free(s, block)
		n++
	}
	return n
}

func (a *Arena) free(s *span, block int) {
	s.used[block/64] &^= 1 << (block % 64)
	s.count--
	if s.class >= 0 && s.at < 0 {
		a.list(s)
	}
	if s.count > 0 || s.class >= 0 && len(a.partial[s.class]) == 1 && !a.tight() {
		return
	}
	if s.class >= 0 {
		a.unlist(s)
	}
	e := a.extents[s.extent]
	for i := range s.pages {
		e.spans[s.page+i] = nil
	}
	e.free += s.pages
}

// tight reports that the last empty span of a class should return its pages, too, because other classes may need
// them.
func (a *Arena) tight() bool { return len(a.extents) >= a.limit }

// takeBlock marks a free block as used and returns its number.
func (s *span) takeBlock() int {
	for i, w := range s.used {
		if w == ^uint64(0) {
			continue
		}
		bit := 0
		for w>>bit&1 != 0 {
			bit++
		}
		if block := i*64 + bit; block < s.blocks {
			s.used[i] |= 1 << bit
			s.count++
			return block
		}
	}
	panic("arena: a span in the list of those with free blocks is full")
}

// InUse reports whether a byte of an extent belongs to a live or dead block. It is for checks.
func (a *Arena) InUse(extent uint32, offset uint64) bool {
	if int(extent) >= len(a.extents) || offset >= uint64(a.extent) {
		return false
	}
	s := a.extents[extent].spans[offset/uint64(a.page)]
	if s == nil {
		return false
	}
	block := (int(offset) - s.page*a.page) / s.size
	return block < s.blocks && s.used[block/64]>>(block%64)&1 != 0
}

// Close frees all extents.
func (a *Arena) Close() error {
	var all error
	for _, e := range a.extents {
		all = errors.Join(all, e.region.Close())
	}
	a.extents = nil
	return all
}

// Extent returns an extent's memory. It is for checks.
func (a *Arena) Extent(number uint32) []byte { return a.extents[number].bytes }
