// Package event carries what happens inside an engine to a function of its user's, without the engine waiting for that function.
package event

import "time"

// Kind says what has happened.
type Kind uint8

// The kinds, with what the fields of an Event mean beyond Time. Fields that are not named are zero.
const (
	Open          Kind = iota // the database is open; Took: all of Open
	Recovery                  // the log was read. Took: that and its redo; Count: records redone; Dropped: a commit cut short was dropped
	Flush                     // dirty pages were written. Took; Bytes: written, those of commits beside it included
	Checkpoint                // Took; Bytes: as for Flush
	Clean                     // live pages were moved out of segments where little lives. Took; Count: pages
	SlowSync                  // a sync took SlowSyncTime or longer. Took
	ConflictStorm             // more commits have failed with a conflict than not, and ConflictsInStorm or more. Took: in that time; Count: conflicts
	OldSnapshot               // a transaction open for a minute or longer holds space. Took: its age; Bytes: held; Began
	SnapshotEnded             // a transaction older than MaxSnapshotAge has lost its snapshot. Took: its age; Bytes: held; Began
	Background                // background work has failed and will be tried again. What; Err
	Corruption                // damage was met. Err
	Poisoned                  // a write or a sync has failed: no writes from here on. Err
	Close                     // the database is closed. Err: what Close returned

	Kinds // how many there are
)

// Limits of what counts as worth telling.
const (
	SlowSyncTime     = 500 * time.Millisecond
	ConflictsInStorm = 100 // within a second or a little more
)

// Event is one thing that has happened. Which of the fields are set depends on the kind.
type Event struct {
	Kind    Kind
	Time    time.Time // when it was over
	Took    time.Duration
	Count   int64
	Bytes   int64
	What    string
	Began   string // stack of the transaction's beginning, if that is traced
	Dropped bool
	Err     error
	Skipped uint64 // events of the kind that were left out since the last one that was not
}
