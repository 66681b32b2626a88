package mvcc

import (
	"math"
	"runtime"
	"runtime/debug"

	"flashdbm/internal/btree"
	"flashdbm/internal/overlay"
	"flashdbm/override"
)

// backgroundMerge is a merge of a sealed memtable, by a goroutine of its own while commits go on: a load has work for two processors then. It
// begins when a batch does, and is settled by whoever needs the tree, or by a later batch.
//
// Invariants:
//
//  1. From its beginning until it is settled, the tree is its own: what is dirty or in limbo, and the memory of versions. The token holder
//     goes by the sizes that were noted before, until it has called settleMerge, as merge does first of all. A flush writes its parts beside
//     it, and waits for it before it installs them.
//  2. Views show its table until it is settled; then one is published with the tree that has it.
//  3. There is one at a time, and its end is waited for in any case.
type backgroundMerge struct {
	table *overlay.Memtable
	from  int      // of its entries: the first that the tree lacks
	keys  int      // of them, each once
	upto  treeBase // and the group that carries that batch, the newest one when this merge began
	tree  uint64   // number of the version that it makes
	bytes int64    // of keys and values that the tree lacks
	sizes treeSizes
	done  chan struct{} // closed at its end; what follows is to be read behind that
	added int64
	err   error
}

const (
	backgroundOps    = 32 << 10        // least entries that are merged in the background,
	backgroundSynced = mostEntries / 2 // and where commits are synced, which wait for the device: fewer visits of leaves count more
)

// backgroundFrom returns how many entries the tree has to lack before they are merged in the background.
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

// beginMerge seals the active table and begins to merge it, if that is worth a goroutine, and reports whether it did. Token held, before a
// batch: all that is committed is durable where commits are synced.
func (t *tree) beginMerge() bool {
	tables := &t.tables
	if tables.active.Ascends() || tables.noBackground > 0 {
		return false
	}
	return t.seal()
}

// seal is beginMerge in any case, unless there is nothing to merge, or other than the active table has to be merged before. What waits for the log
// is logged first, so that the table ends where a group does.
func (t *tree) seal() bool {
	tables := &t.tables
	if tables.rest() == 0 || tables.merging() || tables.redo.Load() != nil || t.log.writeRedo() != nil {
		return false
	}
	sealed := tables.active
	last := sealed.Len()
	base := sealed.Seq(last - 1)
	m := &backgroundMerge{table: sealed, from: tables.from, keys: tables.keys(), tree: t.nextTree(base), bytes: tables.bytes, sizes: t.sizes(),
		upto: treeBase{base, t.store.CloseGroup(), t.log.bytes.Total()}, done: make(chan struct{}), err: errBroken} // should something panic
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

// awaitMerge waits for the end of the merge under way, for who is going to need the tree: with the token in hand others would wait too.
func (t *tree) awaitMerge() {
	if m := t.tables.merge.Load(); m != nil {
		<-m.done
	}
}

// settleMerge takes over what the merge under way has done, once it is at its end. Token held.
func (t *tree) settleMerge() {
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

// ended reports whether the merge need not be waited for.
func (m *backgroundMerge) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// thin merges as much as may not wait any longer, and has much of the rest merged in the background. Token held.
func (t *tree) thin() error {
	tables := &t.tables
	if tables.merging() && (!t.opts.Manual && tables.merge.Load().ended() || t.crowded()) {
		t.settleMerge()
		if err := t.Failed(); err != nil { // a commit that is buffered would not notice
			return err
		}
	}
	crowded, much := t.crowded(), t.worthMerging()
	if !crowded && !much {
		return nil
	}
	t.token.awaitSync() // of the batch before
	if much && t.beginMerge() || !crowded {
		return nil
	}
	return t.merge()
}
