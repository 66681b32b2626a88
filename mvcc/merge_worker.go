package mvcc

import (
	"math"
	"runtime"
	"runtime/debug"

	"flashdbm/internal/btree"
	"flashdbm/internal/overlay"
	"flashdbm/override"
)

// backgroundMerge merges a sealed memtable in a goroutine of its own while commits go on, so that a load uses two
// processors. A leader begins it before a batch. A later leader, or the first goroutine that needs the tree,
// takes over its result (finishMerge).
//
// Invariants:
//
//  1. From its beginning until finishMerge the merge owns the tree: dirty pages, pages in limbo, and the memory of
//     versions. The token holder uses the sizes that were noted before (tree.sizes) until it has called finishMerge,
//     which merge does first. A flush may write its parts during the merge, and waits for it before it installs them.
//  2. Views show the merge's table until finishMerge, which publishes a view of the new tree without that table.
//  3. One background merge runs at a time, and its end is always waited for.
type backgroundMerge struct {
	table *overlay.Memtable
	from  int      // index of the first of its entries that the tree lacks
	keys  int      // distinct keys of those entries, about
	upto  treeBase // last batch of the table, and the group that carries it: the newest group when this merge began
	tree  uint64   // number of the version that the merge makes
	bytes int64    // bytes of keys and values of those entries
	sizes treeSizes
	done  chan struct{} // closed at its end; the fields below may be read after that
	added int64
	err   error
}

const (
	backgroundOps    = 32 << 10        // fewest entries for a background merge,
	backgroundSynced = mostEntries / 2 // and in Durable mode, where commits wait for the device: fewer visits of leaves matter more
)

// backgroundFrom returns how many entries the tree must lack before they are merged in the background.
func backgroundFrom(o *Options) int {
	switch {
	case o.BackgroundOps > 0:
		return o.BackgroundOps
	case o.Manual || runtime.GOMAXPROCS(0) == 1:
		return math.MaxInt
	case o.Durability == Durable:
		return backgroundSynced
	}
	return backgroundOps
}

// beginMerge seals the active table and begins to merge it in the background, and reports whether it did. Entries in
// ascending order are not worth a goroutine. Token held, before a batch: in Durable mode everything committed is
// durable.
func (t *tree) beginMerge() bool {
	tables := &t.tables
	if tables.active.Ascends() || tables.noBackground > 0 {
		return false
	}
	return t.seal()
}

// seal does the same even for ascending entries. It reports false if there is nothing to merge, a merge is under way,
// redo of Open is left to merge, or logging fails. Buffered redo is logged first, so that the table ends where a
// group ends. Token held.
func (t *tree) seal() bool {
	tables := &t.tables
	if tables.rest() == 0 || tables.merging() || tables.redo.Load() != nil || t.log.writeRedo() != nil {
		return false
	}
	sealed := tables.active
	last := sealed.Len()
	base := sealed.Seq(last - 1)
	m := &backgroundMerge{table: sealed, from: tables.from, keys: tables.keys(), tree: t.nextTree(base), bytes: tables.bytes, sizes: t.sizes(),
		upto: treeBase{base, t.store.CloseGroup(), t.log.bytes.Total()}, done: make(chan struct{}), err: errBroken} // err stays if it panics
	pages := t.pages.Begin(m.tree)
	tables.active, tables.from, tables.bytes = tables.turn(), 0, 0
	tables.merge.Store(m)
	v := t.readers.views.newest.Load()
	t.publishView(v.Tree, v.Base)
	go func() {
		defer close(m.done)
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer t.protect(&m.err)
		m.err = tables.sorter.Sorted(m.table, m.from, last, pages.Drop, func(ops []btree.Op) error {
			r, err := btree.Apply(pages, override.Root, ops)
			m.added += r.Added
			return err
		})
	}()
	return true
}

// awaitMerge waits for the end of the merge under way. A caller that will need the tree calls it before it takes the
// token: waiting with the token in hand would make commits wait too.
func (t *tree) awaitMerge() {
	if m := t.tables.merge.Load(); m != nil {
		<-m.done
	}
}

// finishMerge waits for the merge under way and takes over its result. Token held.
func (t *tree) finishMerge() {
	tables := &t.tables
	m := tables.merge.Load()
	if m == nil {
		return
	}
	<-m.done
	if m.err != nil {
		t.store.Fail(m.err) // its table stays in the view
		return
	}
	tables.merge.Store(nil)
	tables.forgetLarge(m.table.Len() - m.from)
	tables.retire(m.table, m.tree)
	t.merged(m.tree, m.upto.seq, t.records+m.added)
	t.upto, t.gain = m.upto, min(max(float64(m.added)/float64(m.keys), 0), 1)
	if t.Failed() == nil {
		t.reclaim()
		t.room.rebalance(0)
	}
}

// ended reports whether the merge is at its end.
func (m *backgroundMerge) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// thin makes room in the memtables before a batch: it finishes a background merge that has ended, and if the
// memtables are worth merging or crowded it begins another one or, if it must, merges at once. Token held.
func (t *tree) thin() error {
	tables := &t.tables
	crowded := t.crowded() // once a batch, if it can be: it asks for the space of the file, which flushes change
	if tables.merging() && (crowded || !t.opts.Manual && tables.merge.Load().ended()) {
		t.finishMerge()
		crowded = t.crowded()
		if err := t.Failed(); err != nil { // a Buffered commit would not notice
			return err
		}
	}
	much := t.worthMerging(crowded)
	if !crowded && !much {
		return nil
	}
	t.token.awaitSync() // of the batch before, so that in Durable mode everything committed is durable
	if much && t.beginMerge() {
		return nil
	}
	if err := t.Failed(); err != nil || !crowded { // beginMerge logs what is buffered
		return err
	}
	return t.merge()
}
