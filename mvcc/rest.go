package mvcc

import (
	"time"

	"flashdbm/logstore"
)

// A database that nobody writes to comes to rest: redo, the free space for the next turn and what is dead beside what lives are of no use
// to it. Once nobody has committed for idlePause, all that is dirty is flushed, so that redo starts anew; if leaves are filled poorly, as
// random puts or deletes leave them, they are filled up, a turn of Compact at a time; of what is dead beside what
// lives the emptiest segments are cleaned, restMoved bytes a turn, until it is no more than a restDead-th of what lives; and all free
// segments but those held back are given back. Invariants:
//
//   - What the housekeeping appends is no sign of life: else the cleaner, which goes on for seconds behind heavy writing, would put rest off
//     for as long, and rest would never end.
//   - A turn is begun only if a restGain-th of ownBytes may come back, and restVain turns behind which that is no less than it was at any
//     time since the last commit end it, so a file that is at rest is not written again and again, even if something lets it grow behind each
//     turn. What readers hold is not counted: it grows by what a turn moves.
//   - Nothing is written ahead of commits behind a turn: the next commit that comes near the end of a segment has it done.
//   - Leaves are filled up once behind a commit. A tree that is full is not poorly filled before much has been put or deleted, which has
//     written more than the filling up does.
//   - Close does the same with what is left, so a process that ends soon writes no more than one that rests first.
//   - Whoever comes meanwhile waits for no more than the leaves at hand and what was written so far. Full leaves are only read, all of a large
//     tree perhaps, with keeper.mu in hand.
const (
	restGain  = 16       // a sixteenth of ownBytes,
	restLeast = 2        // and so many segments: what a turn has to give back, at least
	restDead  = 8        // an eighth of what lives may be dead beside it
	restMoved = 32 << 20 // bytes that a turn moves
	restTurn  = 8        // of the leaves, an eighth is filled up in a turn, or as many as a turn of Compact does
	restLoose = 10       // leaves are filled up if the tree takes 13 tenths of the bytes of its records,
	restTight = 13       //
	restVain  = 3        // turns that gain nothing, behind which rest waits for the next commit: what is condemned leaves two checkpoints later
)

// rest tells how long nobody has written. Guarded by keeper.mu.
type rest struct {
	committed uint64    // Seq of the last batch of commits, by the last look
	since     time.Time // that it is the last one
	least     int64     // ownBytes, at the end of a turn
	vain      int       // turns in a row that have not made them fewer than that
	filling   []byte    // key at which filling up goes on
	filled    bool      // it has come to the end of the tree
}

// restDue reports whether nobody has committed for so long that the file should shrink to what lives. The caller holds the baton and
// keeper.mu.
func (e *Engine) restDue() bool {
	r := &e.keeper.rest
	if r.since.IsZero() || e.stirs() {
		*r = rest{committed: e.committed.Load(), since: time.Now()}
		return false
	}
	if e.opts.Manual || r.vain >= restVain || time.Since(r.since) < idlePause {
		return false
	}
	s := e.store.SpaceStats()
	if e.loose(s) {
		return true
	}
	gain := e.store.Returning() + e.store.Leaving() + e.store.Surplus(0) + e.store.Outdated() + e.restGarbage(s)
	return gain >= max(e.ownBytes()/restGain, restLeast*e.segmentBytes())
}

// restGarbage returns the bytes of dead pages beside live ones that rest cleans away.
func (e *Engine) restGarbage(s logstore.SpaceStats) int64 {
	_, dead := e.store.Victims(e.keeper.cleaner.stuck, true)
	return max(0, dead*logstore.PageSize-s.PackedBytes/restDead)
}

// loose reports whether leaves are to be filled up. The caller holds the baton and keeper.mu.
func (e *Engine) loose(s logstore.SpaceStats) bool {
	if r := &e.keeper.rest; r.filled {
		return false
	} else if r.filling != nil { // under way
		return true
	}
	payload, _, known := e.pages.PayloadBytes(e.records)
	live := s.LiveBytes - s.LoggedBytes
	return known && live*restLoose > payload*restTight && live*restLoose <= payload*treeFactor/2*restLoose &&
		live-payload >= restLeast*e.segmentBytes()
}

// fillUp fills up some leaves. An error ends it until the next commit. The caller holds keeper.mu.
func (e *Engine) fillUp() (err error) {
	r, c := &e.keeper.rest, &compaction{e: e}
	defer func() { r.filled = r.filled || err != nil }()
	if r.filling == nil { // what is dead by now is room for what moves
		if err := e.beginAnew(); err != nil {
			return err
		}
	}
	written, most := 0, min(e.turnPages(), int(e.store.SpaceStats().LiveBytes/restTurn/logstore.PageSize)+refillLeaves)
	for written < most && !e.stirs() {
		done, err := e.repackSome(r.filling)
		if err != nil {
			return err
		}
		written += done.Written
		if r.filling = done.Next; done.Next == nil {
			r.filled = true
			break
		}
		e.pace()
	}
	if written == 0 {
		return nil
	}
	return c.settle()
}

// stirs reports whether somebody has committed since the last look, is about to, asks for room, or closes the engine. The caller holds
// keeper.mu.
func (e *Engine) stirs() bool {
	return e.committed.Load() != e.keeper.rest.committed || e.active.Load() > 0 || e.unpinned.any() || e.crowd.asked.Load() > 0 || e.closed.Load()
}

// rest makes the file shorter once nobody writes. The caller holds keeper.mu.
func (e *Engine) rest() error {
	r := &e.keeper.rest
	if r.least == 0 {
		r.least = e.ownBytes()
	}
	var loose bool
	if err := e.withBaton(func() error {
		loose = e.loose(e.store.SpaceStats())
		return e.Failed()
	}); err != nil {
		return err
	}
	if loose {
		if err := e.fillUp(); err != nil {
			return err
		}
	}
	if loose && !r.filled {
		e.keeper.due.Store(true)
		e.keeper.rouse()
		return nil
	}
	defer func() {
		if r.vain++; e.ownBytes() < r.least {
			r.least, r.vain = e.ownBytes(), 0
		}
		e.store.ForgoZeros()
	}()
	if err := e.beginAnew(); err != nil {
		return err
	}
	victims, dead := e.store.Victims(e.keeper.cleaner.stuck, true)
	s := e.store.SpaceStats()
	n, moved, over := 0, int64(0), dead-s.PackedBytes/restDead/logstore.PageSize
	for n < len(victims) && over > 0 && moved+victims[n].Live <= restMoved/logstore.PageSize {
		moved += victims[n].Live
		over -= int64(e.store.SegmentPages()) - victims[n].Live
		n++
	}
	e.keeper.cleaner.at = time.Now()
	if _, err := e.cleanVictims(victims[:n], moved, true, e.reserveAtRest); err != nil {
		return err
	}
	if err := e.beginAnew(); err != nil {
		return err
	}
	e.keeper.turn.set(0)
	e.trimFrom(1)
	for range 2 { // what was condemned leaves behind two more
		if err := e.checkpoint(); err != nil {
			return err
		}
	}
	e.trimFrom(1)
	return e.Failed()
}
