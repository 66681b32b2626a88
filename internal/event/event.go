// Package event delivers events of an engine to a function of its user. The engine never waits for that
// function.
package event

import "time"

// Kind says what has happened.
type Kind uint8

// The kinds. Each comment explains the fields of an Event that the kind sets besides Kind, Time and Skipped.
// Other fields are zero.
const (
	Open          Kind = iota // the database is open. Took: duration of Open
	Recovery                  // the log was read. Took: time for reading and redoing it; Count: records redone; Dropped: an incomplete commit was dropped
	Flush                     // dirty pages were written. Took; Bytes: written, including those of concurrent commits
	Checkpoint                // a checkpoint was written. Took; Bytes: as for Flush
	Clean                     // live pages were moved out of segments with few live pages. Took; Count: pages
	SlowSync                  // a sync took SlowSyncTime or longer. Took
	ConflictStorm             // at least half of the commits have failed with a conflict, ConflictsInStorm or more a second. Took: the time; Count: conflicts
	OldSnapshot               // a transaction open for a minute or longer holds space. Took: its age; Bytes: held; Began
	SnapshotEnded             // a transaction older than MaxSnapshotAge has lost its snapshot. Took: its age; Bytes: held; Began
	Background                // background work has failed and will be tried again. What; Err
	Corruption                // damage was found. Err
	Poisoned                  // a write or a sync has failed: no more writes. Err
	Close                     // the database is closed. Err: what Close returned

	Kinds // number of kinds
)

// Thresholds of events.
const (
	SlowSyncTime     = 500 * time.Millisecond
	ConflictsInStorm = 100 // a second, on average of a window of at least a second
)

// Event is one thing that has happened. Which fields are set depends on the kind.
type Event struct {
	Kind    Kind
	Time    time.Time // when it was over
	Took    time.Duration
	Count   int64
	Bytes   int64
	What    string
	Began   string // stack where the transaction began, if that is traced
	Dropped bool
	Err     error
	Skipped uint64 // events of this kind dropped since the last one that was delivered
}
