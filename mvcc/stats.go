package mvcc

import (
	"runtime/debug"
	"time"

	"flashdbm/logstore"
	"flashdbm/override"
)

// Stats describes an engine at a moment.
type Stats struct {
	Records           int64 // without commits that are in memtables, if these are many
	Space             logstore.SpaceStats
	Log               logstore.Counters
	Pages             override.Stats
	DirtyPages        int64 // of the tree, as of one of the last batches of commits
	MemoryBytes       int64 // of versions, as of one of the last batches of commits
	Commits           uint64
	PutBytes          uint64 // bytes of the keys and values of those commits
	Conflicts         uint64
	DelayedCommits    uint64        // commits that waited because redo was too long,
	DelayTime         time.Duration // and how long they waited in all
	Checkpoints       uint64
	RedoBytes         int64  // bytes of record groups that an Open would redo
	UnsyncedBytes     int64  // bytes of the log that the last sync did not cover
	Cleaned           uint64 // pages moved by the cleaner
	Layers            uint64 // parts of write sets that were spilled
	Collapsed         uint64 // times that such parts were rewritten without what was overwritten
	OpenSnapshots     int
	OldestSnapshotAge time.Duration
	OldestBegan       string // where the oldest snapshot began, if that is traced
	HeldBytes         int64  // bytes of the file that are dead and kept for snapshots
	Failed            error  // the error that has poisoned the engine, or nil
	Recovery          RecoveryStats
}

// Checkpoints returns the number of checkpoints since the engine was opened.
func (e *Engine) Checkpoints() uint64 { return e.checkpoints.done.Load() }

// Stats returns the present state. It takes no lock under which anybody waits for a device or another goroutine: not
// the token, checkpoints.mu, growing or syncing. So it returns even if all of those hang.
func (e *Engine) Stats() (Stats, error) {
	var reader pinned
	if err := e.readers.look(&reader, e.marks.viewAt); err != nil {
		return Stats{}, err
	}
	defer reader.slot.Release()
	snap := reader.snap
	s := Stats{
		Space: e.store.SpaceStats(), Log: e.store.Counters(), Pages: e.pages.Stats(),
		DirtyPages: e.known.dirty.Load(), MemoryBytes: e.tree.memory.Load(),
		Commits: e.known.commits.Load(), PutBytes: e.known.put.Load(), Conflicts: e.readers.conflicts.Load(),
		DelayedCommits: e.known.delayed.Load(), DelayTime: time.Duration(e.known.delay.Load()),
		Checkpoints: e.checkpoints.done.Load(), RedoBytes: e.log.bytes.Since(), UnsyncedBytes: e.store.UnsyncedPages() * logstore.PageSize,
		Cleaned: e.flusher.moved.Load(), Layers: e.tree.sets.budget.Layers(), Collapsed: e.tree.sets.budget.Collapsed(),
		OpenSnapshots: e.readers.registry.Count() - 1, HeldBytes: e.store.HeldBytes(),
		Failed: e.Failed(), Recovery: *e.known.recovery.Load(),
	}
	s.Records = e.knownRecords(&snap)
	now := time.Now().UnixNano()
	if oldest, ok := e.readers.oldest(now); ok && oldest.Since() != 0 {
		s.OldestSnapshotAge = time.Duration(now - oldest.Since())
	}
	if l := e.readers.leases.Oldest(); l != nil {
		s.OldestBegan = l.Where()
	}
	return s, nil
}

// countedEntries is the most entries of memtables that Stats counts: counting them takes some milliseconds.
const countedEntries = 1 << 12

// knownRecords returns the number of records of a snapshot, or of its tree if the memtables have much, or a page
// cannot be read.
func (f *file) knownRecords(s *snapshot) (n int64) {
	tree := max(s.view.Records, 0) // a damaged file may have a negative count
	if s.view.Lacking(s.at) > countedEntries {
		return tree
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var err error
	func() {
		defer f.guard(&err)
		n, err = s.len()
	}()
	if err != nil {
		return tree
	}
	return n
}

// Room returns how many bytes of the file commits may still reserve.
func (e *Engine) Room() int64 {
	if e.opts.Store.ReadOnly || e.Failed() != nil || e.readers.closed.Load() {
		return 0
	}
	return e.store.PutRoom() * logstore.PageSize
}

// Segments describes the segments of the file, and returns the size of a segment in bytes.
func (e *Engine) Segments() ([]logstore.Segment, int64) {
	return e.store.Segments(), int64(e.store.SegmentPages()) * logstore.PageSize
}

// Account says what the file consists of.
func (e *Engine) Account() logstore.Account { return e.store.Account() }
