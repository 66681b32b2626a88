package mvcc

import "time"

// Merging all that the memtables may have takes 200 ms and more where keys come in no order. No commit is to wait so long for background work:
//
//   - Background work merges stintOps at a time, and lays the baton down between. One batch of commits gets it each time, so what is left
//     becomes less unless batches are larger than that.
//   - Whoever merges much with the baton in hand all the same, as a commit does that finds the memtables crowded, logs first what Buffered
//     commits have left in memory. So a sync of those needs no baton.
//   - A sync that does need it does not queue for it: whoever has the baton logs before passing it on. See logBuffered.
const (
	stintOps    = 4096 // ops that are merged under one baton: 4 ms, and 40 where no leaf is in a cache
	mostStints  = 2 * mostEntries / stintOps
	longestPoll = time.Millisecond
)

// mergeInStints merges until no more than stintOps are left, and lays the baton down between. Baton holder, for background work.
func (e *Engine) mergeInStints() {
	t := &e.tables
	t.noBackground++ // all of it would be waited for with the baton in hand
	defer func() { t.noBackground-- }()
	for n := 0; n < mostStints && !e.ending.Load(); n++ {
		switch {
		case t.merging() && !t.merge.Load().ended():
		case !t.merging() && t.rest() <= stintOps, t.redo.Load() != nil, e.Failed() != nil:
			return
		default:
			e.logFirst()
			e.settleMerge()
			if e.Failed() != nil || e.mergeUpto(t.stint()) != nil {
				return
			}
		}
		e.putBaton(true)
		e.awaitMerge()
		e.takeBaton()
	}
}

// stint returns the end of the batches that have the next stintOps entries; a larger batch is a stint of its own. Baton holder.
func (t *memtables) stint() (to int) {
	if to = t.from + stintOps; to >= t.active.Len() {
		return t.active.Len()
	}
	if to = t.active.Upto(t.active.Seq(to) - 1); to > t.from {
		return to
	}
	return t.active.Upto(t.active.Seq(t.from))
}

// logFirst logs what Buffered commits have left in memory, for a baton holder who is about to merge for long. An error has poisoned the store.
func (e *Engine) logFirst() {
	if t := &e.tables; e.waiting() > 0 && (t.merging() || t.rest() > stintOps) {
		_ = e.writeRedo()
	}
}

// logBuffered returns once the log has all commits that have returned. If somebody has the baton, that holder sees to it before passing it on.
func (e *Engine) logBuffered() error {
	b := &e.baton
	for wait := 10 * time.Microsecond; e.unlogged.Load(); wait = min(2*wait, longestPoll) {
		if err := e.Failed(); err != nil {
			return err
		}
		b.logWanted.Store(true)
		if b.held.CompareAndSwap(false, true) {
			return e.logAndPut()
		}
		time.Sleep(wait)
	}
	return nil
}

// logAndPut logs what Buffered commits have left in memory and passes the baton on.
func (e *Engine) logAndPut() (err error) {
	defer e.putBaton(true)
	defer e.protect(&err)
	return e.writeRedo()
}

// logIfWanted logs what Buffered commits have left in memory if a sync waits for that. Baton holder, about to pass it on. An error has
// poisoned the store, which is what the sync returns.
func (e *Engine) logIfWanted() {
	if e.baton.logWanted.Load() {
		e.baton.logWanted.Store(false)
		_ = e.writeRedo()
	}
}
