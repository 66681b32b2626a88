package dbm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"flashdbm/internal/event"
)

// EventKind says what has happened.
type EventKind uint8

// The kinds of events, each with the fields of Event that are set beside Kind, Path, Time and Skipped.
const (
	EventOpen          EventKind = iota // the database is open. Took: all of Open
	EventRecovery                       // the log of a file was read. Took; Count: records redone; Dropped. Redo of much may go on behind Open. Not with Options.Beside
	EventFlush                          // changed pages of the tree were written. Took; Bytes: of these pages
	EventCheckpoint                     // a checkpoint was written, and the next open reads less of the log. Took; Bytes
	EventClean                          // live pages were moved together, so that the space around them is used again. Took; Count: pages
	EventSlowSync                       // a sync of the file took half a second or longer. Took
	EventConflictStorm                  // in Took at least as many commits failed with ErrConflict as did not, 100 a second or more. Took; Count: conflicts
	EventOldSnapshot                    // a transaction that was begun a minute ago or earlier keeps dead space. Took: its age; Bytes: kept; Began
	EventSnapshotEnded                  // a transaction older than Options.MaxSnapshotAge gets ErrSnapshotTooOld. Took: its age; Bytes: kept; Began
	EventBackground                     // background work has failed; it is tried again, and nothing is lost. What; Err
	EventCorruption                     // damage was met, by a read, by background work or by Open. Err: is ErrCorrupt, and says where
	EventPoisoned                       // a write or a sync has failed: the handle refuses writes from here on. Err: is ErrFailed
	EventClose                          // the database is closed. Err: what Close has returned

	eventKinds
)

var eventNames = [eventKinds]string{
	"open", "recovery", "flush", "checkpoint", "clean", "slow sync", "conflict storm", "old snapshot", "snapshot ended", "background", "corruption",
	"poisoned", "close",
}

// String returns the kind in words, such as "slow sync".
func (k EventKind) String() string {
	if k >= eventKinds {
		return fmt.Sprintf("event %d", uint8(k))
	}
	return eventNames[k]
}

// Level returns how much the kind matters to an operator: Debug for what happens all the time, Warn for what should be looked at some day,
// Error for what needs somebody now. A recovery that has dropped a commit cut short is Warn, see Event.Level.
func (k EventKind) Level() slog.Level {
	switch k {
	case EventSlowSync, EventConflictStorm, EventOldSnapshot, EventSnapshotEnded, EventBackground:
		return slog.LevelWarn
	case EventCorruption, EventPoisoned:
		return slog.LevelError
	}
	return slog.LevelDebug
}

// Event is one thing that has happened to a database. Which fields are set depends on the kind; the others are zero.
type Event struct {
	Kind    EventKind
	Path    string    // of the database, as it was given to Open
	Time    time.Time // when it was over
	Took    time.Duration
	Count   int64
	Bytes   int64
	What    string // in words
	Began   string // of a transaction, with Options.TraceSnapshots: the stack of its beginning, innermost first
	Dropped bool   // a commit cut short at the end of the log was dropped whole
	Err     error
	Skipped uint64 // events of this kind that came too fast to be told, since the last one that was told
}

// Level is that of the kind, but Warn for a recovery with Dropped, and for a Close that has failed for a reason that was not told before.
func (e Event) Level() slog.Level {
	if e.Dropped || e.Kind == EventClose && e.Err != nil && !errors.Is(e.Err, ErrFailed) {
		return slog.LevelWarn
	}
	return e.Kind.Level()
}

// String returns the event in one line, without the stack.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "flashdbm: %s", e.Kind)
	for _, a := range e.attrs(false) {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
	}
	return b.String()
}

// attrs returns the fields that are set.
func (e Event) attrs(began bool) []slog.Attr {
	attrs := []slog.Attr{slog.String("path", e.Path)}
	if e.What != "" {
		attrs = append(attrs, slog.String("what", e.What))
	}
	if e.Took != 0 {
		attrs = append(attrs, slog.Duration("took", e.Took))
	}
	if e.Count != 0 {
		attrs = append(attrs, slog.Int64("count", e.Count))
	}
	if e.Bytes != 0 {
		attrs = append(attrs, slog.Int64("bytes", e.Bytes))
	}
	if e.Dropped {
		attrs = append(attrs, slog.Bool("dropped", true))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	if e.Skipped != 0 {
		attrs = append(attrs, slog.Uint64("skipped", e.Skipped))
	}
	if began && e.Began != "" {
		attrs = append(attrs, slog.String("began", e.Began))
	}
	return attrs
}

// LogEvents returns a function for Options.Events that writes each event to a logger, at the event's level. nil is slog.Default, as it is when
// the event comes. This is what Options without Events do; func(dbm.Event) {} is silent.
func LogEvents(logger *slog.Logger) func(Event) {
	return func(e Event) {
		to := logger
		if to == nil {
			to = slog.Default()
		}
		to.LogAttrs(context.Background(), e.Level(), "flashdbm: "+e.Kind.String(), e.attrs(true)...)
	}
}

// eventsOf returns what delivers the events of a database to its user.
func eventsOf(path string, opts *Options) *event.Hub {
	handle := LogEvents(nil)
	if opts != nil && opts.Events != nil {
		handle = opts.Events
	}
	return event.NewHub(func(e event.Event) {
		handle(Event{
			Kind: EventKind(e.Kind), Path: path, Time: e.Time, Took: e.Took, Count: e.Count, Bytes: e.Bytes, What: e.What, Began: e.Began,
			Dropped: e.Dropped, Err: public(e.Err), Skipped: e.Skipped,
		})
	})
}

// public gives an error of the layers below its public sentinel, and posts it if it is damage.
func (db *DB) public(err error) error {
	err = public(err)
	if db.engine != nil {
		db.engine.Met(err)
	} else if errors.Is(err, ErrCorrupt) {
		db.events.Post(event.Event{Kind: event.Corruption, Err: err})
	}
	return err
}

// closePatience is how long Close waits for the function of Options.Events to take what is left.
const closePatience = time.Second
