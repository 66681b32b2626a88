package dbm

import (
	"time"

	"flashdbm/logstore"
	"flashdbm/mvcc"
)

// Stats describes a database at about one moment: the numbers are read one after the other while commits go on.
// Counters count from Open, sizes are in bytes, and durations are in nanoseconds in JSON.
type Stats struct {
	// Records counts all keyspaces, with the records of their catalog, of dropped keyspaces and of the index of
	// expiry times. If thousands of commits wait to be merged into the tree, these are not counted. DB.Len is
	// exact.
	Records   int64 `json:"records"`
	FileBytes int64 `json:"file_bytes"` // space that the file takes on disk
	LiveBytes int64 `json:"live_bytes"` // pages that the newest tree uses
	FreeBytes int64 `json:"free_bytes"` // can be written without making the file larger

	TableEntries  int64 `json:"table_entries"`  // entries of the translation table
	MemoryBytes   int64 `json:"memory_bytes"`   // page versions in memory, and roughly the structures that belong to them
	DirtyBytes    int64 `json:"dirty_bytes"`    // changed pages that no flush has written yet
	RedoBytes     int64 `json:"redo_bytes"`     // log that the next Open would have to redo if the process were killed now
	UnsyncedBytes int64 `json:"unsynced_bytes"` // log written since the last sync began

	Commits          uint64        `json:"commits"`
	PutBytes         uint64        `json:"put_bytes"` // keys and values put by these commits, and keys deleted
	Conflicts        uint64        `json:"conflicts"`
	DelayedCommits   uint64        `json:"delayed_commits"` // commits that had to wait because flushes did not keep up with writes
	DelayTime        time.Duration `json:"delay_time"`      // sum of these waits
	RecordGroups     uint64        `json:"record_groups"`
	PageGroups       uint64        `json:"page_groups"`
	FlushGroups      uint64        `json:"flush_groups"`
	CheckpointGroups uint64        `json:"checkpoint_groups"`
	PagesWritten     uint64        `json:"pages_written"`  // pages of 4,096 bytes appended to the log; their bytes divided by PutBytes are the write amplification
	ReturnedBytes    uint64        `json:"returned_bytes"` // bytes of the file returned to the file system
	Syncs            uint64        `json:"syncs"`
	SyncTime         time.Duration `json:"sync_time"` // sum of the times of all syncs
	Flushes          uint64        `json:"flushes"`
	Folds            uint64        `json:"folds"`
	Checkpoints      uint64        `json:"checkpoints"`
	PagesCleaned     uint64        `json:"pages_cleaned"` // pages moved so that their segments could be reused

	OpenSnapshots     int           `json:"open_snapshots"`
	OldestSnapshotAge time.Duration `json:"oldest_snapshot_age"`
	HeldBytes         int64         `json:"held_bytes"`                     // dead bytes of the file that are kept only for open snapshots
	OldestSnapshot    string        `json:"oldest_snapshot_from,omitempty"` // with Options.TraceSnapshots: the stack where it began, innermost frame first

	EventsSkipped uint64 `json:"events_skipped"` // events that Options.Events did not get, because they came too fast for it or exceeded their limit

	Failed string `json:"failed,omitempty"` // why the handle refuses writes (ErrFailed); empty if it does not

	Recovery Recovery `json:"recovery"`
}

// Recovery says what Open found.
type Recovery struct {
	Created bool          `json:"created"` // the file was new
	Groups  int           `json:"groups"`  // groups of the log that were read
	Records int64         `json:"records"` // records that were redone
	Dropped bool          `json:"dropped"` // an incomplete commit at the end of the log was dropped as a whole
	Time    time.Duration `json:"time"`    // duration of Open
	Locked  time.Time     `json:"locked"`  // when Open had the file's lock: no other process has written the file since. Zero with Options.Beside
}

// Stats returns the present state; after Close, the zero Stats. It takes some microseconds and a little more for
// each GiB of the file, or a few milliseconds if thousands of records wait to be merged into the tree. It takes no
// lock that a writer holds while it waits for the device, so it returns even while a sync hangs.
func (db *DB) Stats() Stats {
	if db.beside != nil {
		s, err := db.beside.Stats()
		if err != nil {
			return Stats{}
		}
		return fromEngine(s, db.events.Skipped())
	}
	s, err := db.engine.Stats()
	if err != nil {
		return Stats{}
	}
	return fromEngine(s, db.events.Skipped())
}

func fromEngine(s mvcc.Stats, skipped uint64) Stats {
	failed := ""
	if s.Failed != nil {
		failed = s.Failed.Error()
	}
	return Stats{
		Records: s.Records, FileBytes: s.Space.FileBytes, LiveBytes: s.Space.LiveBytes, FreeBytes: s.Space.FreeBytes,
		TableEntries: s.Pages.TableEntries, MemoryBytes: s.MemoryBytes,
		DirtyBytes: s.DirtyPages * logstore.PageSize, RedoBytes: s.RedoBytes, UnsyncedBytes: s.UnsyncedBytes,
		Commits: s.Commits, PutBytes: s.PutBytes, Conflicts: s.Conflicts, DelayedCommits: s.DelayedCommits, DelayTime: s.DelayTime,
		RecordGroups: s.Log.RecordGroups, PageGroups: s.Log.PageGroups, FlushGroups: s.Log.FlushGroups,
		CheckpointGroups: s.Log.CheckpointGroups, PagesWritten: s.Log.Pages, ReturnedBytes: s.Log.ReturnedBytes,
		Syncs: s.Log.Syncs, SyncTime: s.Log.SyncTime,
		Flushes: s.Pages.Flushes, Folds: s.Pages.Folds, Checkpoints: s.Checkpoints, PagesCleaned: s.Cleaned,
		OpenSnapshots: s.OpenSnapshots, OldestSnapshotAge: s.OldestSnapshotAge, HeldBytes: s.HeldBytes,
		OldestSnapshot: s.OldestBegan, EventsSkipped: skipped, Failed: failed,
		Recovery: Recovery{s.Recovery.Created, s.Recovery.Groups, s.Recovery.Records, s.Recovery.DroppedTail, s.Recovery.Duration, s.Recovery.Locked},
	}
}
