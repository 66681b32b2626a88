package mvcc

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/internal/overlay"
	"flashdbm/internal/redo"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
	"flashdbm/override"
)

// Redo is the record groups after the redo start. It is merged in their order, in steps. A step is a memtable with
// the ops of all groups up to the next one that has ranges or lists layers, followed by those: the ranges are cut and
// the layers merged. Usually there is one step, without any.
//
// After a kill in the middle of much writing, merging takes longer than the rest of Open: each record may be in
// another leaf, which has to be read and checked first. So Open returns when the records are in memory and durable,
// in a memtable at redoSeq over the tree at baseSeq.
//
//   - Readers find the records in the memtable. Commits, Check and checkpoints need the tree, and wait for the merge,
//     which goes on in the background.
//   - Layers and ranges are redone before Open returns: layers may be more than memory holds, and readers know
//     nothing of layers and ranges. A flush of all dirty pages follows at once, so that the layers give up their
//     room.
//   - Nothing is committed before the redo is merged. The redo is not in the table of last writes: nobody conflicts
//     with it.
//   - Crash: what was accepted is durable before Open returns. Before the merge ends nothing is logged except pages
//     that are written early because memory is short, and these do not count without the rest of their flush.
//   - An error of the merge poisons the store and is returned to those who wait for the merge. Readers go on.
//
// With Options.Manual nothing runs in the background: the first goroutine that needs the
// tree merges.
const (
	baseSeq = 1
	redoSeq = baseSeq + 1

	redoAtOnce = 1 << 12 // ops applied between two looks whether to go on
	// redoTouched is how many keys touchAhead looks up before it asks the system for the leaves of as many more, which
	// the device reads meanwhile.
	redoTouched = 1024
	redoBehind  = 1 << 13 // fewest records that are redone after Open returns: fewer take some 10 ms
)

// redoTable is what Open has left to redo. It does not change, except for applied.
type redoTable struct {
	recovery *recovery
	merge    func(*redoTable) error // brings it into the tree. Token held
	steps    []*redoStep            // at least one
	applied  atomic.Int64           // keys of the present step that were handed to the tree
}

// redoStep is the ops of some groups, and the ranges and layers of the group after them, which precede that group's
// own ops.
type redoStep struct {
	*overlay.Memtable
	// old is the number of ops from groups up to the flush's base. That flush has listed the values that died by
	// them, or the tree has those values and the merge will drop them.
	old int
	// lost are values of other ops that a later op of the same key replaces: they are in the log and never get into
	// the tree.
	lost    []btree.Ref
	special []redo.Special // ranges, and what lists layers
	keys    overlay.Sorted // set when the merge begins
}

// begin begins another step.
func (r *redoTable) begin() *redoStep {
	s := &redoStep{Memtable: overlay.NewMemtable()}
	r.steps = append(r.steps, s)
	return s
}

// stepwise reports whether there are ranges or layers.
func (r *redoTable) stepwise() bool { return len(r.steps) > 1 }

// add adds the ops of the next group.
func (s *redoStep) add(ops []btree.Op) {
	for i := range ops {
		before, number := s.Insert(&ops[i], writeset.HashKey(ops[i].Key), redoSeq)
		if before != nil && before.Ref != nil && number >= s.old {
			s.lost = append(s.lost, *before.Ref)
		}
	}
}

// mergeRedo merges the redo into the tree. The token holder calls it before anything else, so no flush is in flight.
// If it begins a flush early, no other one can come between: it keeps the token until that flush is installed. Token
// held.
func (rv *recovery) mergeRedo(r *redoTable) error {
	begin := time.Now()
	rv.pressure.layered = r.stepwise()
	p := &pieces{flusher: rv.flusher, batch: rv.pages.Begin(redoSeq), group: rv.store.LastGroup(), records: rv.tree.records}
	for _, s := range r.steps {
		s.keys = s.Sorted()
	}
	var err error
	if p.again, err = r.pages(); err == nil {
		err = r.apply(p)
	}
	if err != nil {
		p.abandon()
		if err == ErrClosed {
			return err
		}
		return rv.store.Fail(err)
	}
	f := p.seal(r.stepwise() && !rv.opts.Store.ReadOnly)
	rv.stats.Steps.Redo = time.Since(begin)
	rv.known.tell(rv.stats)
	rv.tree.tables.redo.Store(nil)
	rv.tree.merged(redoSeq, redoSeq, p.records)
	if f != nil {
		return rv.flusher.finishFlush(f, rv.log.bytes.Total(), func(work func()) { work() })
	}
	rv.tree.reclaim()
	return nil
}

