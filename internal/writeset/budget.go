package writeset

import (
	"sync/atomic"

	"flashdbm/logstore"
)

// Budget is what transactions have in memory for write sets, all together: see Charge. Any number of goroutines use it, each with sets of its
// own.
type Budget struct {
	limit int64        // bytes that sets may have
	step  int64        // bytes by which a set grows until it is charged again
	bytes atomic.Int64 // of sets, as far as they were charged
	sets  atomic.Int64 // that were charged

	layers    atomic.Uint64 // written
	collapsed atomic.Uint64 // times that all of a set was written anew
}

const (
	chargeStep = 16

	// LeastSpilled is how many bytes of a set are worth writing, if the budget is not very small.
	LeastSpilled = 64 << 10
)

// Init sets the limit, before anything else is done with the budget.
func (b *Budget) Init(limit int64) {
	b.limit = limit
	b.step = max(min(LeastSpilled, limit/8)/chargeStep, 1)
}

// Charge accounts for the memory of a write set that has grown, and reports whether it must leave memory: all sets together have too
// much, and this one has its share of that. A small set is not looked at by others.
func (b *Budget) Charge(w *Set) (due bool) {
	held := w.Used()
	if held-w.charged < b.step {
		return false
	}
	least := min(LeastSpilled, b.limit/8)
	if w.charged == 0 {
		b.sets.Add(1)
	}
	total := b.bytes.Add(held - w.charged)
	w.charged = held
	return total > b.limit && held >= max(least, b.limit/(2*b.sets.Load()))
}

// Discharge takes back what Charge has noted.
func (b *Budget) Discharge(w *Set) {
	if w.charged != 0 {
		b.bytes.Add(-w.charged)
		b.sets.Add(-1)
		w.charged = 0
	}
}

// Bytes returns the memory of all sets, as far as they were charged.
func (b *Budget) Bytes() int64 { return b.bytes.Load() }

// Overdrawn reports whether sets have twice what they may have.
func (b *Budget) Overdrawn() bool { return b.bytes.Load() >= 2*b.limit }

// Layers returns how many layers were written.
func (b *Budget) Layers() uint64 { return b.layers.Load() }

// Collapsed returns how often all that had left memory of a set was written anew.
func (b *Budget) Collapsed() uint64 { return b.collapsed.Load() }

// Used estimates the memory that the entries take. Unlike Bytes it does not depend on what the set was used for before.
func (w *Set) Used() int64 {
	const recordMemory = recordBytes + 24 // and its share of a block
	return w.redoBytes + w.staleBytes + int64(w.records.n)*recordMemory
}

// Spill moves what the set has in memory to a new layer, in segments that are taken by the claim. It takes over the large values that the
// layer leads to, and returns the others. After ErrFull the set is as it was, but for runs that were written in vain.
func (b *Budget) Spill(w *Set, s *logstore.Store, c logstore.Claim, large []*logstore.Private) (rest []*logstore.Private, err error) {
	if w.spill == nil {
		w.spill = &Spill{store: s}
	}
	w.spill.claim = c
	if w.Len() == 0 {
		return large, nil
	}
	if rest, err = w.spill.add(w, large); err != nil {
		return nil, err
	}
	b.layers.Add(1)
	w.forget()
	b.Discharge(w)
	return rest, nil
}

// Tidy merges layers of a set that has spilled, where there are many, or writes all of them anew, where most of what they have is
// overwritten. Large values that are lent stay. On a full file it does nothing: with many layers all goes on too.
func (b *Budget) Tidy(w *Set, lent map[logstore.Addr]int) error {
	var err error
	if s := w.spill; s.overwritten() {
		if err = s.collapse(lent); err == nil {
			b.collapsed.Add(1)
		} else if logstore.IsFull(err) {
			s.tally.least = s.tally.bytes + s.tally.bytes/collapseWait
		}
	} else {
		err = s.compact()
	}
	if logstore.IsFull(err) {
		return nil
	}
	return err
}
