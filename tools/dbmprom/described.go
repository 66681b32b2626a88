package dbmprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"flashdbm/dbm"
)

// described are the metrics that come from dbm.Stats, in the order of its fields. Units are those of Prometheus: bytes, seconds.
var described = []description{
	gauge("records", "Records in the tree.", func(s *dbm.Stats) float64 { return float64(s.Records) }),
	gauge("file_bytes", "Bytes that the file takes of the disk.", func(s *dbm.Stats) float64 { return float64(s.FileBytes) }),
	gauge("live_bytes", "Bytes of pages that the newest tree uses.", func(s *dbm.Stats) float64 { return float64(s.LiveBytes) }),
	gauge("free_bytes", "Bytes that can be written without growing the file.", func(s *dbm.Stats) float64 { return float64(s.FreeBytes) }),
	gauge("table_entries", "Entries of the translation table.", func(s *dbm.Stats) float64 { return float64(s.TableEntries) }),
	gauge("memory_bytes", "Bytes of page versions in memory, about.", func(s *dbm.Stats) float64 { return float64(s.MemoryBytes) }),
	gauge("dirty_bytes", "Bytes of changed pages that no flush has written yet.", func(s *dbm.Stats) float64 { return float64(s.DirtyBytes) }),
	gauge("redo_bytes", "Bytes of log that an open would have to redo after a kill.", func(s *dbm.Stats) float64 { return float64(s.RedoBytes) }),
	gauge("unsynced_bytes", "Bytes of log written since the last sync began.", func(s *dbm.Stats) float64 { return float64(s.UnsyncedBytes) }),

	counter("commits_total", "Commits.", func(s *dbm.Stats) float64 { return float64(s.Commits) }),
	counter("put_bytes_total", "Bytes of the keys and values that commits have put.", func(s *dbm.Stats) float64 { return float64(s.PutBytes) }),
	counter("conflicts_total", "Commits that failed because another transaction had written the same.", func(s *dbm.Stats) float64 { return float64(s.Conflicts) }),
	counter("delayed_commits_total", "Commits that waited because flushes did not keep up.", func(s *dbm.Stats) float64 { return float64(s.DelayedCommits) }),
	counter("commit_delay_seconds_total", "Time that those commits waited.", func(s *dbm.Stats) float64 { return s.DelayTime.Seconds() }),
	{"groups_written_total", "Groups appended to the log.", prometheus.CounterValue, "kind", []labelled{
		{"record", func(s *dbm.Stats) float64 { return float64(s.RecordGroups) }},
		{"page", func(s *dbm.Stats) float64 { return float64(s.PageGroups) }},
		{"flush", func(s *dbm.Stats) float64 { return float64(s.FlushGroups) }},
		{"checkpoint", func(s *dbm.Stats) float64 { return float64(s.CheckpointGroups) }},
	}},
	counter("written_bytes_total", "Bytes appended to the log.", func(s *dbm.Stats) float64 { return float64(s.PagesWritten) * pageBytes }),
	counter("returned_bytes_total", "Bytes of the file given back to the file system.", func(s *dbm.Stats) float64 { return float64(s.ReturnedBytes) }),
	counter("syncs_total", "Syncs of the file.", func(s *dbm.Stats) float64 { return float64(s.Syncs) }),
	counter("sync_seconds_total", "Time that syncs took.", func(s *dbm.Stats) float64 { return s.SyncTime.Seconds() }),
	counter("flushes_total", "Flushes.", func(s *dbm.Stats) float64 { return float64(s.Flushes) }),
	counter("folds_total", "Inner nodes rewritten to name their children by address.", func(s *dbm.Stats) float64 { return float64(s.Folds) }),
	counter("checkpoints_total", "Checkpoints.", func(s *dbm.Stats) float64 { return float64(s.Checkpoints) }),
	counter("cleaned_bytes_total", "Bytes of live pages moved, so that the space around them is used again.", func(s *dbm.Stats) float64 { return float64(s.PagesCleaned) * pageBytes }),

	gauge("open_snapshots", "Transactions and snapshots that are open.", func(s *dbm.Stats) float64 { return float64(s.OpenSnapshots) }),
	gauge("oldest_snapshot_age_seconds", "Age of the oldest of them.", func(s *dbm.Stats) float64 { return s.OldestSnapshotAge.Seconds() }),
	gauge("held_bytes", "Bytes of the file that are dead and kept for open snapshots only.", func(s *dbm.Stats) float64 { return float64(s.HeldBytes) }),
	counter("events_skipped_total", "Events that were not told, because they came too fast.", func(s *dbm.Stats) float64 { return float64(s.EventsSkipped) }),
	gauge("failed", "1 if a write or a sync has failed and the handle refuses writes.", func(s *dbm.Stats) float64 { return boolean(s.Failed != "") }),

	gauge("recovery_seconds", "Time that opening the database took.", func(s *dbm.Stats) float64 { return s.Recovery.Time.Seconds() }),
	gauge("recovery_groups", "Groups of the log that were read when it was opened.", func(s *dbm.Stats) float64 { return float64(s.Recovery.Groups) }),
	gauge("recovery_records", "Records that were redone when it was opened.", func(s *dbm.Stats) float64 { return float64(s.Recovery.Records) }),
	gauge("recovery_dropped", "1 if a commit cut short at the end of the log was dropped when it was opened.", func(s *dbm.Stats) float64 { return boolean(s.Recovery.Dropped) }),
}

const pageBytes = 4096

// description is a metric with one value, or with one for each value of a label.
type description struct {
	name, help string // the name is without flashdbm_
	kind       prometheus.ValueType
	label      string // empty for one value
	values     []labelled
}

type labelled struct {
	label string
	of    func(s *dbm.Stats) float64
}

func gauge(name, help string, of func(s *dbm.Stats) float64) description {
	return description{name, help, prometheus.GaugeValue, "", []labelled{{"", of}}}
}

func counter(name, help string, of func(s *dbm.Stats) float64) description {
	return description{name, help, prometheus.CounterValue, "", []labelled{{"", of}}}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
