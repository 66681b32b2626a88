package mvcc

import (
	"math"
	"sync/atomic"
	"time"

	"flashdbm/logstore"
	"flashdbm/override"
)

// The file of a running database is bounded by its live data: boundFactor times the keys and values, and boundExtra.
// A commit that would make the file use more waits for background work, which then does nothing but make room: it
// cleans the emptiest segments, and flushes everything dirty, or parts of it if that is much, each with two
// checkpoints. So the size of the file does not depend on how fast background work is compared with the commits.
//
// Invariants:
//
//  1. No commit waits that fits into what the bound leaves: see logstore/space/bound.go.
//  2. A waiting commit has no lock, no reserved pages and no place in the commit list. It gives up its snapshot
//     meanwhile, unless it depends on what it has read.
//  3. Each round of background work for room lets at least one commit proceed. The round finds or makes room, or else
//     raises the bound by a step, a boundStep-th of the file. It does not raise the bound if there was room when it
//     began: then the commit that has taken that room proceeds. The raise is taken back when the file is a step below
//     its bound. So commits do not stop even if readers hold dead pages, or leaves are nearly empty. During a backup
//     the bound is raised without a round, by what readers hold plus a step, and again as soon as a commit reaches it:
//     see backups.go.
//  4. A round may take seconds, for example when deletes have lowered the bound. Meanwhile commits pass the bound at
//     boundRate in all, and none waits longer than boundWait.
//  5. Room that commits give back, and what the bound rises by, goes to the waiting commits in order: see line.go.
//  6. The parts of a flush in a round use room that is reserved for dirty pages. That room is reserved again only when
//     the round ends. Until then the bound is lower by what the parts have used, so no commit takes it.
//  7. A round makes room for a boundGain-th of the bound in addition to what is asked for: its checkpoints serve more
//     than one commit.
const (
	boundFactor = 2
	boundExtra  = 32 << 20 // bytes
	// boundSpare, in bytes, is the part of boundExtra that commits leave for folds, cleaning and checkpoints, for
	// which nothing was reserved. Smaller: with 1 MiB the file exceeded twice its records and 32 MiB by 4 MiB.
	// Larger: the redo limit of small files is smaller.
	boundSpare = 6 << 20
	// boundSpareTree: commits leave a 16th of what leaves hold, too: the parts of a round follow one another, and
	// several of them write before the old pages of the first one are free. Without it, 200 MB that were loaded in
	// random order exceeded twice their size and 32 MiB by 5 %. Not in a new file: its first flush would come earlier,
	// and a load of up to 60 MB would no longer write each record once.
	boundSpareTree = 16
	boundClean     = 4 << 20 // bytes that cleaning may take of boundSpare
	boundGain      = 32
	// boundEmpty: an eighth of the bound is cleaned at once. The flush, the folds and the two checkpoints take about
	// a MiB however much was cleaned. When two segments were cleaned per round, a round gained nothing with four
	// writers that commit pages, and the bound was raised to 100 MiB for 10 MB of records.
	boundEmpty = 8
	boundStep  = 16
	boundLower = 4 // part of a step by which a round that has made room lowers the bound again
	// boundLogged: cleaning may take a 16th of the pages with logged values, in addition to boundClean. Each value
	// that moves makes its leaf dirty, so a round that moves few values writes as many leaves as one that moves many.
	// boundSpared: a 10th is spared for it, because the two checkpoints after it also take some, before the emptied
	// segments are given back.
	boundLogged = 16
	boundSpared = 10
	boundMost   = 4 << 20 / logstore.PageSize // pages: a larger commit does not wait
	// boundRate, in bytes per second, counts what commits reserve; they use about a third of that. Larger: files
	// exceed twice their records and 32 MiB during a round. Smaller: commits wait longer after one that has deleted
	// much.
	boundRate = 4 << 20
	boundWait = 500 * time.Millisecond
	// treeFactor, in halves: live pages beyond 5/2 of the bytes of records, without those of logged values, must be
	// pages of long values, since leaves are at least half full.
	treeFactor = 5
)

