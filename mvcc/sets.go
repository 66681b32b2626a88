package mvcc

import "sync"

// setPool keeps write sets for use by later transactions. A set that was pushed to the commit list may still be looked at by resolvers;
// it comes back here by way of spent.
var setPool = sync.Pool{New: func() any { return new(WriteSet) }}

func (e *Engine) takeSet() *WriteSet { return setPool.Get().(*WriteSet) }

func (e *Engine) giveSet(w *WriteSet) {
	w.Reset()
	setPool.Put(w)
}

// spentSet is a write set in the commit list. It is reused once the horizon has reached its Seq: a resolver looks only at commits above
// its own snapshot, so none can be looking any more.
type spentSet struct {
	set *WriteSet
	seq uint64
}

// retire queues the sets of a finished batch. Baton holder.
func (e *Engine) retire(seq uint64) {
	for _, n := range e.nodes {
		e.spent = append(e.spent, spentSet{n.Value.set, seq})
	}
}

// reuse gives back the sets that nobody can look at any more, and whose ops are in the tree. Baton holder.
func (e *Engine) reuse(horizon uint64) {
	horizon = min(horizon, e.pending.merged.Load())
	n := 0
	for n < len(e.spent) && e.spent[n].seq <= horizon {
		e.giveSet(e.spent[n].set)
		n++
	}
	e.spent = append(e.spent[:0], e.spent[n:]...)
}
