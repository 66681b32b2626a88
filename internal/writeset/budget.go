package writeset

import (
	"sync/atomic"

	"flashdbm/logstore"
)

// Budget bounds the memory of all write sets together: see Charge. Any number of goroutines may use it, each with
// its own sets.
type Budget struct {
	limit int64        // bytes that all sets may have
	step  int64        // bytes by which a set may grow before it is charged again
	bytes atomic.Int64 // bytes charged
	sets  atomic.Int64 // sets charged

	layers    atomic.Uint64 // layers written
	collapsed atomic.Uint64 // times that all layers of a set were rewritten
}

const (
	chargeStep = 16 // a set is charged in steps of the least spilled bytes / chargeStep

	// LeastSpilled is the least number of bytes of a set that are worth writing to the file, unless the budget is
	// very small.
	LeastSpilled = 64 << 10
)

// Init sets the limit, in bytes. It must be called before any other method.
func (b *Budget) Init(limit int64) {
	b.limit = limit
	b.step = max(min(LeastSpilled, limit/8)/chargeStep, 1)
}

// Covers reports that Charge would do nothing.
func (b *Budget) Covers(w *Set) bool { return w.Used()-w.charged < b.step }

// Charge accounts for the growth of a write set, and reports whether the set must be spilled: all sets together
// exceed the limit, and this one has at least half of an equal share of it. A set that has grown by less than a
// step does not touch the shared counters.
func (b *Budget) Charge(w *Set) (due bool) {
	if b.Covers(w) {
		return false
	}
	held := w.Used()
	least := min(LeastSpilled, b.limit/8)
	if w.charged == 0 {
		b.sets.Add(1)
	}
	total := b.bytes.Add(held - w.charged)
	w.charged = held
	return total > b.limit && held >= max(least, b.limit/(2*b.sets.Load()))
}

// Discharge cancels the charges of the set.
func (b *Budget) Discharge(w *Set) {
	if w.charged != 0 {
		b.bytes.Add(-w.charged)
		b.sets.Add(-1)
		w.charged = 0
	}
}

// Bytes returns the memory charged for all sets.
func (b *Budget) Bytes() int64 { return b.bytes.Load() }

// Overdrawn reports whether all sets together have twice the limit or more.
func (b *Budget) Overdrawn() bool { return b.bytes.Load() >= 2*b.limit }

// Layers returns the number of layers written.
func (b *Budget) Layers() uint64 { return b.layers.Load() }

// Collapsed returns how often all layers of a set were rewritten.
func (b *Budget) Collapsed() uint64 { return b.collapsed.Load() }

// Used estimates the memory of the entries. Unlike Bytes it does not depend on memory that the set kept from an
// earlier use.
func (w *Set) Used() int64 {
	const recordMemory = recordBytes + 24 // with its share of a block
	return w.redoBytes + w.staleBytes + int64(w.records.n)*recordMemory
}

// Spill moves the entries of the set from memory to a new layer, in segments taken by claim c. The set's spill
// takes over the large values to which the layer refers, and Spill returns the others. After ErrFull the set is
// unchanged, except that it has unused runs: see add.
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

// Tidy keeps the number and the size of a set's layers small. If most of their records are overwritten, it
// rewrites all layers; otherwise it merges layers if there are many. Large values in lent stay. If the file is
// full it does nothing: the set also works with many layers.
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
