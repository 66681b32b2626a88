package mvcc

import (
	"slices"
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/internal/overlay"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
	"flashdbm/override"
)

// A commit is visible before the tree has it: its batch is logged and inserted into the active memtable, where
// readers find it. Merging brings the entries of many batches into the tree at once, so each leaf is visited once,
// and no version of a page is made that nobody could read. Readers neither wait for a merge nor cause one.
//
// Invariants:
//
//  1. The newest view's Base <= applied. The tree has every commit up to Base; the memtables have those from there to
//     applied.
//  2. An entry does not change as long as a reader may have its table. Keys and values of small batches are in the
//     table's own memory; those of other batches are in their write sets, which are not reused.
//  3. When the tree has all entries of a table, the table is retired at the Seq m of that version of the tree.
//     Readers registered at m or above do not have the table; it is reused when the horizon has reached m.
//  4. In Durable mode only durable entries are merged. So no View needs an older tree than the newest.
//  5. Work that needs a tree with all commits takes the token by withMerged, which merges first. That is work which
//     logs values again, because redo of an older value must not follow redo of a newer one; and most flushes, whose
//     base is then the end of the log (what is committed during the flush is above its base). Flushes during a load
//     may have an older base: the tree has all commits up to that base and none above it (tree.exact). Folds,
//     checkpoints and the like take the token by withTree, and use the tree as it is.
//
// An error of a merge poisons the store. Committed data stays readable.
type memtables struct {
	redo  atomic.Pointer[redoTable]       // what Open has left to merge first; nil for none. Anyone reads, the token holder writes
	merge atomic.Pointer[backgroundMerge] // the background merge under way; nil for none. Anyone reads, the token holder writes

	// The other fields belong to the token holder.
	active *overlay.Memtable
	from   int            // index of the first entry of active that the tree lacks
	bytes  int64          // bytes of keys and values of those entries
	sorter overlay.Sorter // of the merge under way, if there is one

	retired []retiredTable // oldest first
	spare   []*overlay.Memtable

	noBackground   int   // count of those who are about to need the tree: while it is above 0, beginMerge begins no background merge
	backgroundFrom int   // fewest entries for a background merge; constant
	worth          int64 // bytes of keys and values that active should have before a late merge: see worthMerging
}

// retiredTable is a table that only readers registered below the version tree may have.
type retiredTable struct {
	table *overlay.Memtable // nil: left to the garbage collector
	tree  uint64
}

const (
	// mostEntries is how many entries the tree may lack. More: each leaf is visited less often, but more memory is used.
	mostEntries = 192 << 10
	// mostAscending is the same for entries in key order. These visit each leaf once in any case, so there need not be
	// more than fit the processor's nearest caches.
	mostAscending = 1 << 10
	entryLeaf     = 2560 // bytes of a new version of a leaf: each entry may make one, until all leaves have one
	// entriesSpare is the part of MemoryLimit, in bytes, that neither entries nor new leaf versions may take. Each
	// may take half of what is left, or entries all of it if there are no versions. With a small MemoryLimit each may
	// take an eighth of the limit.
	entriesSpare = 40 << 20

	splitBytes = 1800 // bytes of new keys and values that add one leaf: half a page

	// copyBytes is the most bytes of keys and values of a batch that are copied into the memtable: see logOps. It
	// covers every batch that may share a page.
	copyBytes = logstore.BodySize

	// deferOps is the fewest ops of a synced batch that stays unmerged for longer. Smaller batches are merged while
	// the device writes the next one. Bulk loads have larger batches, and gain by merging later.
	deferOps = 256

	// When all entries of the active table are merged, another table becomes active if this one has at least turnEntries
	// entries, or turnBytes bytes of keys and values. Otherwise the table goes on.
	turnEntries = 1 << 10
	turnBytes   = 1 << 18
	spareTables = 2 // empty tables kept for reuse. Tables that have had more than mostEntries, as in a load, are not kept
	keptRetired = 4 // retired tables that may be reused later; if there are more, the oldest are left to the garbage collector
)

