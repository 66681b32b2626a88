package overlay

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
)

// order has the first entry of each key of a table in the order of the keys, of its first n entries. It does not change. It is made when a
// cursor or a merge asks for it, never by who inserts: a load, and lookups, do without.
//
// It consists of a large sorted run and a small one. Keys that come between two cursors are put into the small one, by a copy of it; when it has
// more than a share of the large one, it is merged into that.
type order struct {
	n    uint32
	runs [2][]ordered // the large one, the small one; no key is in both
}

// ordered is an entry's number and the beginning of its key, as a number that orders like it.
type ordered struct {
	head uint64
	at   uint32
}

const (
	smallLeast = 64
	smallShare = 32 // of the large run: a copy of the small one is some microseconds
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
	m.order.CompareAndSwap(m.order.Load(), next) // another one is as good
	return next
}

func (m *Memtable) compare(a, b ordered) int {
	if a.head != b.head {
		return cmp.Compare(a.head, b.head)
	}
	return bytes.Compare(m.at(a.at).op.Key, m.at(b.at).op.Key)
}

// joined returns a new run with the keys of both; the second one is the shorter.
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

// seek returns the first place of a run at or after key.
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

// Sorted are the keys of a table that does not grow any more, in their order.
type Sorted struct {
	table *Memtable
	run   []ordered
}

// Sorted returns them. It orders the table, if no cursor has.
func (m *Memtable) Sorted() Sorted {
	o := m.ordered()
	return Sorted{m, m.joined(o.runs[0], o.runs[1])}
}

// Len returns how many keys there are.
func (s Sorted) Len() int { return len(s.run) }

// At returns the last op of the i-th key. A delete marks its leaf if it follows another op of the key: see Sorter.
func (s Sorted) At(i int) btree.Op {
	first := s.table.at(s.run[i].at)
	last := s.table.find(first.op.Key, first.tag, 0, math.MaxUint64)
	op := last.op
	op.Marks = op.Delete && last.prev != 0
	return op
}

// KeyAt returns the i-th key.
func (s Sorted) KeyAt(i int) []byte { return s.table.at(s.run[i].at).op.Key }
