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

// A commit is visible before the tree has it: its batch is logged and inserted into the active memtable, and readers find it there. Merging is
// background work: it brings the entries of many batches into the tree in one go, so that each leaf is visited once, and no versions are made
// that nobody could have read. No reader waits for it, or has anything merged.
//
// Invariants:
//
//  1. The newest view's Base <= applied: the tree has every commit up to Base. Those from there to applied are in the memtables.
//  2. Entries stay as they are until nobody reads their table: see 3. Keys and values of small batches are in the table's own memory, those of
//     others in their write sets, which are not used again before.
//  3. A table whose entries the tree has retires with the view of that tree, at its Seq m: readers registered at m or above do not have it. It
//     is used again once the horizon has reached m.
//  4. Only what is durable is merged, where commits are synced. So no View needs an older tree than the newest.
//  5. What depends on a tree with all commits takes the token by withMerged, which merges first: what logs values again, as redo of an older value
//     must not follow that of a newer one, and most flushes, whose base is the end of the log then. What is committed while a flush goes on is above
//     its base. Those of a load may have a base that lies further back: the tree has all commits up to that and none above it (tree.exact). Folds,
//     checkpoints and the like take the token by withTree: the tree that there is will do.
//
// An error of a merge poisons the store. What is committed stays readable.
type memtables struct {
	redo  atomic.Pointer[redoTable]       // what Open has left to merge, before all else; nil for none. Read by anyone, written by the token holder
	merge atomic.Pointer[backgroundMerge] // the one under way, if any; read by anyone, written by the token holder

	// The rest belongs to the token holder.
	active *overlay.Memtable
	from   int            // of its entries: the first that the tree lacks
	bytes  int64          // of keys and values that the tree lacks, of those of the active table
	sorter overlay.Sorter // of the merge under way, if there is one

	retired []retiredTable // the oldest first
	spare   []*overlay.Memtable
	freed   uint64 // no reader has entries up to this Seq

	noBackground   int   // how many are about to need the tree: no background merge begins
	backgroundFrom int   // entries that are merged in the background at least; never changed
	worth          int64 // bytes of keys and values that the active table should have by then: see late
}

// retiredTable is a table that readers registered below a version of the tree may have.
type retiredTable struct {
	table *overlay.Memtable // nil: left to the collector
	tree  uint64
}

const (
	mostEntries   = 192 << 10 // that the tree may lack; the more, the fewer visits of leaves,
	mostAscending = 1 << 10   // but keys that ascend come to each leaf once anyway: little enough for the processor's nearest caches
	entryLeaf     = 2560      // bytes of the version of a leaf: each entry may make one, as far as there are leaves
	entriesSpare  = 40 << 20  // of MemoryLimit, of the rest of which entries may take half and such versions half, or entries all where there are no versions; with a small one each an eighth of it all

	splitBytes = 1800 // of keys and values that make a leaf more: half a page

	copyBytes = logstore.BodySize // of the keys and values of a batch, up to which they are copied: see logOps. All batches that may share a page

	// deferOps is the least size of a synced batch that is left unmerged for longer: smaller ones are merged while the next one is synced. Bulk
	// loads are larger, and gain.
	deferOps = 256

	turnEntries = 1 << 10 // of a table that the tree has all of, from which on another one takes its place,
	turnBytes   = 1 << 18 // or from this many bytes of keys and values
	spareTables = 2       // none of which has had more than mostEntries: that memory would stay behind a load
	keptRetired = 4       // tables; readers have the others to themselves
)

// insert adds the ops of a batch to the active table. Token held, who moves applied next.
func (t *memtables) insert(seq uint64, ops []btree.Op, bytesOfOps int64) {
	for i := range ops {
		t.active.Insert(&ops[i], writeset.HashKey(ops[i].Key), seq)
	}
	t.active.Show()
	t.bytes += bytesOfOps
}

// list returns the tables that a view shows, the newest first.
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

// turn returns an empty table.
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

