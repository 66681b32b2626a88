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

// Sorter puts ops of a memtable in the order of keys, to be merged into the tree. It keeps its memory for the next time.
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
	read  []btree.Op
	ops   []btree.Op
}

// headed is an op's place and the beginning of its key, as a number that orders like it.
type headed struct {
	head uint64
	at   uint32
}

const stretchOps = 4 // in a stretch, on average

// Sorted calls use with the ops of a table from number from up to number to in the order of their keys; of several ops of a key it keeps the
// last one and drops the values of the others: they are in the log and never get into the tree. The slice is good until use returns.
func (s *Sorter) Sorted(m *Memtable, from, to int, drop func(btree.Ref), use func(sorted []btree.Op) error) error {
	s.read = slices.Grow(s.read[:0], to-from)
	for i := from; i < to; i++ {
		s.read = append(s.read, *m.Op(i))
	}
	err := use(s.Sort(s.read, drop))
	s.forget()
	return err
}

// Sort returns ops as Sorted does. The result is good until the next call.
func (s *Sorter) Sort(ops []btree.Op, drop func(btree.Ref)) []btree.Op {
	if ascend(ops) {
		return ops
	}
	s.spread(ops)
	compare := func(a, b headed) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		if o := bytes.Compare(ops[a.at].Key, ops[b.at].Key); o != 0 {
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
	s.ops = slices.Grow(s.ops[:0], len(ops))
	again := false
	for i, h := range s.order {
		op := &ops[h.at]
		if i+1 < len(s.order) && s.order[i+1].head == h.head && bytes.Equal(op.Key, ops[s.order[i+1].at].Key) {
			if op.Ref != nil {
				drop(*op.Ref)
			}
			again = true
			continue
		}
		s.ops = append(s.ops, *op)
		if again {
			s.ops[len(s.ops)-1].Marks, again = op.Delete, false
		}
	}
	return s.ops
}

// forget lets go of the ops of the last sort, for which the result is of no use any more. They are cleared once: after those of a bulk
// load that takes longer than most merges.
func (s *Sorter) forget() {
	clear(s.read)
	clear(s.ops)
	s.read, s.ops = s.read[:0], s.ops[:0]
}

// spread fills order with the heads of ops, stretch by stretch.
func (s *Sorter) spread(ops []btree.Op) {
	s.heads = slices.Grow(s.heads[:0], len(ops))
	least, most := uint64(math.MaxUint64), uint64(0)
	for i := range ops {
		h := writeset.HeadOf(ops[i].Key, 0)
		least, most = min(least, h), max(most, h)
		s.heads = append(s.heads, headed{h, uint32(i)})
	}
	shift := max(bits.Len64(most-least)-bits.Len(uint(len(ops)/stretchOps)), 0)
	s.ends = append(s.ends[:0], make([]int32, (most-least)>>shift+1)...)
	for _, h := range s.heads {
		s.ends[(h.head-least)>>shift]++
	}
	next := int32(0)
	for i, n := range s.ends {
		s.ends[i] = next
		next += n
	}
	s.order = slices.Grow(s.order[:0], len(ops))[:len(ops)]
	for _, h := range s.heads {
		next := &s.ends[(h.head-least)>>shift]
		s.order[*next] = h
		*next++
	}
}

// ascend reports whether the keys ascend, each once.
func ascend(ops []btree.Op) bool {
	for i := 1; i < len(ops); i++ {
		if bytes.Compare(ops[i-1].Key, ops[i].Key) >= 0 {
			return false
		}
	}
	return true
}
