package mvcc

import (
	"sync/atomic"
	"time"

	"flashdbm/logstore"
)

// The file of a running database is bounded by what lives: boundFactor times the keys and values, and boundExtra. A commit for which the file
// would have to grow beyond that waits for the housekeeping, which then does nothing but make room: flushes, parts of them where much is dirty,
// each with two checkpoints. So the size of the file does not depend on how fast the housekeeping is beside the commits.
//
// Invariants:
//
//  1. No commit waits while it fits into the file as it is, or into what the file may grow by.
//  2. Who waits has no lock, no room and no place in the list. It gives up its snapshot meanwhile, unless it depends on what it has read.
//  3. Each round of the housekeeping for room lets a commit go on: it makes room, or raises the bound by a boundStep-th of the file. That is
//     taken back once the file is within its bound. So readers that hold dead pages, or trees whose leaves are nearly empty, stop nobody.
//  4. A round makes room for a boundGain-th of the bound beside what is asked for: the checkpoints are for more than one commit.
const (
	boundFactor = 2
	boundExtra  = 32 << 20 // bytes,
	boundSpare  = 3 << 20  // less what flushes and checkpoints may need beside what was reserved for them: the file grows for those in any case
	boundGain   = 32
	boundStep   = 16
	boundMost   = 4 << 20 / logstore.PageSize // pages: a commit of more does not wait
	boundLook   = time.Second                 // after which one that waits looks again
	treeFactor  = 5                           // live pages beyond 5/2 of the bytes of records in leaves are those of long values
)

// crowd is the commits that wait for room within the bound.
type crowd struct {
	waiters waiters      // for the end of a checkpoint or of a round
	asked   atomic.Int64 // pages, by one of those who have come to wait since the last round; 0: none has
	raised  int64        // bytes above the bound that are allowed; with the baton
}

// noteBound sets the bound anew. Baton holder.
func (e *Engine) noteBound() {
	if e.opts.Manual || e.limited() || e.ending.Load() {
		e.store.SetBound(0)
		return
	}
	s := e.store.SpaceStats()
	bound := e.boundBytes(s.LiveBytes)
	if s.FileBytes <= bound {
		e.crowd.raised = 0
	}
	e.store.SetBound(bound + e.crowd.raised)
}

// boundBytes returns the bound if so many bytes of pages live. Baton holder.
func (e *Engine) boundBytes(live int64) int64 {
	payload, known := e.pages.PayloadBytes(e.records)
	if !known {
		payload = live * 2 / 3
	}
	payload += max(0, live-payload*treeFactor/2)
	return boundFactor*payload + boundExtra - boundSpare
}

// awaitBound reserves pages for a commit that would have the file pass its bound, once there is room for them.
func (e *Engine) awaitBound(tx *Tx, c logstore.Claim, pages int64) (err error) {
	if tx.gate != nil || pages > boundMost || e.opts.Manual || e.ending.Load() || !e.compacting.TryLock() {
		return e.store.ReserveFor(c, pages, 0)
	}
	e.compacting.Unlock()
	if tx.reads == nil {
		tx.unpin()
		defer func() {
			if perr := tx.pin(); perr != nil && err == nil {
				e.store.Release(pages)
				err = perr
			}
		}()
	}
	var done <-chan struct{}
	if tx.ctx != nil {
		done = tx.ctx.Done()
	}
	t := time.NewTicker(boundLook)
	defer t.Stop()
	for {
		moved, leave := e.crowd.waiters.join()
		if err := e.store.ReserveWithin(c, pages); err != logstore.ErrBound {
			leave()
			return err
		}
		e.crowd.asked.Store(pages)
		e.keeper.due.Store(true)
		e.keeper.rouse()
		select {
		case <-moved:
		case <-t.C:
		case <-done:
		}
		leave()
		if err := tx.cancelled(); err != nil {
			return err
		}
		if err := e.Failed(); err != nil {
			return err
		}
	}
}

// makeWay makes room for commits that have asked for so many pages. The caller holds keeper.mu.
func (e *Engine) makeWay(pages int64) (err error) {
	defer func() {
		if lerr := e.withLog(func() error {
			if e.noteBound(); !e.roomy(pages) {
				e.crowd.raised += e.store.SpaceStats().FileBytes / boundStep
				e.noteBound()
			}
			return nil
		}); err == nil {
			err = lerr
		}
		e.crowd.waiters.broadcast()
	}()
	for range mostParts {
		n := 1
		if err := e.withBaton(func() error {
			n = e.parts()
			return e.Failed()
		}); err != nil {
			return err
		}
		if n == 1 {
			break
		}
		budget, _ := e.cleanBudget()
		if err := e.clean(budget); err != nil {
			return err
		}
		if err := e.sweep(n, true); err != nil || e.roomy(pages) {
			return err
		}
	}
	if e.roomy(pages) {
		return nil
	}
	budget, _ := e.cleanBudget()
	if err := e.clean(budget); err != nil {
		return err
	}
	if err := e.beginAnew(); err != nil || e.roomy(pages) {
		return err
	}
	return e.checkpointTwice()
}

// roomy reports whether a commit that asks for so many pages finds them within the bound, and the next ones too.
func (e *Engine) roomy(pages int64) bool {
	return e.store.FitsBound(pages + e.store.Bound()/boundGain/logstore.PageSize)
}