// insert adds the ops of a batch to the active table. The caller holds the token and moves applied afterwards. nodes
// are the commits of the batch: the set of a single one may know the hash of a single key.
func (t *memtables) insert(seq uint64, ops []btree.Op, bytesOfOps int64, nodes []*commitNode) {
	if hash, ok := writeset.OnlyHash(nodes[0].Value.set); ok && len(ops) == 1 && len(nodes) == 1 {
		t.active.Insert(&ops[0], hash, seq)
	} else {
		for i := range ops {
			t.active.Insert(&ops[i], writeset.HashKey(ops[i].Key), seq)
		}
	}
	t.active.Show()
	t.bytes += bytesOfOps
}

// copyOps copies the keys and values of ops into the memory of the active table.
func (t *memtables) copyOps(ops []btree.Op) {
	for i := range ops {
		ops[i].Key, ops[i].Value = t.active.Copies.CopyBoth(ops[i].Key, ops[i].Value)
	}
}

// list returns the tables of a view, newest first.
func (t *memtables) list() []*overlay.Memtable {
	all := make([]*overlay.Memtable, 1, 2)
	all[0] = t.active
	if m := t.merge.Load(); m != nil {
		all = append(all, m.table)
	}
	if r := t.redo.Load(); r != nil {
		all = append(all, r.steps[0].Memtable)
	}
	return all
}

// turn returns an empty table, one that was used before if there is one.
func (t *memtables) turn() *overlay.Memtable {
	if n := len(t.spare); n > 0 {
		m := t.spare[n-1]
		t.spare = t.spare[:n-1]
		return m
	}
	return overlay.NewMemtable()
}

// lacksNothing reports whether the tree has all commits.
func (t *memtables) lacksNothing() bool { return t.rest() == 0 && !t.merging() && t.redo.Load() == nil }

// merged notes that a version of the tree has all commits up to base. It is called before the view of that version is
// published.
func (t *memtables) merged(tree, base uint64) {
	n := t.active.Upto(base)
	if n < t.active.Len() {
		for ; t.from < n; t.from++ {
			op := t.active.Op(t.from)
			t.bytes -= int64(len(op.Key) + len(op.Value))
		}
		return
	}
	t.from, t.bytes = n, 0
	if n >= turnEntries || t.active.Bytes() >= turnBytes {
		t.retire(t.active, tree)
		t.active, t.from = t.turn(), 0
	}
}

// retire gives up a table that no view of the given version of the tree, or of a later one, has.
func (t *memtables) retire(m *overlay.Memtable, tree uint64) {
	t.retired = append(t.retired, retiredTable{m, tree})
	if n := len(t.retired) - keptRetired; n > 0 {
		t.retired[n-1].table = nil
	}
}

// reclaim takes back the retired tables that no reader has: no reader is registered below the horizon.
func (t *memtables) reclaim(horizon uint64) {
	n := 0
	for ; n < len(t.retired) && t.retired[n].tree <= horizon; n++ {
		if m := t.retired[n].table; m != nil && m.Len() <= mostEntries && len(t.spare) < spareTables {
			m.Reset()
			t.spare = append(t.spare, m)
		}
	}
	t.retired = slices.Delete(t.retired, 0, n)
}

// lacking returns how many entries the tree lacks, with those of the merge under way, and the bytes of their keys and
// values.
func (t *memtables) lacking() (entries, bytes int64) {
	entries, bytes = int64(t.active.Len()-t.from), t.bytes
	if m := t.merge.Load(); m != nil {
		entries, bytes = entries+int64(m.table.Len()), bytes+m.bytes
	}
	return entries, bytes
}

// merging reports whether a background merge is under way.
func (t *memtables) merging() bool { return t.merge.Load() != nil }