// crowd is the commits that wait for room within the bound.
type crowd struct {
	line    line
	asked   atomic.Int64 // pages that a commit asks for which has begun to wait since the last round; 0: none has
	bound   atomic.Int64 // bytes; written by the token holder
	raised  int64        // bytes that are allowed above the bound; guarded by the token
	lends   bool         // parts use the room that is held for what is dirty; guarded by checkpoints.mu
	lent    int64        // pages of that room that they have used; written with checkpoints.mu and the token held
	past    int64        // by how much the file may be past its bound already when it is cleaned; guarded by checkpoints.mu
	backups backups
	passing atomic.Int64 // when the last of the waiting commits may pass the bound, in ns since 1970
}

// enter queues a commit of the given number of pages for passing the bound at boundRate. It returns how long the
// commit waits before it may pass, and a function by which a commit leaves the queue that has found room before, or
// gives up.
func (c *crowd) enter(pages int64) (wait time.Duration, leave func()) {
	now, takes := time.Now().UnixNano(), pages*logstore.PageSize*int64(time.Second)/boundRate
	for {
		last := c.passing.Load()
		at := max(last, now) + takes
		if c.passing.CompareAndSwap(last, at) {
			return min(time.Duration(at-now), boundWait), func() { c.passing.Add(-takes) }
		}
	}
}

// noteBound sets the bound from what is live now. Token held.
func (p *pressure) noteBound() {
	s := p.store.SpaceStats()
	bound := p.boundBytes(s)
	p.crowd.bound.Store(bound)
	if p.opts.Manual || p.room.limited() || p.readers.ending.Load() {
		p.store.SetBound(0)
		return
	}
	if s.FileBytes+s.FileBytes/boundStep <= bound { // a file that is only just within its bound may have no room for the next commit
		p.crowd.raised = 0
	}
	if p.crowd.backups.underWay() {
		p.crowd.raised = max(p.crowd.raised, p.store.HeldBytes()+s.FileBytes/boundStep)
	}
	p.store.SetBound(bound + p.crowd.raised - withMargin(p.crowd.lent)*logstore.PageSize)
}

// boundBytes returns the bound for what is live. Token held.
func (p *pressure) boundBytes(s logstore.SpaceStats) int64 {
	payload, logged, known := p.pages.PayloadBytes(p.tree.records)
	fresh := p.tree.fresh()
	if !known {
		return boundFactor*(max(s.LiveBytes, p.tree.sizes().dirty+p.pages.InFlight()*logstore.PageSize)*2/3+fresh) + boundExtra - boundSpare
	}
	payload += fresh
	payload += max(0, s.LiveBytes-s.LoggedBytes-payload*treeFactor/2)
	return boundFactor*(payload+logged) + boundExtra - boundSpare - payload/boundSpareTree - s.LoggedBytes/boundSpared
}

// awaitBound reserves pages for a commit that would make the file exceed its bound, when there is room for them, or
// when it may pass the bound.
func (a *admission) awaitBound(tx *Tx, c logstore.Claim, pages int64) error {
	if tx.gate != nil || pages > boundMost || a.opts.Manual || a.readers.ending.Load() || !a.maintenance.compacting.TryLock() {
		return a.store.ReserveFor(c, pages, 0)
	}
	a.maintenance.compacting.Unlock()
	crowd, place := &a.pressure.crowd, newPlace(pages)
	if a.pressure.fitsBesideBackups(pages) {
		if err := a.store.ReserveWithin(c, pages, 0); err != logstore.ErrBound {
			return err
		}
	}
	wait, unqueue := crowd.enter(pages)
	end := time.Now().Add(wait)
	for again := false; ; again = true {
		crowd.line.join(place, again)
		if err := a.store.ReserveWithin(c, pages, 0); err != logstore.ErrBound {
			crowd.line.leave(place)
			unqueue()
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			a.giveUp(place)
			// One page must be left: otherwise as many again would be lent to others, see logstore/space/credit.go.
			return a.store.ReserveFor(c, pages, 1)
		}
		crowd.asked.Store(pages)
		a.maintenance.due.Store(true)
		a.maintenance.rouse()
		if err := a.pause(tx, place.call, left); err != nil {
			a.giveUp(place)
			unqueue()
			return err
		}
		crowd.line.leave(place)
	}
}

