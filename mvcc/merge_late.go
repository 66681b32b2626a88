package mvcc

import (
	"math"

	"flashdbm/internal/overlay"
)

// Each merge of a load in random order visits all leaves, and makes a new version of each; where it has a few records for a leaf that is full, the tree
// becomes twice as large. So a load is merged late: readers find the records in the memtables, and the log has them. The tree of a new file is made in one
// merge, when its first flush is due or memory asks for it; from then on a merge has a share of the redo that there is between two flushes of a leaf.
// Flushes of a load take the tree as the last merge has left it: see withBase.
//
// 1 M records of 16+100 bytes, 1,000 a transaction, Buffered, by turns on a busy machine: 2.2-2.6 → 0.8-0.9 µs of processor time a record, 450 → 190 MB written,
// the file at most 0.9-1.1 → 0.87 of its bound.

// late reports whether the tree may lack as many entries as there is memory for. But a file with a limit has room held for what the tree lacks, and
// cursors have to put the entries in order. Token held.
func (t *tree) late() bool {
	return t.tables.backgroundFrom < math.MaxInt && t.opts.BackgroundOps == 0 && !t.room.limited() && !t.tables.active.Ordered()
}

// worthMerging reports whether the active table should be merged in the background. It may grow to half of the memory that there is for entries, as the
// next one grows while it is merged, and to three quarters of what there is while the tree is empty: that merge takes least. Where commits are
// synced, small ones behind a load have the tree made up to date: their own merges would wait for it. Token held.
func (t *tree) worthMerging() bool {
	tables := &t.tables
	if t.opts.Durability == Durable && t.log.recent.ops < deferOps && t.manyWait() {
		return true
	}
	if tables.rest() < tables.backgroundFrom {
		return false
	}
	most := t.entriesLimit() / 2
	if t.records == 0 {
		most += most / 2
	}
	return !t.late() || tables.bytes >= tables.worth || entriesTake(int64(tables.rest()), tables.bytes) >= most || t.crowded()
}

// manyWait reports whether enough entries wait to be merged that this is better done in the background, by whoever needs it. Token held.
func (t *tree) manyWait() bool {
	return t.tables.backgroundFrom < math.MaxInt && t.tables.rest() >= min(t.tables.backgroundFrom, backgroundOps)
}

// crowded reports whether the memtables should be merged. Token held.
func (t *tree) crowded() bool {
	tables, limit := &t.tables, t.opts.MemoryLimit
	n, size := tables.lacking()
	if tables.redo.Load() != nil || tables.inOrder() || entriesTake(n, size) >= t.entriesLimit() {
		return true
	}
	if n >= mostEntries && !t.late() {
		return true
	}
	versions := max(limit/8, (limit-entriesSpare)/2)
	return n*entryLeaf >= versions && min(n, t.leaves())*entryLeaf >= versions
}

// entriesTake bounds the memory of entries with the given bytes of keys and values, which lie in sets that are not full.
func entriesTake(entries, bytes int64) int64 { return entries*overlay.EntryBytes + bytes + bytes/4 }

// entriesLimit returns what entries may take, those of the merge under way too.
func (t *tree) entriesLimit() int64 {
	limit := t.opts.MemoryLimit
	if t.records == 0 {
		return max(limit/8, limit-entriesSpare)
	}
	return max(limit/8, (limit-entriesSpare)/2)
}

// fresh estimates the bytes of records that the tree lacks and that replace none which it has, by what the last merge has found. Token held.
func (t *tree) fresh() int64 {
	entries, bytes := t.tables.lacking()
	if entries == 0 {
		return 0
	}
	keys, gain := t.tables.keys(), t.gain
	if m := t.tables.merge.Load(); m != nil {
		keys += m.keys
	}
	if t.records == 0 {
		gain = 1
	}
	return int64(float64(bytes) * float64(keys) / float64(entries) * gain)
}
