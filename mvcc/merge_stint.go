package mvcc

import "time"

// Merging all that the memtables may have takes 200 ms and more where keys come in no order. No commit is to wait so long for background work:
//
//   - Where there are many ops, background work has them merged without the token, as those of a load are: see backgroundMerge.
//   - Else it merges stintOps at a time, and lays the token down between. One batch of commits gets it each time, so what is left
//     becomes less unless batches are larger than that.
//   - Whoever merges much with the token in hand all the same, as a commit does that finds the memtables crowded, logs first what Buffered
//     commits have left in memory. So a sync of those needs no token.
//   - A sync that does need it does not queue for it: whoever has the token logs before passing it on. See logBuffered.
const (
	stintOps    = 4096 // ops that are merged under one token: 4 ms, and 40 where no leaf is in a cache
	mostStints  = 2 * mostEntries / stintOps
	longestPoll = time.Millisecond
)

// mergeInStints merges until no more than stintOps are left, and lays the token down between. Token held, for background work.
func (t *tree) mergeInStints() {
	tables := &t.tables
	tables.noBackground++ // all of it would be waited for with the token in hand
	defer func() { tables.noBackground-- }()
	for n := 0; n < mostStints && !t.readers.ending.Load(); n++ {
		switch {
		case tables.merging() && !tables.merge.Load().ended():
		case !tables.merging() && tables.rest() <= stintOps, tables.redo.Load() != nil, t.Failed() != nil:
			return
		default:
			t.logFirst()
			t.settleMerge()
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

// stint returns the end of the batches that have the next stintOps entries; a larger batch is a stint of its own. Token held.
func (t *memtables) stint() (to int) {
	if to = t.from + stintOps; to >= t.active.Len() {
		return t.active.Len()
	}
	if to = t.active.Upto(t.active.Seq(to) - 1); to > t.from {
		return to
	}
	return t.active.Upto(t.active.Seq(t.from))
}

// logFirst logs what Buffered commits have left in memory, for a token holder who is about to merge for long. An error has poisoned the store.
func (t *tree) logFirst() {
	if tables := &t.tables; t.log.waiting() > 0 && (tables.merging() || tables.rest() > stintOps) {
		_ = t.log.writeRedo()
	}
}

// logBuffered returns once the log has all commits that have returned. If somebody has the token, that holder sees to it before passing it on.
func (l *redoLog) logBuffered() error {
	for wait := 10 * time.Microsecond; l.unlogged.Load(); wait = min(2*wait, longestPoll) {
		if err := l.Failed(); err != nil {
			return err
		}
		l.wanted.Store(true)
		if l.token.try() {
			return l.logAndPut()
		}
		time.Sleep(wait)
	}
	return nil
}

// logAndPut logs what Buffered commits have left in memory and passes the token on.
func (l *redoLog) logAndPut() (err error) {
	defer l.token.pass(true)
	defer l.protect(&err)
	return l.writeRedo()
}

// logIfWanted logs what Buffered commits have left in memory if a sync waits for that. Token held, about to pass it on. An error has
// poisoned the store, which is what the sync returns.
func (l *redoLog) logIfWanted() {
	if l.wanted.Load() {
		l.wanted.Store(false)
		_ = l.writeRedo()
	}
}
