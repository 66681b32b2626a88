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

// The kinds of events. Each comment lists the fields of Event that the kind sets, besides Kind, Path, Time and
// Skipped.
const (
	EventOpen          EventKind = iota // the database is open. Took: duration of Open
	EventRecovery                       // Open has read the log. Took; Count: records redone; Dropped. A large redo may continue after Open. Not with Options.Beside
	EventFlush                          // changed pages of the tree were written. Took; Bytes: size of these pages
	EventCheckpoint                     // a checkpoint was written: the next Open reads less of the log. Took; Bytes
	EventClean                          // live pages were moved so that the space around them can be reused. Took; Count: pages
	EventSlowSync                       // a sync of the file took half a second or longer. Took
	EventConflictStorm                  // during Took, at least half of the commits failed with ErrConflict, 100 a second or more. Took; Count: conflicts
	EventOldSnapshot                    // a transaction that began at least a minute ago keeps dead space from being reused. Took: its age; Bytes: kept; Began
	EventSnapshotEnded                  // a transaction older than Options.MaxSnapshotAge gets ErrSnapshotTooOld. Took: its age; Bytes: kept; Began
	EventBackground                     // background work has failed. It is tried again, and nothing is lost. What; Err
	EventCorruption                     // damage was found by a read, by background work or by Open. Err: wraps ErrCorrupt and says where
	EventPoisoned                       // a write or a sync has failed: the handle refuses writes from now on. Err: wraps ErrFailed
	EventClose                          // the database is closed. Err: what Close returned

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

// Level returns how urgent the kind is for an operator. Debug: routine. Warn: should be looked into, without
// hurry. Error: needs attention now. A recovery that dropped an incomplete commit is Warn, see Event.Level.
func (k EventKind) Level() slog.Level {
	switch k {
	case EventSlowSync, EventConflictStorm, EventOldSnapshot, EventSnapshotEnded, EventBackground:
		return slog.LevelWarn
	case EventCorruption, EventPoisoned:
		return slog.LevelError
	}
	return slog.LevelDebug
}

// Event is one thing that happened to a database. Which fields are set depends on the kind; the others are zero.
type Event struct {
	Kind    EventKind
	Path    string    // as passed to Open
	Time    time.Time // when the event was over
	Took    time.Duration
	Count   int64
	Bytes   int64
	What    string // description in words
	Began   string // with Options.TraceSnapshots: the stack where the transaction began, innermost frame first
	Dropped bool   // an incomplete commit at the end of the log was dropped as a whole
	Err     error
	Skipped uint64 // events of this kind dropped since the last one that was delivered, because they came too fast
}

// Level is the level of the kind, except for two cases that are Warn: a recovery with Dropped, and a Close with an
// error other than ErrFailed.
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

// attrs returns the fields that are set; Began only if the argument says so.
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

// LogEvents returns a function for Options.Events that writes each event to logger, at the event's level. If logger
// is nil, it uses the slog.Default of the moment when the event comes. A database without Options.Events uses
// LogEvents(nil); func(dbm.Event) {} is silent.
func LogEvents(logger *slog.Logger) func(Event) {
	return func(e Event) {
		to := logger
		if to == nil {
			to = slog.Default()
		}
		to.LogAttrs(context.Background(), e.Level(), "flashdbm: "+e.Kind.String(), e.attrs(true)...)
	}
}

// eventsOf returns the hub that delivers the events of a database to Options.Events.
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

// public adds the public sentinel to an error of the lower layers that lacks one, and posts an event if the error
// is damage.
func (db *DB) public(err error) error {
	err = public(err)
	if db.engine != nil {
		db.engine.Met(err)
	} else if errors.Is(err, ErrCorrupt) {
		db.events.Post(event.Event{Kind: event.Corruption, Err: err})
	}
	return err
}

// closePatience is how long Close waits until Options.Events has taken the events that are left. A larger
// value makes Close wait longer for a slow function; a smaller one loses more events.
const closePatience = time.Second
