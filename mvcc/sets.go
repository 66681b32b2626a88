package mvcc

import "flashdbm/internal/writeset"

// takeSet returns an empty write set: one that an earlier transaction had, if there is one. A set that was pushed to the commit list may
// still be looked at by resolvers; it comes back by way of spent.
func (e *Engine) takeSet() *writeset.Set {
	if w, ok := e.setPool.Get().(*writeset.Set); ok {
		return w
	}
	return new(writeset.Set)
}

func (e *Engine) giveSet(w *writeset.Set) {
	e.emptySet(w)
	e.setPool.Put(w)
}

func (e *Engine) emptySet(w *writeset.Set) {
	e.budget.Discharge(w)
	w.Reset()
}

// handSet gives a leader who writes one record after the other a set for the next, without a way through the pool. Baton holder.
func (e *Engine) handSet(tx *Tx) {
	if last := len(e.sets) - 1; last >= 0 && tx.single && tx.kept.set == nil {
		tx.kept.set, e.sets = e.sets[last], e.sets[:last]
	}
}

// spentSet is a write set in the commit list. It is reused once the horizon has reached its Seq: a resolver looks only at commits above
// its own snapshot, so none can be looking any more.
//
// If its keys and values were not copied when its batch became pending, it must have been merged too.
type spentSet struct {
	node   *commitNode // that has the set, until it is used again
	seq    uint64
	copied bool
}

// keepSpent is how many bytes of sets may wait to be used again. What is beyond is left to the collector: a long reader, or the base of a
// flush, keeps the horizon back for as long as it lasts, and even the set of one record has 4 KB. What of a set is pending keeps its keys
// and values by itself.
const keepSpent = 4 << 20

// retire queues the sets of a finished batch. A committer of one record after the other who is alone has his back at once: the few lines
// of one set stay in the nearest cache, those of many take turns there. Baton holder.
func (e *Engine) retire(seq uint64, copied, alone bool) {
	if own := &e.nodes[0].Value; alone && copied && own.tx.single && own.set.Bytes() <= keptBytes {
		own.tx.kept.set, own.set = own.set, nil
		e.emptySet(own.tx.kept.set)
		return
	}
	for _, n := range e.nodes {
		set := n.Value.set
		bytes := set.Bytes()
		if e.spentBytes+bytes > keepSpent {
			e.budget.Discharge(set)
			continue
		}
		e.spentBytes += bytes
		e.spent = append(e.spent, spentSet{n, seq, copied})
	}
}

// reuse gives back the sets that nobody needs any more. Baton holder.
func (e *Engine) reuse(horizon uint64) {
	n, merged := 0, e.pending.merged.Load()
	for n < len(e.spent) && e.spent[n].seq <= horizon && (e.spent[n].copied || e.spent[n].seq <= merged) {
		c := &e.spent[n].node.Value
		set := c.set
		c.set = nil // the node may be in memory for longer
		e.spentBytes -= set.Bytes()
		e.emptySet(set)
		if len(e.sets) < keptSets && set.Bytes() <= keptBytes {
			e.sets = append(e.sets, set)
		} else {
			e.setPool.Put(set)
		}
		n++
	}
	kept := copy(e.spent, e.spent[n:])
	clear(e.spent[kept:])
	e.spent = e.spent[:kept]
}
