package mvcc

import (
	"sync"

	"flashdbm/internal/writeset"
)

// sets has write sets for future transactions, and the memory budget of all write sets. Any goroutine may use budget
// and pool, and the methods marked so; the rest belongs to the token holder.
type sets struct {
	budget  writeset.Budget
	pool    *sync.Pool      // of *writeset.Set, empty
	_       [64]byte        // separates fields that are written all the time from those that are mostly read
	leaders []*writeset.Set // empty sets, for leaders
	spent   []spentSet
	bytes   int64 // of the sets in spent
}

// spentSet is a write set whose commit is, or was, in the commit list. It is reused when the horizon has reached seq:
// a resolver looks only at commits above its own snapshot, so no resolver can be looking at it then. If its keys and
// values were not copied, a memtable refers to them, and the set is reused only when no reader has that memtable.
type spentSet struct {
	node   *commitNode // has the set until that is reused
	seq    uint64
	copied bool
}

// keepSpent is how many bytes of write sets may wait to be reused. Further ones are left to the garbage collector: a
// long reader, or the base of a flush, holds the horizon back for as long as it lasts, and even the set of one record
// has some 600 bytes. Entries of memtables keep the keys and values that they need.
const keepSpent = 4 << 20

// take returns an empty write set, reused if possible. A set that was pushed to the commit list may still be read by
// resolvers and comes back by way of spent. Any goroutine may call it.
func (s *sets) take() *writeset.Set {
	if w, ok := s.pool.Get().(*writeset.Set); ok {
		return w
	}
	return new(writeset.Set)
}

// give takes back a set that nobody looks at. Any goroutine may call it.
func (s *sets) give(w *writeset.Set) {
	s.empty(w)
	s.pool.Put(w)
}

func (s *sets) empty(w *writeset.Set) {
	s.budget.Discharge(w)
	w.Reset()
}

// hand gives a set to a leader that writes one record after the other, for its next commit. That is faster than the
// pool.
func (s *sets) hand(tx *Tx) {
	if last := len(s.leaders) - 1; last >= 0 && tx.again && tx.kept.set == nil {
		tx.kept.set, s.leaders = s.leaders[last], s.leaders[:last]
	}
}

// retire queues the sets of a finished batch for reuse. A committer that writes one record after the other and is
// alone gets its set back at once: the few cache lines of one set stay in the nearest cache, and those of many sets
// would not.
func (s *sets) retire(nodes []*commitNode, seq uint64, copied, alone bool) {
	if own := &nodes[0].Value; alone && copied && own.tx.again && own.set.Bytes() <= keptBytes {
		own.tx.kept.set, own.set = own.set, nil
		s.empty(own.tx.kept.set)
		return
	}
	for _, n := range nodes {
		set := n.Value.set
		bytes := set.Bytes()
		if s.bytes+bytes > keepSpent {
			s.budget.Discharge(set)
			continue
		}
		s.bytes += bytes
		s.spent = append(s.spent, spentSet{n, seq, copied})
	}
}

// reuse takes back the sets that nobody needs any more: no reader is below the horizon, or has memtables with entries
// up to freed.
func (s *sets) reuse(horizon, freed uint64) {
	n := 0
	for n < len(s.spent) && s.spent[n].seq <= horizon && (s.spent[n].copied || s.spent[n].seq <= freed) {
		c := &s.spent[n].node.Value
		set := c.set
		c.set = nil // the node may stay in memory for longer
		s.bytes -= set.Bytes()
		s.empty(set)
		if len(s.leaders) < keptSets && set.Bytes() <= keptBytes {
			s.leaders = append(s.leaders, set)
		} else {
			s.pool.Put(set)
		}
		n++
	}
	kept := copy(s.spent, s.spent[n:])
	clear(s.spent[kept:])
	s.spent = s.spent[:kept]
}
