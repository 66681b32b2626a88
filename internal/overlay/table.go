// Package overlay puts ops that are committed, and not in the tree yet, in the order of their keys: what Open has left to redo in a [Table],
// which answers lookups, and what is about to be merged by a [Sorter].
package overlay

import (
	"bytes"
	"cmp"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
)

// Table has the ops of many commits by key. It does not change: any goroutine may use it.
type Table struct {
	ops    []btree.Op // in the order of their commits
	order  []tableKey // of those that count, by key, each key once
	prefix []byte     // that all keys share
	lost   []btree.Ref
}

// tableKey names an op by its index. Almost always its head, the first bytes of the key behind the shared prefix, is all that sorting and
// searching look at.
type tableKey struct {
	head  uint64
	index uint32
}

// NewTable orders ops by key; of several of a key the last one counts. The runs of the others are in the log and never get into
// the tree; if they are of the first ops, of groups up to the base of a flush, either that flush listed them as dead, or the tree has
// them and the merge will drop them. So the first ones, so many, lose none.
func NewTable(ops []btree.Op, old int) *Table {
	r := &Table{ops: ops, prefix: sharedPrefix(ops)}
	order := make([]tableKey, len(ops))
	for i := range ops {
		order[i] = tableKey{writeset.HeadOf(ops[i].Key, len(r.prefix)), uint32(i)}
	}
	slices.SortFunc(order, func(a, b tableKey) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		return cmp.Or(bytes.Compare(ops[a.index].Key, ops[b.index].Key), cmp.Compare(a.index, b.index))
	})
	r.order = order[:0]
	for i, k := range order {
		op := &ops[k.index]
		if i+1 == len(order) || k.head != order[i+1].head || !bytes.Equal(op.Key, ops[order[i+1].index].Key) {
			r.order = append(r.order, k)
		} else if op.Ref != nil && int(k.index) >= old {
			r.lost = append(r.lost, *op.Ref)
		}
	}
	return r
}

// sharedPrefix returns the bytes that all keys begin with.
func sharedPrefix(ops []btree.Op) (prefix []byte) {
	for i := range ops {
		if i == 0 {
			prefix = ops[0].Key
		}
		prefix = prefix[:writeset.CommonPrefix(prefix, ops[i].Key)]
	}
	return prefix
}

// Find returns what the table says of a key, nil if nothing.
func (r *Table) Find(key []byte) *btree.Op {
	if r == nil || !bytes.HasPrefix(key, r.prefix) {
		return nil
	}
	head := writeset.HeadOf(key, len(r.prefix))
	low, high := 0, len(r.order)
	for low < high { // slices.BinarySearchFunc would have the caller's key allocated
		mid := int(uint(low+high) >> 1)
		k := r.order[mid]
		o := cmp.Compare(k.head, head)
		if o == 0 {
			if o = bytes.Compare(r.ops[k.index].Key, key); o == 0 {
				return &r.ops[k.index]
			}
		}
		if o < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return nil
}

// All returns how many ops the table was made of.
func (r *Table) All() int { return len(r.ops) }

// Len returns how many of them count.
func (r *Table) Len() int { return len(r.order) }

// At returns the i-th of those, in the order of their keys.
func (r *Table) At(i int) *btree.Op { return &r.ops[r.order[i].index] }

// Bytes returns the bytes of keys and values of all ops.
func (r *Table) Bytes() (n int64) {
	for i := range r.ops {
		n += int64(len(r.ops[i].Key) + len(r.ops[i].Value))
	}
	return n
}

// Lost returns where the values are of those that do not count.
func (r *Table) Lost() []btree.Ref { return r.lost }