// rest returns how many entries no merge has taken yet.
func (t *memtables) rest() int { return t.active.Len() - t.from }

// inOrder reports whether the entries that no merge has taken yet are those of a load in key order: they are many,
// ascend, and come from more than one batch. The keys of a single batch always ascend.
func (t *memtables) inOrder() bool {
	return t.rest() >= mostAscending && t.active.Ascends() && t.active.Seq(t.from) != t.active.Seq(t.active.Len()-1)
}

// keys returns about how many distinct keys the entries have that no merge has taken yet.
func (t *memtables) keys() int { return min(t.active.Keys(), t.rest()) }

// lags reports whether commits are visible that the tree does not have yet.
func (t *tree) lags() bool { return t.readers.views.newest.Load().Base < t.marks.applied.Load() }

// merge brings everything that the tree lacks into it. Token held.
func (t *tree) merge() error {
	tables := &t.tables
	t.logFirst()
	t.finishMerge()
	if err := t.Failed(); err != nil {
		return err
	}
	if r := tables.redo.Load(); r != nil {
		if err := r.merge(r); err != nil {
			return err
		}
	}
	return t.mergeUpto(tables.active.Len())
}

// mergeAll is merge for a caller without the token.
func (t *tree) mergeAll() error { return t.withMerged(t.Failed) }

// mergeDurable merges the durable entries in Durable mode; in other modes, and while redo of Open is left, it is
// merge. Token held.
func (t *tree) mergeDurable() error {
	if t.opts.Durability != Durable || t.tables.redo.Load() != nil {
		return t.merge()
	}
	t.finishMerge()
	if err := t.Failed(); err != nil {
		return err
	}
	to := t.tables.active.Upto(t.marks.durable.Load())
	if to <= t.tables.from || !t.numbered(to) { // else with the next batch
		return nil
	}
	return t.mergeUpto(to)
}

// nextTree returns the number of the version of the tree that will have all commits up to base. That is base, unless
// background work has made a version with a higher number since that commit: then it is the next Seq, which no commit
// has. Token held, between two batches.
func (t *tree) nextTree(base uint64) uint64 {
	if base > t.pages.Seq() {
		return base
	}
	next := t.marks.applied.Load() + 1
	t.marks.show(next)
	t.log.noteLogged(next)
	t.marks.publishDurable()
	return next
}

// numbered reports whether the version of the tree that gets the entries below to of the active table needs no Seq of
// its own. Such a version may be made while a batch has its Seq and is not shown yet.
func (t *tree) numbered(to int) bool { return t.tables.active.Seq(to-1) > t.pages.Seq() }

// mergeUpto merges the entries below to of the active table; to lies between two batches. Token held.
func (t *tree) mergeUpto(to int) error {
	tables := &t.tables
	if to <= tables.from {
		return nil
	}
	base := tables.active.Seq(to - 1)
	tree := t.nextTree(base)
	pages, records := t.pages.Begin(tree), t.records
	if err := tables.sorter.Sorted(tables.active, tables.from, to, pages.Drop, func(ops []btree.Op) error {
		r, err := btree.Apply(pages, override.Root, ops)
		records += r.Added
		return err
	}); err != nil {
		return t.store.Fail(err)
	}
	tables.forgetLarge(to - tables.from)
	t.merged(tree, base, records)
	t.measure()
	t.room.rebalance(0)
	return nil
}

// forgetLarge frees the memory in which that number of entries was sorted, if they were those of a large transaction
// or of a load. Otherwise it would be kept for good.
func (t *memtables) forgetLarge(entries int) {
	if entries > 2*mostEntries {
		t.sorter = overlay.Sorter{}
	}
}

// lackingPages bounds the pages that merging would make dirty.
func (t *tree) lackingPages() int64 {
	entries, size := t.tables.lacking()
	if entries == 0 {
		return 0
	}
	return t.changedPages(entries, size)
}
