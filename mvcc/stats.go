package mvcc

import (
	"runtime/debug"
	"time"

	"flashdbm/lockfree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// Stats describes an engine at a moment.
type Stats struct {
	Records           int64 // those of commits that are in memtables are not counted yet if they are many
	Space             logstore.SpaceStats
	Log               logstore.Counters
	Pages             override.Stats
	DirtyPages        int64 // of the tree, as of a batch of commits ago or a few
	MemoryBytes       int64 // of versions, likewise
	Commits           uint64
	PutBytes          uint64 // of the keys and values of those commits
	Conflicts         uint64
	DelayedCommits    uint64        // that waited because there was too much redo,
	DelayTime         time.Duration // for so long, all together
	Checkpoints       uint64
	RedoBytes         int64  // of record groups that an open would redo
	UnsyncedBytes     int64  // of the log that the last sync did not cover
	Cleaned           uint64 // pages moved by the cleaner
	Layers            uint64 // parts of write sets that have left memory
	Collapsed         uint64 // times that such were written anew without what was overwritten
	OpenSnapshots     int
	OldestSnapshotAge time.Duration
	OldestBegan       string // where, if that is traced
	HeldBytes         int64  // of the file, dead and kept for snapshots
	Failed            error  // what has poisoned the engine, or nil
	Recovery          RecoveryStats
}

// Checkpoints returns how many checkpoints there were since the engine was opened.
func (e *Engine) Checkpoints() uint64 { return e.checkpoints.done.Load() }

// Stats returns the present state. It takes no lock under which anybody waits for a device or for another goroutine: not the token, nor
// checkpoints.mu, growing or syncing. So it returns where all of those hang.
func (e *Engine) Stats() (Stats, error) {
	slot, snap, err := e.readers.look(lockfree.Slot{}, e.marks.viewAt)
	if err != nil {
		return Stats{}, err
	}
	defer slot.Release()
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

// countedEntries is how many entries of memtables Stats counts: some milliseconds. More are left out.
const countedEntries = 1 << 12

// knownRecords returns the number of records of a snapshot, or of its tree if there is much above that, or a page cannot be read.
func (f *file) knownRecords(s *snapshot) (n int64) {
	tree := max(s.view.Records, 0) // of a damaged file
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

// Room returns the bytes of the file that commits may still reserve.
func (e *Engine) Room() int64 {
	if e.opts.Store.ReadOnly || e.Failed() != nil || e.readers.closed.Load() {
		return 0
	}
	return e.store.PutRoom() * logstore.PageSize
}

// Segments describes the segments of the file, and returns the size of one in bytes.
func (e *Engine) Segments() ([]logstore.Segment, int64) {
	return e.store.Segments(), int64(e.store.SegmentPages()) * logstore.PageSize
}

// Account says what the file consists of.
func (e *Engine) Account() logstore.Account { return e.store.Account() }
