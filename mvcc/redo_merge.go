package mvcc

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/internal/overlay"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
	"flashdbm/override"
)

// After a kill in the middle of much writing the redo records take longer to merge into the tree than all the rest of Open: each of
// them may be for another leaf, which has to be read and checked first. So Open returns once the records are at hand and durable, in a
// memtable of their own at redoSeq, over the tree at baseSeq.
//
//   - Readers find the records in the table, as those of any other. Commits, Check and checkpoints need the tree, and wait for the merge, which
//     goes on in the background.
//   - Nothing is committed before the redo is merged. In the table of last writes it is not: it is no conflict for anybody.
//   - Crashes have nothing new to break: what was accepted is durable before Open returns, and nothing is logged before it is merged but
//     pages that are written early for want of memory, which are void without the rest of their flush.
//   - An error of the merge poisons the store and is what those who wait get. Readers go on.
//
// With Options.Manual there is no background: the first that needs the tree merges.
const (
	baseSeq = 1
	redoSeq = baseSeq + 1

	redoAtOnce = 1 << 12 // ops applied between two looks at whether to go on
	redoBehind = 1 << 13 // records from which they are redone behind Open: fewer take some 10 ms
)

// redoTable is what Open has left to redo. It does not change, but for the count.
type redoTable struct {
	*overlay.Memtable
	recovery *recovery
	merge    func(*redoTable) error // brings it into the tree. Token held
	lost     []btree.Ref            // values that another one of the same key follows: they are in the log and never get into the tree
	keys     overlay.Sorted         // set once the merge begins
	applied  atomic.Int64           // how many of its keys have been handed to the tree
}

// newRedoTable makes a table of ops in the order of their commits. The first ones, so many, are of groups up to the base of a flush: either that
// flush listed the values among them that others follow as dead, or the tree has these and the merge will drop them. So these lose none.
func (rv *recovery) newRedoTable(ops []btree.Op, old int) *redoTable {
	r := &redoTable{Memtable: overlay.NewMemtable(), recovery: rv, merge: rv.mergeRedo}
	r.Reserve(len(ops))
	for i := range ops {
		before, number := r.Insert(&ops[i], writeset.HashKey(ops[i].Key), redoSeq)
		if before != nil && before.Ref != nil && number >= old {
			r.lost = append(r.lost, *before.Ref)
		}
	}
	r.Show()
	return r
}

// mergeRedo merges the redo into the tree. Token held, who merges it before anything else: so no flush is in flight, and none of
// another comes between, as the token stays here until one that was begun early is installed.
func (rv *recovery) mergeRedo(r *redoTable) error {
	begin := time.Now()
	p := &pieces{flusher: rv.flusher, batch: rv.pages.Begin(redoSeq), group: rv.store.LastGroup(), records: rv.tree.records}
	r.keys = r.Sorted()
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
	f := p.seal(false)
	rv.stats.Steps.Redo = time.Since(begin)
	rv.known.tell(rv.stats)
	rv.tree.tables.redo.Store(nil)
	rv.tree.merged(redoSeq, redoSeq, p.records)
	if f != nil {
		return rv.flusher.finishFlush(f, func(work func()) { work() })
	}
	rv.tree.reclaim()
	return nil
}

// pages bounds the pages that the redo takes if space is scarce: the leaves that its keys are in, and what new records may need. It is 0
// where there is plenty.
func (r *redoTable) pages() (int64, error) {
	rv := r.recovery
	grown := r.Bytes()/splitBytes + 1
	if rv.opts.Store.ReadOnly || !rv.room.scarce(int64(r.keys.Len())+grown) {
		return 0, nil
	}
	base := rv.pages.At(baseSeq)
	var last logstore.PageID
	leaves := int64(0)
	for i := range r.keys.Len() {
		leaf, err := btree.Leaf(&base, override.Root, r.keys.At(i).Key)
		if err != nil {
			return 0, err
		}
		if leaf != last {
			last, leaves = leaf, leaves+1
		}
	}
	return withMargin(leaves + grown), nil
}

// apply merges the redo into the tree, as one batch. Only Close of a read-only engine, which has no use for it, cuts it short.
func (r *redoTable) apply(p *pieces) error {
	rv := r.recovery
	for _, ref := range r.lost {
		p.batch.Drop(ref)
	}
	if !rv.opts.Manual {
		stop := r.touchAhead()
		defer stop()
	}
	ops := make([]btree.Op, 0, min(r.keys.Len(), rv.pieceOps(), redoAtOnce))
	for next := 0; next < r.keys.Len(); {
		if rv.opts.Store.ReadOnly && rv.readers.ending.Load() {
			return ErrClosed
		}
		ops = ops[:0]
		for ; next < r.keys.Len() && len(ops) < cap(ops); next++ {
			ops = append(ops, *r.keys.At(next))
		}
		r.applied.Add(int64(len(ops)))
		if err := p.apply(ops); err != nil {
			return err
		}
	}
	return nil
}

// touchAhead has another processor read and check the pages that apply comes to next, which is half of the work. It only looks at the
// tree, as readers do; what is wrong there apply will find. It is in no registry, where Close would wait for it: the tree at baseSeq
// stays as long as the watermarks are there, and it has stopped when they move.
func (r *redoTable) touchAhead() (stop func()) {
	rv := r.recovery
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var fault error
		defer rv.guard(&fault)
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		snap := rv.pages.At(baseSeq)
		for i := redoAtOnce; i < r.keys.Len(); i++ {
			if i%256 == 0 {
				i = max(i, int(r.applied.Load())) // overtaken
				select {
				case <-quit:
					return
				default:
				}
			}
			if i < r.keys.Len() {
				_, _, _ = btree.Get(&snap, override.Root, r.keys.At(i).Key)
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// redoneBehind reports whether so many records are redone behind Open.
func (rv *recovery) redoneBehind(records int) bool {
	switch least := rv.opts.RedoBehind; {
	case least > 0:
		return records >= least
	case rv.opts.Manual:
		return false
	}
	return records >= redoBehind
}

// Redoing reports whether Open has left something to redo that is not in the tree yet.
func (t *tree) redoing() bool { return t.tables.redo.Load() != nil }
