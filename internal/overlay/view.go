package overlay

import (
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
)

// View is a state of the database for readers: one version of the tree, which has all commits up to Base, and
// memtables with the commits above Base. It is immutable, except that its newest table grows. A goroutine that is
// registered at Tree may use it.
//
// A reader at a Seq s >= Base sees the entries of a table in (Base, s], and of each key the newest one. Entries up
// to Base may still be in a table; the tree has them, or something newer of their keys.
type View struct {
	Tree    uint64      // number of the tree's version: the Seq at which it was made
	Base    uint64      // the tree has all commits up to this Seq
	Records int64       // records in the tree. It can be negative in a damaged file; it then counts as 0
	Tables  []*Memtable // newest first

	counted atomic.Pointer[counted]
}

// Covers reports whether the tree alone has everything that a reader at seq sees.
func (v *View) Covers(seq uint64) bool {
	if seq <= v.Base {
		return true
	}
	for _, m := range v.Tables {
		if n := m.shown.Load(); n > 0 && m.at(n-1).seq > v.Base {
			return false
		}
	}
	return true
}

// Lacking returns how many of the entries that a reader at seq sees are in the tables and not in the tree.
func (v *View) Lacking(seq uint64) (n int) {
	for _, m := range v.Tables {
		shown := m.shown.Load()
		if upto, base := m.upto(shown, seq), m.upto(shown, v.Base); upto > base {
			n += int(upto - base)
		}
	}
	return n
}

// Find returns the op of a key in the tables for a reader at seq; nil if there is none, and the tree has the
// answer.
func (v *View) Find(key []byte, seq uint64) *btree.Op {
	if seq <= v.Base {
		return nil
	}
	tag, hashed := uint32(0), false
	for _, m := range v.Tables {
		if m.shown.Load() == 0 {
			continue
		}
		if !hashed {
			tag, hashed = uint32(writeset.HashKey(key)), true
		}
		if e := m.find(key, tag, v.Base, seq); e != nil {
			return &e.op
		}
	}
	return nil
}

// counted is the number of records that the tables add for a reader at a Seq.
type counted struct {
	seq  uint64
	upto []uint32 // for each table, the number of entries counted
	net  int64
}

// Len returns the number of records that a reader at seq sees. exists reports whether the tree has a key. The
// result is kept, so that a later call looks only at entries that came since.
func (v *View) Len(seq uint64, exists func(key []byte) (bool, error)) (int64, error) {
	if v.Covers(seq) {
		return max(v.Records, 0), nil
	}
	c := v.counted.Load()
	if c == nil || c.seq > seq || len(c.upto) != len(v.Tables) {
		c = &counted{upto: make([]uint32, len(v.Tables))}
		for i, m := range v.Tables {
			c.upto[i] = m.upto(m.shown.Load(), v.Base)
		}
	}
	next := &counted{seq: seq, upto: append([]uint32(nil), c.upto...), net: c.net}
	for i := len(v.Tables) - 1; i >= 0; i-- { // oldest first
		m := v.Tables[i]
		for n := m.upto(m.shown.Load(), seq); next.upto[i] < n; next.upto[i]++ {
			was, err := v.existed(i, m.at(next.upto[i]), exists)
			if err != nil {
				return 0, err
			}
			if is := !m.at(next.upto[i]).op.Delete; is && !was {
				next.net++
			} else if was && !is {
				next.net--
			}
		}
	}
	if last := v.counted.Load(); last == nil || last.seq < seq {
		v.counted.CompareAndSwap(last, next)
	}
	return max(v.Records+next.net, 0), nil
}

// existed reports whether the key of an entry of table i had a value before that entry.
func (v *View) existed(i int, e *entry, exists func(key []byte) (bool, error)) (bool, error) {
	if e.prev != 0 {
		if before := v.Tables[i].at(e.prev - 1); before.seq > v.Base {
			return !before.op.Delete, nil
		}
	}
	for _, m := range v.Tables[i+1:] {
		if before := m.find(e.op.Key, e.tag, v.Base, e.seq); before != nil {
			return !before.op.Delete, nil
		}
	}
	return exists(e.op.Key)
}
