package mvcc

import (
	"sync"

	"flashdbm/internal/writeset"
)

// sets has write sets for future transactions, and the memory budget of all write sets. Any goroutine may use it.
//
// A set whose commit was pushed to the commit list is left to the garbage collector: resolvers and memtables may refer
// to it for as long as a long reader, or a flush, holds the horizon back. Queues of such sets, from which they were
// reused once the horizon had passed them, gained nothing: YCSB A and F, loads, and 64 durable writers were as fast
// without, since a set of one record takes less than a KiB.
type sets struct {
	budget writeset.Budget
	pool   *sync.Pool // of *writeset.Set, empty
}

// take returns an empty write set.
func (s *sets) take() *writeset.Set {
	if w, ok := s.pool.Get().(*writeset.Set); ok {
		return w
	}
	return new(writeset.Set)
}

// give takes back a set that nobody looks at.
func (s *sets) give(w *writeset.Set) {
	s.empty(w)
	s.pool.Put(w)
}

func (s *sets) empty(w *writeset.Set) {
	s.budget.Discharge(w)
	w.Reset()
}

// retire gives up the sets of a finished batch. A committer that writes one record after the other and is alone gets
// its set back at once if its keys and values were copied, so that no memtable refers to them: the few cache lines of
// one set stay in the nearest cache. Token held.
func (s *sets) retire(nodes []*commitNode, copied, alone bool) {
	if own := &nodes[0].Value; alone && copied && own.tx.again && own.tx.kept.keeps {
		own.tx.kept.set, own.set = own.set, nil
		s.empty(own.tx.kept.set)
		return
	}
	for _, n := range nodes {
		s.budget.Discharge(n.Value.set)
	}
}
