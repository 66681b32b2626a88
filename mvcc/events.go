package mvcc

import (
	"errors"
	"time"

	"flashdbm/internal/event"
	"flashdbm/logstore"
)

// post tells the engine's user of something that has happened. It never waits, so the token or any lock may be held: what delivers events is
// another goroutine, see event.Hub.
func (f *file) post(ev event.Event) { f.opts.Events.Post(ev) }

// tellOfCleaning posts how many pages a turn of the cleaner has moved, unless that is none: begin is when it began, and before was
// e.cleaned then.
func (c *cleaner) tellOfCleaning(begin time.Time, before uint64) {
	if moved := c.flusher.moved.Load() - before; moved > 0 {
		c.post(event.Event{Kind: event.Clean, Took: time.Since(begin), Count: int64(moved)})
	}
}

// storm looks for times in which transactions mostly lose: it has the counters as they were when it looked last. One goroutine uses it.
type storm struct {
	at                 time.Time
	conflicts, commits uint64
}

func (m *maintenance) newStorm() storm {
	return storm{at: time.Now(), conflicts: m.readers.conflicts.Load(), commits: m.known.commits.Load()}
}

// stormWindow is the least time between two looks. A shorter one would take two transactions that meet for a storm.
const stormWindow = time.Second

// warnOfStorm posts that since the last look at least as many commits have lost to a conflict as have not, and event.ConflictsInStorm in each
// second of it.
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

// Met posts damage that the caller was told of, unless the store has posted it when it read the page. Beside a writer the store cannot: there
// what looks like damage may be a page that was used again, and is tried again before anybody is told.
func (f *file) Met(err error) {
	if err == nil || !errors.Is(err, logstore.ErrCorrupt) || errors.Is(err, logstore.ErrFailed) { // which is told as what it is
		return
	}
	var page *logstore.PageError // allocated: not before it is known that there is an error
	if f.opts.Store.Beside || !errors.As(err, &page) {
		f.post(event.Event{Kind: event.Corruption, Err: err})
	}
}

// Met is that of the engine.
func (tx *pinned) Met(err error) { tx.e.Met(err) }
