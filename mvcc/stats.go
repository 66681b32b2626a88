package mvcc

import (
	"time"

	"flashdbm/logstore"
	"flashdbm/override"
)

// Stats describes an engine at a moment.
type Stats struct {
	Records           int64
	Space             logstore.SpaceStats
	Log               logstore.Counters
	Pages             override.Stats
	Commits           uint64
	Conflicts         uint64
	Checkpoints       uint64
	RedoBytes         int64  // of record groups that an open would redo
	Cleaned           uint64 // pages moved by the cleaner
	Layers            uint64 // parts of write sets that have left memory
	Collapsed         uint64 // times that such were written anew without what was overwritten
	OpenSnapshots     int
	OldestSnapshotAge time.Duration
	OldestBegan       string // where, if that is traced
	HeldBytes         int64  // of the file, dead and kept for snapshots
	Recovery          RecoveryStats
}

// Checkpoints returns how many checkpoints there were since the engine was opened.
func (e *Engine) Checkpoints() uint64 { return e.keeper.checkpoints.Load() }

// Stats returns the present state. It takes the baton for a moment.
func (e *Engine) Stats() (Stats, error) {
	slot, err := e.enter(e.view)
	if err != nil {
		return Stats{}, err
	}
	defer slot.Release()
	s := Stats{
		Space: e.store.SpaceStats(), Log: e.store.Counters(), Conflicts: e.conflicts.Load(),
		Checkpoints: e.keeper.checkpoints.Load(), Cleaned: e.cleaned.Load(), Layers: e.sets.budget.Layers(), Collapsed: e.sets.budget.Collapsed(),
		OpenSnapshots: e.registry.Count() - 1,
	}
	if oldest, ok := e.registry.Oldest(); ok && oldest.Since() != 0 {
		s.OldestSnapshotAge = time.Duration(time.Now().UnixNano() - oldest.Since())
	}
	if l := e.leases.Oldest(); l != nil {
		s.OldestBegan = l.Where()
	}
	err = e.withBaton(func() error {
		if e.Failed() == nil {
			e.reclaimAll()
		}
		s.Commits, s.HeldBytes = e.commits, e.store.HeldBytes()
		s.Pages, s.RedoBytes, s.Recovery = e.pages.Stats(), e.redoBytes.Since(), e.recovery
		if s.Records = e.counts.At(slot.Seq()); s.Records < 0 {
			s.Records = e.records
		}
		return nil
	})
	return s, err
}