// pages bounds the pages that the redo takes if space is scarce: the leaves that its keys are in, and what new
// records may need. It returns 0 if space is plentiful, and for layers, which may be more than memory holds and are
// written early as far as there is room at all.
func (r *redoTable) pages() (int64, error) {
	rv, s := r.recovery, r.steps[0]
	grown := s.Bytes()/splitBytes + 1
	if rv.opts.Store.ReadOnly || r.stepwise() || !rv.room.scarce(int64(s.keys.Len())+grown) {
		return 0, nil
	}
	base := rv.pages.At(baseSeq)
	var last logstore.PageID
	leaves := int64(0)
	for i := range s.keys.Len() {
		leaf, err := btree.Leaf(&base, override.Root, s.keys.KeyAt(i))
		if err != nil {
			return 0, err
		}
		if leaf != last {
			last, leaves = leaf, leaves+1
		}
	}
	return withMargin(leaves + grown), nil
}

// apply merges the redo into the tree, as one batch.
func (r *redoTable) apply(p *pieces) error {
	rv := r.recovery
	used := rv.store.NewUsedPages() // by layers
	for _, s := range r.steps {
		if err := r.applyOps(s, p); err != nil {
			return err
		}
		if len(s.special) == 0 {
			continue
		}
		for _, x := range s.special {
			if x.Range == nil {
				continue
			}
			if err := p.cut(*x.Range); err != nil {
				return err
			}
			rv.stats.Ranges++
		}
		layers, drops, err := rv.openLayers(used, s.special)
		if err == nil && len(layers) > 0 {
			err = p.applyLayers(layers, func([]byte) { rv.stats.Records++ })
		}
		if err != nil {
			return err
		}
		for _, ref := range drops {
			p.batch.Drop(ref)
		}
	}
	return nil
}

// applyOps merges the ops of a step. Only Close of a read-only engine, which does not need the result, cuts it short.
func (r *redoTable) applyOps(s *redoStep, p *pieces) error {
	rv := r.recovery
	for _, ref := range s.lost {
		p.batch.Drop(ref)
	}
	r.applied.Store(0)
	if !rv.opts.Manual {
		snap := rv.pages.At(baseSeq)
		prefetchLeaves(&snap, &s.keys, 0, min(redoAtOnce, s.keys.Len()))
		stop := r.touchAhead(s)
		defer stop()
	}
	ops := make([]btree.Op, 0, min(s.keys.Len(), rv.pieceOps(), redoAtOnce))
	for next := 0; next < s.keys.Len(); {
		if rv.opts.Store.ReadOnly && rv.readers.ending.Load() {
			return ErrClosed
		}
		ops = ops[:0]
		for ; next < s.keys.Len() && len(ops) < cap(ops); next++ {
			ops = append(ops, s.keys.At(next))
		}
		r.applied.Add(int64(len(ops)))
		if err := p.apply(ops); err != nil {
			return err
		}
	}
	return nil
}

// prefetchLeaves makes the system begin to read the leaves of some keys, which are in order.
func prefetchLeaves(snap *override.Snapshot, keys *overlay.Sorted, from, end int) {
	leaves := make([]btree.PageID, 0, redoTouched)
	for i := from; i < end; i++ {
		id, err := btree.Leaf((*override.Lookup)(snap), override.Root, keys.KeyAt(i))
		if n := len(leaves); err == nil && (n == 0 || leaves[n-1] != id) {
			leaves = append(leaves, id)
		}
	}
	snap.Prefetch(leaves)
}

// touchAhead has another goroutine read and check the pages that applyOps comes to next, which is half of the work.
// That goroutine only reads the tree; apply will find what is wrong there. It is not in the registry, where Close
// would wait for it: the tree at baseSeq stays while the watermarks do, and the goroutine has stopped before they
// move.
func (r *redoTable) touchAhead(s *redoStep) (stop func()) {
	rv := r.recovery
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var fault error
		defer rv.guard(&fault)
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		snap := rv.pages.At(baseSeq)
		read := redoAtOnce // the leaves of the keys before this one are being read by the system
		for i := redoAtOnce; i < s.keys.Len(); i++ {
			if i%redoTouched == 0 {
				i = max(i, int(r.applied.Load())) // applyOps has overtaken this goroutine
				select {
				case <-quit:
					return
				default:
				}
				end := min(i+2*redoTouched, s.keys.Len())
				prefetchLeaves(&snap, &s.keys, max(i, read), end)
				read = end
			}
			if i < s.keys.Len() {
				_, _, _ = btree.Get((*override.Lookup)(&snap), override.Root, s.keys.KeyAt(i))
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// redoneBehind reports whether that number of records is redone after Open has returned.
func (rv *recovery) redoneBehind(records int) bool {
	switch least := rv.opts.RedoBehind; {
	case least > 0:
		return records >= least
	case rv.opts.Manual:
		return false
	}
	return records >= redoBehind
}

// redoing reports whether Open has left something to redo that is not in the tree yet.
func (t *tree) redoing() bool { return t.tables.redo.Load() != nil }
