package table

import "math/bits"

const (
	slots       = 7
	words       = 8 // in a bucket
	segment     = 1024
	placeBits   = 48
	placeMask   = 1<<placeBits - 1
	linkMask    = 1<<56 - 1
	filterShift = 56
	filterFull  = 1<<slots - 1
	// fullPercent is how full the slots of the first buckets may be on average. Larger: longer chains; at 75 one
	// bucket in nine has an overflow bucket. Smaller: more memory.
	fullPercent = 75
)

// MaxPlace is the largest place.
const MaxPlace = placeMask

// Items gives the table access to the items at places.
type Items interface {
	Hash(place uint64) uint64          // the hash of the item's key
	Equal(place uint64, k []byte) bool // whether the item has the key k
}

// Table maps hashes to places.
type Table struct {
	items   Items
	first   [][]uint64 // the first buckets of all chains, in segments
	n       uint64     // the number of first buckets in use
	over    []uint64   // overflow buckets
	free    uint64     // the first bucket of the free list, which is linked as a chain is
	entries int
}

// New returns an empty table.
func New(items Items) *Table {
	t := &Table{items: items}
	t.addBucket()
	return t
}

// Len returns the number of entries.
func (t *Table) Len() int { return t.entries }

// Bytes returns the memory of the table in bytes.
func (t *Table) Bytes() int { return (len(t.first)*segment*words + cap(t.over)) * 8 }

// Buckets returns the number of chains, for Chain.
func (t *Table) Buckets() uint64 { return t.n }

// index returns the number of the bucket to which the hash belongs.
func (t *Table) index(h uint64) uint64 {
	mirrored := bits.Reverse64(h)
	level := uint(bits.Len64(t.n)) - 1
	if i := mirrored & (2<<level - 1); i < t.n {
		return i
	}
	return mirrored & (1<<level - 1)
}

func (t *Table) addBucket() {
	if t.n%segment == 0 {
		t.first = append(t.first, make([]uint64, segment*words))
	}
	t.n++
}

func (t *Table) bucket(i uint64) []uint64 {
	b := t.first[i/segment][i%segment*words:]
	return b[:words:words]
}

func (t *Table) overflow(link uint64) []uint64 {
	b := t.over[(link-1)*words:]
	return b[:words:words]
}

// next returns the next bucket of the chain, nil if there is none.
func (t *Table) next(b []uint64) []uint64 {
	if link := b[0] & linkMask; link != 0 {
		return t.overflow(link)
	}
	return nil
}

func filter(b []uint64) uint64        { return b[0] >> filterShift }
func entry(h, place uint64) uint64    { return h<<placeBits | place }
func taken(b []uint64, slot int) bool { return filter(b)>>slot&1 != 0 }

// Find returns the place of the item with the key.
func (t *Table) Find(h uint64, key []byte) (place uint64, ok bool) {
	for b := t.bucket(t.index(h)); b != nil; b = t.next(b) {
		for f := filter(b); f != 0; f &= f - 1 {
			e := b[1+bits.TrailingZeros64(f)]
			if e>>placeBits == h&0xffff && t.items.Equal(e&placeMask, key) {
				return e & placeMask, true
			}
		}
	}
	return 0, false
}

// Touch loads the first bucket of the hash's chain into the processor's cache. Ignore the result.
func (t *Table) Touch(h uint64) uint64 { return t.bucket(t.index(h))[0] }

// Likely returns the place that Find probably returns, without reading the item.
func (t *Table) Likely(h uint64) (place uint64, ok bool) {
	b := t.bucket(t.index(h))
	for f := filter(b); f != 0; f &= f - 1 {
		if e := b[1+bits.TrailingZeros64(f)]; e>>placeBits == h&0xffff {
			return e & placeMask, true
		}
	}
	return 0, false
}

// Insert adds an entry for a key that has none.
func (t *Table) Insert(h, place uint64) {
	if place > MaxPlace {
		panic("table: place of more than 48 bits")
	}
	t.insert(t.index(h), entry(h, place))
	t.entries++
	if uint64(t.entries)*100 > t.n*slots*fullPercent {
		t.split()
	}
}

