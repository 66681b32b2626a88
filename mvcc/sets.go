package mvcc

import (
	"sync"

	"flashdbm/internal/writeset"
)

// sets are the write sets of transactions to come, and the budget of all. Any goroutine uses the budget and the pool; the rest, with the
// methods that are not said to be for anybody, is the token holder's.
type sets struct {
	budget  writeset.Budget
	pool    *sync.Pool      // of *writeset.Set, empty
	_       [64]byte        // what follows is written all the time, and what precedes it is read
	leaders []*writeset.Set // empty, for leaders
	spent   []spentSet
	bytes   int64 // of spent
}

// spentSet is a write set in the commit list. It is reused once the horizon has reached its Seq: a resolver looks only at commits above
// its own snapshot, so none can be looking any more.
//
// If its keys and values were not copied, the entries of a memtable are in it: then nobody may have that table any more.
type spentSet struct {
	node   *commitNode // that has the set, until it is used again
	seq    uint64
	copied bool
}

// keepSpent is how many bytes of sets may wait to be used again. What is beyond is left to the collector: a long reader, or the base of a
// flush, keeps the horizon back for as long as it lasts, and even the set of one record has 4 KB. Entries of memtables keep their keys
// and values by themselves.
const keepSpent = 4 << 20

// take returns an empty write set: one that an earlier transaction had, if there is one. A set that was pushed to the commit list may
// still be looked at by resolvers; it comes back by way of spent. Anybody.
func (s *sets) take() *writeset.Set {
	if w, ok := s.pool.Get().(*writeset.Set); ok {
		return w
	}
	return new(writeset.Set)
}

// give takes a set back that nobody looks at. Anybody.
func (s *sets) give(w *writeset.Set) {
	s.empty(w)
	s.pool.Put(w)
}

func (s *sets) empty(w *writeset.Set) {
	s.budget.Discharge(w)
	w.Reset()
}

// hand gives a leader who writes one record after the other a set for the next, without a way through the pool.
func (s *sets) hand(tx *Tx) {
	if last := len(s.leaders) - 1; last >= 0 && tx.again && tx.kept.set == nil {
		tx.kept.set, s.leaders = s.leaders[last], s.leaders[:last]
	}
}

// retire queues the sets of a finished batch. A committer of one record after the other who is alone has his back at once: the few lines
// of one set stay in the nearest cache, those of many take turns there.
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

// reuse takes back the sets that nobody needs any more: no reader is below the horizon, or has entries of memtables up to freed.
func (s *sets) reuse(horizon, freed uint64) {
	n := 0
	for n < len(s.spent) && s.spent[n].seq <= horizon && (s.spent[n].copied || s.spent[n].seq <= freed) {
		c := &s.spent[n].node.Value
		set := c.set
		c.set = nil // the node may be in memory for longer
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
