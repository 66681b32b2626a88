package mvcc

import (
	"math"

	"flashdbm/internal/overlay"
)

// A load in random order is merged late, because each of its merges visits all leaves and makes a new version of
// each; and where a merge has a few records for each full leaf, the leaves split and the tree becomes twice as large.
// Until the merge, readers find the records in the memtables, and the log has them. The tree of a new file is made in
// one merge, when its first flush is due or memory runs out. Later merges take a share of the redo that is written
// between two flushes of a leaf. Flushes during a load use the tree as the last merge left it: see withBase.
//
// 1 M records of 16+100 bytes, 1,000 per transaction, Buffered, old and new in alternating runs on a busy
// machine: 2.2-2.6 → 0.8-0.9 µs of processor time per record, 450 → 190 MB written, the file at most 0.9-1.1 →
// 0.87 of its bound.

// late reports whether the tree may lack as many entries as there is memory for. It is false in a file with a size
// limit, where room is reserved for what the tree lacks, and while cursors keep the table ordered, which costs them
// more with more entries. Token held.
func (t *tree) late() bool {
	return t.tables.backgroundFrom < math.MaxInt && t.opts.BackgroundOps == 0 && !t.room.limited() && !t.tables.active.Ordered()
}

// worthMerging reports whether the active table should be merged in the background. In a late merge the table may
// grow to half of the memory for entries, since the next table grows during the merge; while the tree is empty, to
// three quarters, since that merge takes least time. In Durable mode small commits that follow a load have the tree
// brought up to date at once: their own merges are deferred while many entries wait (mergeUnlessDeferred). Token
// held.
func (t *tree) worthMerging(crowded bool) bool {
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
	return !t.late() || tables.bytes >= tables.worth || entriesTake(int64(tables.rest()), tables.bytes) >= most || crowded
}

// manyWait reports whether so many entries wait that a background merge suits them better than one under the token.
// Token held.
func (t *tree) manyWait() bool {
	return t.tables.backgroundFrom < math.MaxInt && t.tables.rest() >= min(t.tables.backgroundFrom, backgroundOps)
}

// crowded reports whether the memtables have to be merged now. Token held.
func (t *tree) crowded() bool {
	tables, limit := &t.tables, t.opts.MemoryLimit
	n, size := tables.lacking()
	if few := limit / 8; n < mostAscending && n*entryLeaf < few && entriesTake(n, size) < few && tables.redo.Load() == nil {
		return false // as below, which asks for more; so it is after nearly all small batches
	}
	if tables.redo.Load() != nil || tables.inOrder() || entriesTake(n, size) >= t.entriesLimit() {
		return true
	}
	if n >= mostEntries && !t.late() {
		return true
	}
	versions := max(limit/8, (limit-entriesSpare)/2)
	return n*entryLeaf >= versions && min(n, t.leaves())*entryLeaf >= versions
}

// entriesTake bounds the memory of entries with the given bytes of keys and values. A quarter is added because the
// sets that hold them are not full.
func entriesTake(entries, bytes int64) int64 { return entries*overlay.EntryBytes + bytes + bytes/4 }

// entriesLimit returns how many bytes entries may take, those of the merge under way included.
func (t *tree) entriesLimit() int64 {
	limit := t.opts.MemoryLimit
	if t.records == 0 {
		return max(limit/8, limit-entriesSpare)
	}
	return max(limit/8, (limit-entriesSpare)/2)
}

// fresh estimates the bytes of those records that the tree lacks and that are new, not replacements: it assumes the
// share that the last merge has found. Token held.
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
