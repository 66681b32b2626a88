package mvcc

import (
	"sync/atomic"
	"time"

	"flashdbm/internal/commit"
)

// Commits are held back where they write redo faster than flushes can make it superfluous: else redo, and with it the file, the time to
// open it and the memory for what is dirty, would grow until the device has an hour of peace. A commit then waits a little before it
// reserves anything, the longer the more redo there is; so commits find the pace of the flushes, and none waits for a whole flush.
//
// It waits no longer than there is too much (see pause), and not at all if others wait for it at the gate.
const (
	holdShare = 2                     // commits wait longest when redo is half of RedoLimit too long,
	holdMost  = 50 * time.Millisecond // and so long
	holdLeast = time.Millisecond      // what a shorter sleep takes too, where nothing else runs
)

// excess is how much too long the redo is: bytes that are past RedoLimit, of a range in which commits wait longer and longer.
type excess struct {
	past  atomic.Int64   // written by the token holder,
	limit atomic.Int64   // with the limit that it is past
	held  commit.Waiters // until it is no more
}

// noteRedo notes how long the redo is. A flush of all is due at RedoLimit, and lets go what was there when it began; so the redo behind its
// base may be as long again. Token held.
func (p *pressure) noteRedo() {
	p.noteGrowth()
	p.noteBound()
	redo := p.log.bytes.Since()
	if p.parts() == 1 {
		redo = p.log.bytes.SinceBase()
	}
	limit := p.redoLimit()
	past := redo + p.log.waiting() - limit
	p.excess.limit.Store(limit)
	p.excess.past.Store(past)
	if past <= 0 {
		p.excess.held.Broadcast()
	}
}

// hold makes a transaction that is about to commit wait if redo is too long.
func (a *admission) hold(tx *Tx) error {
	past := a.pressure.excess.past.Load()
	if past <= 0 || tx.gate != nil || a.opts.Manual || a.readers.ending.Load() {
		return nil
	}
	if holdTime(past, a.pressure.excess.limit.Load()) < holdLeast {
		return nil
	}
	moved, leave := a.pressure.excess.held.Join()
	defer leave()
	if past = a.pressure.excess.past.Load(); past <= 0 {
		return nil
	}
	a.known.delayed.Add(1)
	begin := time.Now()
	defer func() { a.known.delay.Add(int64(time.Since(begin))) }()
	return a.pause(tx, moved, holdTime(past, a.pressure.excess.limit.Load()))
}

// holdTime returns how long a commit waits that finds redo past bytes too long: it grows with the square of that.
func holdTime(past, limit int64) time.Duration {
	share := min(float64(past)*holdShare/float64(limit), 1)
	return time.Duration(share * share * float64(holdMost))
}