// merged notes that a version of the tree has all commits up to base, before the view says so.
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

// retire gives up a table that is in no view of a version of the tree from the given one on.
func (t *memtables) retire(m *overlay.Memtable, tree uint64) {
	t.retired = append(t.retired, retiredTable{m, tree})
	if n := len(t.retired) - keptRetired; n > 0 {
		t.retired[n-1].table = nil
	}
}

// reclaim takes back the tables that no reader has: none is registered below the horizon.
func (t *memtables) reclaim(horizon uint64) {
	n := 0
	for ; n < len(t.retired) && t.retired[n].tree <= horizon; n++ {
		t.freed = t.retired[n].tree
		if m := t.retired[n].table; m != nil && m.Len() <= mostEntries && len(t.spare) < spareTables {
			m.Reset()
			t.spare = append(t.spare, m)
		}
	}
	t.retired = slices.Delete(t.retired, 0, n)
}

// lacking returns how many entries the tree lacks, those of the merge under way too, and the bytes of their keys and values.
func (t *memtables) lacking() (entries, bytes int64) {
	entries, bytes = int64(t.active.Len()-t.from), t.bytes
	if m := t.merge.Load(); m != nil {
		entries, bytes = entries+int64(m.table.Len()), bytes+m.bytes
	}
	return entries, bytes
}

// merging reports whether there is a merge under way.
func (t *memtables) merging() bool { return t.merge.Load() != nil }

// rest returns how many entries are in no merge yet.
func (t *memtables) rest() int { return t.active.Len() - t.from }

// inOrder reports whether the entries that are in no merge yet are many of a load in order: of one batch alone the keys ascend in any case.
func (t *memtables) inOrder() bool {
	return t.rest() >= mostAscending && t.active.Ascends() && t.active.Seq(t.from) != t.active.Seq(t.active.Len()-1)
}

// keys returns how many keys the entries have that are in no merge yet, about.
func (t *memtables) keys() int { return min(t.active.Keys(), t.rest()) }

// Pending reports whether commits are visible that the tree does not have yet.
func (t *tree) lags() bool { return t.readers.views.newest.Load().Base < t.marks.applied.Load() }

// merge brings what the tree lacks into it. Token held.
func (t *tree) merge() error {
	tables := &t.tables
	t.logFirst()
	t.settleMerge()
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

// mergeAll is merge for who does not have the token.
func (t *tree) mergeAll() error { return t.withMerged(t.Failed) }

// mergeDurable is merge of what is durable, where commits are synced. Token held.
func (t *tree) mergeDurable() error {
	if t.opts.Durability != Durable || t.tables.redo.Load() != nil {
		return t.merge()
	}
	t.settleMerge()
	if err := t.Failed(); err != nil {
		return err
	}
	to := t.tables.active.Upto(t.marks.durable.Load())
	if to <= t.tables.from || !t.numbered(to) { // then behind the next batch
		return nil
	}
	return t.mergeUpto(to)
}

// nextTree returns the number of the version of the tree that gets all commits up to base: base, unless background work has made one of a higher
// number since that commit. Then it is the next Seq, and no commit has that. Token held, between two batches.
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

// numbered reports whether the version of the tree that gets the first entries of the active table needs no Seq of its own. Then it may be made
// while a batch has its Seq and is not shown yet.
func (t *tree) numbered(to int) bool { return t.tables.active.Seq(to-1) > t.pages.Seq() }

// mergeUpto merges the entries of the active table up to the given number, which is between two batches.
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

// forgetLarge lets go of the memory in which that number of entries was sorted, if they were those of a large transaction, or of a load: it would stay
// behind that for good.
func (t *memtables) forgetLarge(entries int) {
	if entries > 2*mostEntries {
		t.sorter = overlay.Sorter{}
	}
}

// lackingPages bounds the pages that merging makes dirty.
func (t *tree) lackingPages() int64 {
	entries, size := t.tables.lacking()
	if entries == 0 {
		return 0
	}
	return t.changedPages(entries, size)
}
