package overlay

import (
	"bytes"
	"cmp"
	"math"
	"math/bits"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
)

// Sorter puts ops of a memtable in the order of keys, to be merged into the tree. It keeps its memory for the next time: 32 bytes for each op, and that
// of chunkOps ops.
//
// The ops are distributed by the beginnings of their keys, in stretches that come one after the other, and each stretch is sorted: where
// keys are random a few each. Where they begin alike it is one stretch that is sorted as a whole.
//
// A delete that follows another op of its key marks its leaf (see btree.Op): between the two the record was there, and a backup may have it, though
// the tree never does. Were the leaf not to change, no increment would tell that the record is gone.
type Sorter struct {
	heads []headed // of the ops, in their order
	order []headed // in that of their keys
	ends  []int32  // of stretches of order
	chunk []btree.Op
}

// headed is an op's place and the beginning of its key, as a number that orders like it.
type headed struct {
	head uint64
	at   uint32
}

const (
	stretchOps = 4       // in a stretch, on average
	chunkOps   = 8 << 10 // handed out at once
)

// Sorted calls use with the ops of a table from number from up to number to in the order of their keys, a chunk at a time; of several ops of a key it
// keeps the last one and drops the values of the others: they are in the log and never get into the tree. A slice is good until use returns.
func (s *Sorter) Sorted(m *Memtable, from, to int, drop func(btree.Ref), use func(sorted []btree.Op) error) error {
	return s.sorted(to-from, func(i int) *btree.Op { return m.Op(from + i) }, drop, use)
}

// Sort returns ops as Sorted does, all at once.
func (s *Sorter) Sort(ops []btree.Op, drop func(btree.Ref)) (sorted []btree.Op) {
	_ = s.sorted(len(ops), func(i int) *btree.Op { return &ops[i] }, drop, func(chunk []btree.Op) error {
		sorted = append(sorted, chunk...)
		return nil
	})
	return sorted
}

func (s *Sorter) sorted(n int, op func(i int) *btree.Op, drop func(btree.Ref), use func(sorted []btree.Op) error) error {
	ascending := true
	for i := 1; i < n && ascending; i++ {
		ascending = bytes.Compare(op(i-1).Key, op(i).Key) < 0
	}
	if !ascending {
		s.spread(n, op)
		s.sortStretches(op)
	}
	at := func(i int) int { // of the i-th op in the order of keys
		if ascending {
			return i
		}
		return int(s.order[i].at)
	}
	defer s.forget(min(n, chunkOps))
	s.chunk = slices.Grow(s.chunk[:0], min(n, chunkOps))
	again := false
	for i := range n {
		o := op(at(i))
		if !ascending && i+1 < n && s.order[i+1].head == s.order[i].head && bytes.Equal(o.Key, op(at(i+1)).Key) {
			if o.Ref != nil {
				drop(*o.Ref)
			}
			again = true
			continue
		}
		s.chunk = append(s.chunk, *o)
		if again {
			s.chunk[len(s.chunk)-1].Marks, again = o.Delete, false
		}
		if len(s.chunk) == chunkOps {
			if err := use(s.chunk); err != nil {
				return err
			}
			s.chunk = s.chunk[:0]
		}
	}
	if len(s.chunk) == 0 {
		return nil
	}
	return use(s.chunk)
}

// sortStretches sorts each stretch of order.
func (s *Sorter) sortStretches(op func(i int) *btree.Op) {
	compare := func(a, b headed) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		if o := bytes.Compare(op(int(a.at)).Key, op(int(b.at)).Key); o != 0 {
			return o
		}
		return cmp.Compare(a.at, b.at)
	}
	from := int32(0)
	for _, end := range s.ends {
		if end-from > 1 {
			slices.SortFunc(s.order[from:end], compare)
		}
		from = end
	}
}

// forget lets go of the keys and values of the last sort, of whose ops no more than the first n places of the chunk have had any: to clear all that a
// bulk load has left takes longer than most merges.
func (s *Sorter) forget(n int) {
	clear(s.chunk[:n])
	s.chunk = s.chunk[:0]
}

// spread fills order with the heads of n ops, stretch by stretch.
func (s *Sorter) spread(n int, op func(i int) *btree.Op) {
	s.heads = slices.Grow(s.heads[:0], n)
	least, most := uint64(math.MaxUint64), uint64(0)
	for i := range n {
		h := writeset.HeadOf(op(i).Key, 0)
		least, most = min(least, h), max(most, h)
		s.heads = append(s.heads, headed{h, uint32(i)})
	}
	shift := max(bits.Len64(most-least)-bits.Len(uint(n/stretchOps)), 0)
	s.ends = append(s.ends[:0], make([]int32, (most-least)>>shift+1)...)
	for _, h := range s.heads {
		s.ends[(h.head-least)>>shift]++
	}
	next := int32(0)
	for i, n := range s.ends {
		s.ends[i] = next
		next += n
	}
	s.order = slices.Grow(s.order[:0], n)[:n]
	for _, h := range s.heads {
		next := &s.ends[(h.head-least)>>shift]
		s.order[*next] = h
		*next++
	}
}
