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

// Sorter sorts ops of a memtable by key, to be merged into the tree. It keeps its memory for the next sort: 32
// bytes for each op, and the memory of chunkOps ops.
//
// It is a bucket sort: ops are first distributed into consecutive stretches (buckets) by the beginnings of their keys;
// then each stretch is sorted by comparisons. If keys are random, a stretch has a few ops. If the first eight bytes of
// all keys are the same, there is one stretch.
//
// A delete that follows another op of its key gets Marks (see btree.Op). The record existed between the two ops, so a
// backup may have it, although the tree never does. Marks make the merge change the leaf; without that, no increment
// would include the deletion.
type Sorter struct {
	heads []headed // the ops in their order
	order []headed // the ops in the order of keys
	ends  []int32  // ends of the stretches of order
	chunk []btree.Op
}

// headed is the number of an op and the beginning of its key, as a number that sorts like it.
type headed struct {
	head uint64
	at   uint32
}

const (
	stretchOps = 4       // ops of a stretch, on average
	chunkOps   = 8 << 10 // ops passed to use at once
)

// Sorted calls use with the ops number from to to-1 of a table, sorted by key, a chunk at a time. Of several ops of
// a key only the last one is passed on; drop is called for the values of the others, which are in the log and never
// get into the tree. A slice is valid until use returns.
func (s *Sorter) Sorted(m *Memtable, from, to int, drop func(btree.Ref), use func(sorted []btree.Op) error) error {
	return s.sorted(to-from, func(i int) *btree.Op { return m.Op(from + i) }, drop, use)
}

// Sort sorts ops as Sorted does, and returns them all at once.
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
	at := func(i int) int { // number of the i-th op in the order of keys
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

// sortStretches sorts each stretch of order by itself.
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

// forget clears the keys and values of the last sort, which are in the first n places of the chunk. To clear the
// whole chunk, as a bulk load may have filled it, takes longer than most merges.
func (s *Sorter) forget(n int) {
	clear(s.chunk[:n])
	s.chunk = s.chunk[:0]
}

// spread distributes the n ops to the stretches of order, without sorting these.
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
