package mvcc

import (
	"runtime"
	"time"
)

// Merging everything that memtables may hold takes 200 ms and more if the keys are in random order. No commit should
// wait so long for background work:
//
//   - If many entries wait, they are merged without the token, as those of a load are: see backgroundMerge.
//   - Otherwise background work merges stintOps entries at a time and passes the token on in between. One batch of
//     commits gets it each time, so the backlog shrinks unless batches are larger than stintOps.
//   - A token holder that must merge much at once, such as a leader that finds the memtables crowded, first logs what
//     Buffered commits have left in memory. So a sync of those commits needs no token meanwhile.
//   - A sync that does need the token does not queue for it: it asks the holder to log before passing the token on.
//     See logBuffered.
const (
	stintOps    = 4096 // entries that are merged under one token: takes 4 ms, or 40 ms if no leaf is in a processor cache
	mostStints  = 2 * mostEntries / stintOps
	longestPoll = time.Millisecond
	pollYields  = 50 // take some small commits, one of which writes the log
)

// mergeInStints merges until at most stintOps entries are left, and passes the token on in between. For background
// work. Token held.
func (t *tree) mergeInStints() {
	tables := &t.tables
	tables.noBackground++ // a background merge begun by thin would take all entries, and would be waited for with the token in hand
	defer func() { tables.noBackground-- }()
	for n := 0; n < mostStints && !t.readers.ending.Load(); n++ {
		switch {
		case tables.merging() && !tables.merge.Load().ended():
		case !tables.merging() && tables.rest() <= stintOps, tables.redo.Load() != nil, t.Failed() != nil:
			return
		default:
			t.logFirst()
			t.finishMerge()
			if t.Failed() != nil {
				return
			}
			if t.manyWait() && t.seal() {
				break
			}
			if t.mergeUpto(tables.stint()) != nil {
				return
			}
		}
		t.token.pass(true)
		t.awaitMerge()
		t.token.take()
	}
}

// stint returns the end of the batches that contain the next stintOps entries. A larger batch is a stint of its own.
// Token held.
func (t *memtables) stint() (to int) {
	if to = t.from + stintOps; to >= t.active.Len() {
		return t.active.Len()
	}
	if to = t.active.Upto(t.active.Seq(to) - 1); to > t.from {
		return to
	}
	return t.active.Upto(t.active.Seq(t.from))
}

// logFirst logs what Buffered commits have left in memory, if the token holder is about to merge for long. An error
// has poisoned the store.
func (t *tree) logFirst() {
	if tables := &t.tables; t.log.waiting() > 0 && (tables.merging() || tables.rest() > stintOps) {
		_ = t.log.writeRedo()
	}
}

// logBuffered returns when the log has all commits that had returned when it was called. If somebody holds the token,
// that holder logs them before passing it on. The holder is mostly a small commit, which takes a microsecond, and a
// sleep takes 50 or 1,000, so it yields pollYields times before it sleeps. Beside a goroutine that put one record after
// the other, a call took as long as the sync after it, 0.9 ms, when it slept at once and went on until nothing was left
// to log.
func (l *redoLog) logBuffered() error {
	upto := l.marks.applied.Load() // before unlogged, which is set before applied moves
	yields, wait := 0, 10*time.Microsecond
	for l.unlogged.Load() && l.logged.Load() < upto {
		if err := l.Failed(); err != nil {
			return err
		}
		if !l.wanted.Load() {
			l.wanted.Store(true)
		}
		if l.token.try() {
			return l.logAndPut()
		}
		if yields < pollYields { // not by the clock, which stands still in a test's bubble
			yields++
			runtime.Gosched()
			continue
		}
		time.Sleep(wait)
		wait = min(2*wait, longestPoll)
	}
	return nil
}

// logAndPut logs what Buffered commits have left in memory, and passes the token on. Token held.
func (l *redoLog) logAndPut() (err error) {
	defer l.token.pass(true)
	defer l.protect(&err)
	return l.writeRedo()
}

// logIfWanted logs what Buffered commits have left in memory if a sync waits for that. Called by a token holder about
// to pass the token on. An error has poisoned the store, and the sync returns it from there.
func (l *redoLog) logIfWanted() {
	if l.wanted.Load() {
		l.wanted.Store(false)
		_ = l.writeRedo()
	}
}
