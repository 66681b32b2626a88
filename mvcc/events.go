package mvcc

import (
	"errors"
	"time"

	"flashdbm/internal/event"
	"flashdbm/logstore"
)

// post tells the engine's user about an event. It never waits, so the caller may hold the token or any lock: another
// goroutine delivers events, see event.Hub.
func (f *file) post(ev event.Event) { f.opts.Events.Post(ev) }

// tellOfCleaning posts how many pages the cleaner has moved, unless it moved none. begin is when it began, and before
// was flusher.moved then.
func (c *cleaner) tellOfCleaning(begin time.Time, before uint64) {
	if moved := c.flusher.moved.Load() - before; moved > 0 {
		c.post(event.Event{Kind: event.Clean, Took: time.Since(begin), Count: int64(moved)})
	}
}

// storm finds times in which most transactions lose. It has the counters as of the last look. One goroutine uses it.
type storm struct {
	at                 time.Time
	conflicts, commits uint64
}

func (m *maintenance) newStorm() storm {
	return storm{at: time.Now(), conflicts: m.readers.conflicts.Load(), commits: m.known.commits.Load()}
}

// stormWindow is the least time between two looks. In a shorter window two transactions that meet would pass for a
// storm.
const stormWindow = time.Second

// warnOfStorm posts a storm if since the last look at least as many commits have lost as have not, and at least
// event.ConflictsInStorm in each second.
func (m *maintenance) warnOfStorm(now time.Time, s *storm) {
	took := now.Sub(s.at)
	if took < stormWindow {
		return
	}
	next := storm{at: now, conflicts: m.readers.conflicts.Load(), commits: m.known.commits.Load()}
	lost, done := next.conflicts-s.conflicts, next.commits-s.commits
	*s = next
	if lost >= done && float64(lost) >= event.ConflictsInStorm*took.Seconds() {
		m.post(event.Event{Kind: event.ConflictStorm, Took: took, Count: int64(lost)})
	}
}

// Met posts damage that the caller was told of, unless the store has posted it when it read the page. Beside a writer
// the store cannot post it: what looks like damage there may be a page that was reused, and is read again before
// the damage is reported.
func (f *file) Met(err error) {
	if err == nil || !errors.Is(err, logstore.ErrCorrupt) || errors.Is(err, logstore.ErrFailed) { // which has an event of its own
		return
	}
	var page *logstore.PageError // allocated only once it is known that there is an error
	if f.opts.Store.Beside || !errors.As(err, &page) {
		f.post(event.Event{Kind: event.Corruption, Err: err})
	}
}

// Met is Engine.Met of the transaction's engine.
func (tx *pinned) Met(err error) { tx.e.Met(err) }
