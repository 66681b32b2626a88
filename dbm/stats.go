package dbm

import (
	"time"

	"flashdbm/logstore"
	"flashdbm/mvcc"
)

// Stats describes a database at a moment, or nearly so: its numbers are read one after the other while others commit. Counters count
// since Open, bytes are bytes, and every time is a time.Duration, in nanoseconds in JSON.
type Stats struct {
	Records   int64 `json:"records"`    // of all keyspaces, with those of their catalog, of dropped ones and of the index of times; where thousands of commits wait to be merged into the tree, without these; DB.Len is exact
	FileBytes int64 `json:"file_bytes"` // that it takes of the disk
	LiveBytes int64 `json:"live_bytes"` // of pages that the newest tree uses
	FreeBytes int64 `json:"free_bytes"` // that can be written without growing the file

	TableEntries  int64 `json:"table_entries"`  // of the translation table
	MemoryBytes   int64 `json:"memory_bytes"`   // of page versions in memory, and roughly of what there is for them
	DirtyBytes    int64 `json:"dirty_bytes"`    // of pages that have changed and that no flush has written yet
	RedoBytes     int64 `json:"redo_bytes"`     // of the log: what the next open would have to redo, were the process killed now
	UnsyncedBytes int64 `json:"unsynced_bytes"` // of the log: written since the last sync began

	Commits          uint64        `json:"commits"`
	PutBytes         uint64        `json:"put_bytes"` // of the keys and values that these commits have put, and the keys that they have deleted
	Conflicts        uint64        `json:"conflicts"`
	DelayedCommits   uint64        `json:"delayed_commits"` // that had to wait because flushes do not keep up with what is written,
	DelayTime        time.Duration `json:"delay_time"`      // for so long, all of them together
	RecordGroups     uint64        `json:"record_groups"`
	PageGroups       uint64        `json:"page_groups"`
	FlushGroups      uint64        `json:"flush_groups"`
	CheckpointGroups uint64        `json:"checkpoint_groups"`
	PagesWritten     uint64        `json:"pages_written"`  // appended to the log, 4,096 bytes each: over PutBytes that is the write amplification
	ReturnedBytes    uint64        `json:"returned_bytes"` // of the file, given back to the file system
	Syncs            uint64        `json:"syncs"`
	SyncTime         time.Duration `json:"sync_time"` // that the syncs took, all together
	Flushes          uint64        `json:"flushes"`
	Folds            uint64        `json:"folds"`
	Checkpoints      uint64        `json:"checkpoints"`
	PagesCleaned     uint64        `json:"pages_cleaned"` // moved, so that the segments that they were in could be used again

	OpenSnapshots     int           `json:"open_snapshots"`
	OldestSnapshotAge time.Duration `json:"oldest_snapshot_age"`
	HeldBytes         int64         `json:"held_bytes"`                     // of the file: dead, and kept for open snapshots only
	OldestSnapshot    string        `json:"oldest_snapshot_from,omitempty"` // where it began, with Options.TraceSnapshots: a stack, innermost first

	EventsSkipped uint64 `json:"events_skipped"` // that Options.Events was not told of, because they came too fast for it or for their limit

	Failed string `json:"failed,omitempty"` // why the handle refuses writes (ErrFailed); empty as long as it does not

	Recovery Recovery `json:"recovery"`
}

// Recovery says what Open found.
type Recovery struct {
	Created bool          `json:"created"` // the file was new
	Groups  int           `json:"groups"`  // of the log that were read
	Records int64         `json:"records"` // that were redone
	Dropped bool          `json:"dropped"` // a commit cut short at the end of the log was dropped whole
	Time    time.Duration `json:"time"`    // that Open took
}

// Stats returns the present state; the zero Stats after Close. It takes some microseconds and some more for each GiB of the file, or a few
// milliseconds where thousands of records wait to be merged into the tree. It takes no lock under which a writer waits for its device: it
// returns while a sync hangs.
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
		Recovery: Recovery{s.Recovery.Created, s.Recovery.Groups, s.Recovery.Records, s.Recovery.DroppedTail, s.Recovery.Duration},
	}
}