// giveUp makes a commit leave the line that takes no room. If the commit was called, giveUp calls the next one.
func (a *admission) giveUp(p *place) {
	if a.pressure.crowd.line.leave(p) {
		a.pressure.callNext()
	}
}

// callNext calls waiting commits that now find room; all of them if the store has failed, so that they return the
// error.
func (p *pressure) callNext() {
	p.crowd.line.serve(func(pages int64) bool { return p.Failed() != nil || p.store.FitsBound(pages) })
}

// makeWay makes room for commits that have asked for the given number of pages. The caller holds checkpoints.mu.
func (m *maintenance) makeWay(pages int64) (err error) {
	before, tried := m.marks.committed.Load(), false
	defer func() {
		if lerr := m.log.withLog(func() error {
			m.pressure.takeBack()
			m.pressure.noteBound()
			step := m.store.SpaceStats().FileBytes / boundStep
			if !m.pressure.roomy(pages) && m.marks.committed.Load() == before && tried {
				m.pressure.crowd.raised += step
			} else if m.pressure.roomy(pages) {
				m.pressure.crowd.raised = max(0, m.pressure.crowd.raised-step/boundLower)
			}
			m.pressure.noteBound()
			return nil
		}); err == nil {
			err = lerr
		}
		m.pressure.callNext()
		if next := m.pressure.crowd.line.wants(); next > 0 && err == nil { // others have taken the room, or more commits have come
			m.pressure.crowd.asked.Store(next)
			m.due.Store(true)
			m.rouse()
		}
	}()
	pages = max(pages, m.pressure.crowd.line.wants())
	// The next checkpoints free enough, as after the first flush of a load.
	if !m.pressure.roomy(pages) && m.store.Returning() >= (pages+m.pressure.wayPages())*logstore.PageSize {
		if err := m.checkpoints.checkpointTwice(); err != nil {
			return err
		}
	}
	if m.pressure.roomy(pages) {
		return nil
	}
	tried, m.pressure.crowd.lends = true, true
	for range mostParts {
		n, err := m.flusher.parts()
		if err != nil {
			return err
		}
		if n == 1 {
			break
		}
		if err := m.cleaner.cleanFor(pages, math.MaxInt64); err != nil {
			return err
		}
		if err := m.flusher.flushNext(n, true); err != nil || m.pressure.roomy(pages) {
			return err
		}
		// For the flush of the next part.
		if err := m.flusher.unpin(); err != nil {
			return err
		}
	}
	// If it does not fit, a flush of all would make the file grow by everything dirty. If that is little, cleaning
	// gains more than it takes, and a file that is past its bound would not be cleaned otherwise.
	fits, past, most, err := m.pressure.allFitsNow(m.cleaner.emptyFor(pages))
	if err != nil || !fits || m.pressure.roomy(pages) {
		return err
	}
	m.pressure.crowd.past = past
	defer func() { m.pressure.crowd.past = 0 }()
	if err := m.cleaner.cleanFor(pages, most); err != nil {
		return err
	}
	if err := m.flusher.flush(); err != nil {
		return err
	}
	// Parents still name moved pages by their old places, which keeps those from reuse.
	if _, err := m.flusher.drain((*override.Batch).Fold, m.pressure.reserveMore); err != nil {
		return err
	}
	if err := m.flusher.beginAnew(); err != nil || m.pressure.roomy(pages) {
		return err
	}
	if _, err := m.tree.reclaimNow(); err != nil { // no commit has moved the watermarks past what has died meanwhile
		return err
	}
	return m.checkpoints.checkpointTwice()
}

