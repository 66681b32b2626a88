package overlay

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
)

// order lists the keys of the first n entries of a table in sorted order, each by the number of its first entry. It is
// immutable. It is made when a cursor or a merge asks for it, and not by the leader: loads and lookups do not need it.
//
// An order consists of two sorted runs, a large one and a small one. The next order, with more keys, shares the large
// run and has the new keys in a copy of the small one. When the small run exceeds a share of the large one, both are
// merged into a new large run.
type order struct {
	n    uint32
	runs [2][]ordered // the large one, the small one; no key is in both
}

// ordered is the number of an entry and the beginning of its key, as a number that sorts like it.
type ordered struct {
	head uint64
	at   uint32
}

const (
	smallLeast = 64 // keys that the small run may have in any case
	smallShare = 32 // and in addition a 32nd of the keys of the large run. Larger runs take longer to copy for each new order, smaller ones are merged more often
)

// ordered returns an order of all entries that are shown.
func (m *Memtable) ordered() *order {
	n := m.shown.Load()
	o := m.order.Load()
	if o != nil && o.n >= n {
		return o
	}
	if o == nil {
		o = &order{}
	}
	var fresh []ordered
	for i := o.n; i < n; i++ {
		if e := m.at(i); e.prev == 0 {
			fresh = append(fresh, ordered{writeset.HeadOf(e.op.Key, 0), i})
		}
	}
	next := &order{n: n, runs: o.runs}
	if len(fresh) > 0 {
		if !slices.IsSortedFunc(fresh, m.compare) {
			slices.SortFunc(fresh, m.compare)
		}
		next.runs[1] = m.joined(o.runs[1], fresh)
		if len(next.runs[1]) > smallLeast+len(o.runs[0])/smallShare {
			next.runs = [2][]ordered{m.joined(o.runs[0], next.runs[1]), nil}
		}
	}
	m.order.CompareAndSwap(m.order.Load(), next) // if another reader was faster, its order is as good
	return next
}

func (m *Memtable) compare(a, b ordered) int {
	if a.head != b.head {
		return cmp.Compare(a.head, b.head)
	}
	return bytes.Compare(m.at(a.at).op.Key, m.at(b.at).op.Key)
}

// joined returns a new sorted run with the keys of a and b; b should be the shorter.
func (m *Memtable) joined(a, b []ordered) []ordered {
	if len(a) == 0 {
		return b
	}
	all := make([]ordered, 0, len(a)+len(b))
	for _, x := range b {
		n, _ := slices.BinarySearchFunc(a, x, m.compare)
		all = append(append(all, a[:n]...), x)
		a = a[n:]
	}
	return append(all, a...)
}

// seek returns the first index of a run with a key >= key.
func (m *Memtable) seek(run []ordered, key []byte) int {
	head := writeset.HeadOf(key, 0)
	low, high := 0, len(run)
	for low < high {
		mid := int(uint(low+high) >> 1)
		o := cmp.Compare(run[mid].head, head)
		if o == 0 {
			o = bytes.Compare(m.at(run[mid].at).op.Key, key)
		}
		if o < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// Sorted is the sorted list of the keys of a table that no longer grows.
type Sorted struct {
	table *Memtable
	run   []ordered
}

// Sorted returns the sorted keys of the table.
func (m *Memtable) Sorted() Sorted {
	o := m.ordered()
	return Sorted{m, m.joined(o.runs[0], o.runs[1])}
}

// Len returns the number of keys.
func (s Sorted) Len() int { return len(s.run) }

// At returns the last op of key i. A delete that follows another op of the key has Marks set: see Sorter.
func (s Sorted) At(i int) btree.Op {
	first := s.table.at(s.run[i].at)
	last := s.table.find(first.op.Key, first.tag, 0, math.MaxUint64)
	op := last.op
	op.Marks = op.Delete && last.prev != 0
	return op
}

// KeyAt returns key i.
func (s Sorted) KeyAt(i int) []byte { return s.table.at(s.run[i].at).op.Key }