// insert adds the entry to the chain of bucket i.
func (t *Table) insert(i, e uint64) {
	b := t.last(i)
	if filter(b) == filterFull {
		link := t.take() // may move all overflow buckets
		b = t.last(i)
		b[0] |= link
		b = t.overflow(link)
	}
	slot := bits.TrailingZeros64(^filter(b))
	b[1+slot] = e
	b[0] |= 1 << (filterShift + slot)
}

// last returns the last bucket of a chain, the only one with empty slots.
func (t *Table) last(i uint64) []uint64 {
	b := t.bucket(i)
	for n := t.next(b); n != nil; n = t.next(b) {
		b = n
	}
	return b
}

// take returns an empty overflow bucket.
func (t *Table) take() (link uint64) {
	if t.free == 0 {
		t.over = append(t.over, make([]uint64, words)...)
		return uint64(len(t.over) / words)
	}
	link = t.free
	b := t.overflow(link)
	t.free = b[0] & linkMask
	clear(b)
	return link
}

// Replace changes the place of an entry from old to new.
func (t *Table) Replace(h, old, new uint64) {
	if new > MaxPlace {
		panic("table: place of more than 48 bits")
	}
	b, slot := t.find(h, old)
	b[1+slot] = entry(h, new)
}

// find returns the position of an entry, which must exist.
func (t *Table) find(h, place uint64) (b []uint64, slot int) {
	for b := t.bucket(t.index(h)); b != nil; b = t.next(b) {
		for slot := range slots {
			if taken(b, slot) && b[1+slot] == entry(h, place) {
				return b, slot
			}
		}
	}
	panic("table: no such entry")
}

// Remove removes the entry with the place. The last entry of the chain fills the gap; an overflow bucket that becomes
// empty goes to the free list.
func (t *Table) Remove(h, place uint64) {
	gap, slot := t.find(h, place)
	var before []uint64
	end := t.bucket(t.index(h))
	for n := t.next(end); n != nil; n = t.next(end) {
		before, end = end, n
	}
	at := bits.Len64(filter(end)) - 1
	gap[1+slot] = end[1+at]
	end[0] &^= 1 << (filterShift + at)
	t.entries--
	if before != nil && filter(end) == 0 {
		link := before[0] & linkMask
		before[0] &^= linkMask
		end[0] = t.free
		t.free = link
	}
}

// split adds a bucket, and moves the entries that belong there from the next bucket to split.
func (t *Table) split() {
	from := t.n - 1<<(bits.Len64(t.n)-1)
	entries := make([]uint64, 0, 4*slots)
	b := t.bucket(from)
	for link := uint64(0); ; {
		for slot := range slots {
			if taken(b, slot) {
				entries = append(entries, b[1+slot])
			}
		}
		next := b[0] & linkMask
		clear(b)
		if link != 0 {
			b[0], t.free = t.free, link
		}
		if next == 0 {
			break
		}
		link, b = next, t.overflow(next)
	}
	t.addBucket()
	for _, e := range entries {
		t.insert(t.index(t.items.Hash(e&placeMask)), e)
	}
}

// Chain appends the places of all entries of chain i, i < Buckets, to dst.
func (t *Table) Chain(i uint64, dst []uint64) []uint64 {
	for b := t.bucket(i); b != nil; b = t.next(b) {
		for slot := range slots {
			if taken(b, slot) {
				dst = append(dst, b[1+slot]&placeMask)
			}
		}
	}
	return dst
}

// Scan appends the places of all entries of the hash's chain to dst, and returns the last hash that the chain covers:
// the scan continues at last + 1. Entries with hashes below h may be among them.
func (t *Table) Scan(h uint64, dst []uint64) (places []uint64, last uint64) {
	i := t.index(h)
	level := uint(bits.Len64(t.n)) - 1
	if i >= 1<<level || i < t.n-1<<level {
		level++ // the bucket has been split in this round, or came from such a split
	}
	return t.Chain(i, dst), bits.Reverse64(i) | ^uint64(0)>>level
}