// lend lets a part of the given number of pages use room that is held for what is dirty, if makeWay has it flushed.
// If as much were held again after each part, a file at its bound would grow by what the parts write before anything
// of it is free: by 12 MiB where 50 MB of records of 100 bytes are half deleted. Room for the least part stays. The
// caller holds the token and checkpoints.mu.
func (p *pressure) lend(pages int64) {
	if c := &p.crowd; c.lends {
		c.lent = min(c.lent+pages, (heldParts*p.partBytes()-p.partBytes()/partShare)/logstore.PageSize)
	}
}

// takeBack ends what lend has begun. The caller holds the token and checkpoints.mu.
func (p *pressure) takeBack() {
	p.crowd.lends, p.crowd.lent = false, 0
	p.room.rebalance(0)
}

// reserveWithin finds room for the pages that background work moves to make room. It may exceed the bound, or the
// size that makeWay has found, by no more than is kept free for that. The caller holds checkpoints.mu.
func (p *pressure) reserveWithin(extra int64) error {
	return p.reservePast(p.crowd.past, extra)
}

// reserveAtRest is reserveWithin while nobody commits: the part of the file beyond its bound does not count, as
// after large deletes or while readers hold much. A turn moves no more than restMoved.
func (p *pressure) reserveAtRest(extra int64) error {
	return p.reservePast(max(0, p.store.SpaceStats().FileBytes-p.store.Bound()), extra)
}

// reservePast is reserveWithin that may exceed the bound by more further bytes.
func (p *pressure) reservePast(more, extra int64) error {
	over := boundClean + p.store.SpaceStats().LoggedBytes/boundLogged + withMargin(p.crowd.lent)*logstore.PageSize + more
	err := p.store.ReserveWithin(logstore.ForWrites, extra, over/logstore.PageSize)
	if err == logstore.ErrBound {
		return logstore.ErrFull
	}
	return err
}

// allFitsNow reports whether makeWay should flush everything dirty: because that fits, or because it is little. In the
// second case past is by how much the file is past its bound already. most is how many pages may be moved before that
// flush, which writes them too: as many as are to be moved if they fit as well. Room is held for the least part of what is
// dirty only, so no reservation limits them: while they had no limit, a file at its bound of 161 MB came to 189.
func (p *pressure) allFitsNow(move int64) (fits bool, past, most int64, err error) {
	err = p.tree.withTree(func() error {
		most = boundClean / logstore.PageSize
		if p.allFits(move) {
			most = math.MaxInt64
		}
		if fits = p.allFits(0); !fits && p.tree.sizes().dirty <= boundClean {
			fits, past = true, max(0, p.store.SpaceStats().FileBytes-p.store.Bound())
		}
		return p.Failed()
	})
	return fits, past, most, err
}

// emptyFor returns how many pages cleanFor gains at least, and moves at most.
func (c *cleaner) emptyFor(pages int64) int64 {
	return pages + c.store.Bound()/boundEmpty/logstore.PageSize
}

// cleanFor empties segments of which at most half is live, the emptiest first, until the pages that makeWay needs
// will be free. It moves at most most pages. The caller holds checkpoints.mu.
func (c *cleaner) cleanFor(pages, most int64) error {
	victims, _ := c.store.Victims(c.flusher.stuck, false)
	return c.empty(victims, c.emptyFor(pages), most, int64(c.store.SegmentPages())/2, c.searchDue(), c.pressure.reserveWithin)
}

// wayPages is how many pages there should be room for in addition to what is asked for.
func (p *pressure) wayPages() int64 { return p.store.Bound() / boundGain / logstore.PageSize }

// roomy reports whether a commit that asks for the given number of pages finds them within the bound, and further
// ones wayPages more.
func (p *pressure) roomy(pages int64) bool {
	return p.store.FitsBound(pages + p.wayPages())
}
