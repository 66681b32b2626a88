package mvcc

import "time"

// Merging all that may be pending takes 200 ms and more where keys come in no order. Nobody is to wait so long for background work:
//
//   - Background work and readers merge stintOps at a time, and lay the baton down between. One batch of commits gets it each time, so what
//     is pending becomes less unless batches are larger than that.
//   - Whoever merges much with the baton in hand all the same, as a commit does that finds too much pending, logs first what Buffered commits
//     have left in memory. So a sync of those needs no baton.
//   - A sync that does need it does not queue for it: whoever has the baton logs before passing it on. See logBuffered.
const (
	stintOps    = 4096 // ops that are merged under one baton: 4 ms, and 40 where no leaf is in a cache
	mostStints  = 2 * pendingOps / stintOps
	longestPoll = time.Millisecond
)

// mergeInStints merges what is pending up to seq until no more than stintOps are left, and lays the baton down between. Baton holder, for
// background work or a reader.
func (e *Engine) mergeInStints(seq uint64) {
	p := &e.pending
	p.noAside++ // all of it would be waited for with the baton in hand
	defer func() { p.noAside-- }()
	for n := 0; n < mostStints && !e.ending.Load(); n++ {
		aside := p.aside.Load()
		switch {
		case aside != nil && !p.ended():
		case aside == nil && len(p.ops) <= stintOps:
			return
		case p.redo.Load() != nil || p.err != nil:
			return
		default:
			upto := p.stint(seq)
			if upto == 0 || e.merge(upto) != nil {
				return
			}
		}
		e.putBaton(true)
		e.awaitAside()
		e.takeBaton()
	}
}

// stint returns the Seq of the last batch of the first stintOps ops that is not above seq; a larger batch is a stint of its own. 0 if there
// is none. Baton holder.
func (p *pending) stint(seq uint64) (upto uint64) {
	for i := range p.batches {
		b := &p.batches[i]
		if b.seq > seq || i > 0 && b.end > stintOps {
			break
		}
		upto = b.seq
	}
	return upto
}

// logFirst logs what Buffered commits have left in memory, for a baton holder who is about to merge for long. An error has poisoned the store.
func (e *Engine) logFirst() {
	if p := &e.pending; e.waiting() > 0 && (p.aside.Load() != nil || len(p.ops) > stintOps) {
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
