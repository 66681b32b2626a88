package mvcc

import (
	"sync/atomic"
	"time"

	"flashdbm/logstore"
	"flashdbm/override"
)

// The file of a running database is bounded by what lives: boundFactor times the keys and values, and boundExtra. A commit for which more than
// that would be used of the file waits for background work, which then does nothing but make room: it cleans the emptiest segments and
// flushes, parts of what is dirty where that is much, each with two checkpoints. So the size of the file does not depend on how fast the
// background work is beside the commits.
//
// Invariants:
//
//  1. No commit waits while it fits into what the bound leaves: see logstore/space/bound.go.
//  2. Who waits has no lock, no room and no place in the list. It gives up its snapshot meanwhile, unless it depends on what it has read.
//  3. Each round of background work for room lets a commit go on: it makes room, or raises the bound by a boundStep-th of the file. That is
//     taken back once the file is a step below its bound. So readers that hold dead pages, or trees whose leaves are nearly empty, stop nobody.
//     What readers hold while a backup goes on is allowed above the bound from the beginning: those rounds made commits beside backups wait for 30
//     to 300 ms.
//  4. A round may take seconds, as where the bound has fallen by what a commit has deleted. Commits pass the bound meanwhile, at boundRate all
//     together, and none waits longer than boundWait.
//  5. What commits give back, and what the bound rises by, is for those who wait, in order: see line.go.
//  6. A round makes room for a boundGain-th of the bound beside what is asked for: the checkpoints are for more than one commit.
const (
	boundFactor = 2
	boundExtra  = 32 << 20 // bytes
	// boundSpare, in bytes, is the part of boundExtra that commits leave for folds, cleaning and checkpoints, for which nothing was reserved.
	// With 1 MiB the file passed twice its records and 32 MiB by 4 MiB; more makes the redo limit of small files smaller.
	boundSpare = 6 << 20
	boundClean = 4 << 20 // bytes that cleaning may take of that
	boundGain  = 32
	// boundEmpty: an eighth of the bound is cleaned at once. The flush, the folds and the two checkpoints take about a MiB however much was
	// cleaned: with two segments a round gained nothing where four writers commit pages, and the bound was raised to 100 MiB for 10 MB of records.
	boundEmpty = 8
	boundStep  = 16
	boundLower = 4 // of a step, by which a round that has made room lowers the bound again
	// boundLogged: cleaning may take a 16th of the pages with logged values beside boundClean. Each value that moves dirties its leaf, so a
	// round that moves few of them writes as many leaves as one that moves many. What is spared for it is a 10th: the two checkpoints behind
	// it, before what has left is cut off, take some as well.
	boundLogged = 16
	boundSpared = 10
	boundMost   = 4 << 20 / logstore.PageSize // pages: a commit of more does not wait
	// boundRate, in bytes a second, is counted by what commits reserve, of which they take a third or so. With more, files pass twice their
	// records and 32 MiB while a round goes on; with less, commits wait longer behind one that has deleted much.
	boundRate = 4 << 20
	boundWait = 500 * time.Millisecond
	// treeFactor: live pages beyond 5/2 of the bytes of records in leaves, and not of logged values, are those of long values. Leaves are half
	// full at least.
	treeFactor = 5
)

// crowd is the commits that wait for room within the bound.
type crowd struct {
	line    line
	asked   atomic.Int64 // pages, by one of those who have come to wait since the last round; 0: none has
	bound   atomic.Int64 // bytes; written by the token holder
	raised  int64        // bytes above the bound that are allowed; with the token
	backups atomic.Int32 // under way: what they hold is allowed above the bound
	passing atomic.Int64 // when the last of those who wait may pass the bound, in ns since 1970
}

// enter has a commit of the given number of pages stand in line behind those that wait to pass the bound, and returns how long it does, and what it
// leaves the line with that has found room before, or goes without.
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

// noteBound sets the bound anew. Token held.
func (p *pressure) noteBound() {
	s := p.store.SpaceStats()
	bound := p.boundBytes(s)
	p.crowd.bound.Store(bound)
	if p.opts.Manual || p.room.limited() || p.readers.ending.Load() {
		p.store.SetBound(0)
		return
	}
	if s.FileBytes+s.FileBytes/boundStep <= bound { // a file that is just within its bound may have no room for the next commit
		p.crowd.raised = 0
	}
	held := int64(0)
	if p.crowd.backups.Load() > 0 {
		held = p.store.HeldBytes()
	}
	p.store.SetBound(bound + p.crowd.raised + held)
}

// boundBytes returns the bound for what lives. Token held.
func (p *pressure) boundBytes(s logstore.SpaceStats) int64 {
	payload, logged, known := p.pages.PayloadBytes(p.tree.records)
	fresh := p.tree.fresh()
	if !known {
		return boundFactor*(max(s.LiveBytes, p.tree.sizes().dirty+p.pages.InFlight()*logstore.PageSize)*2/3+fresh) + boundExtra - boundSpare
	}
	payload += fresh
	payload += max(0, s.LiveBytes-s.LoggedBytes-payload*treeFactor/2)
	return boundFactor*(payload+logged) + boundExtra - boundSpare - s.LoggedBytes/boundSpared
}

// awaitBound reserves pages for a commit that would have the file pass its bound, once there is room for them.
func (a *admission) awaitBound(tx *Tx, c logstore.Claim, pages int64) error {
	if tx.gate != nil || pages > boundMost || a.opts.Manual || a.readers.ending.Load() || !a.maintenance.compacting.TryLock() {
		return a.store.ReserveFor(c, pages, 0)
	}
	a.maintenance.compacting.Unlock()
	crowd, place := &a.pressure.crowd, newPlace(pages)
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
			return a.store.ReserveFor(c, pages, 1) // with a page to be left, or as many again would be lent to others: see logstore/space/credit.go
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

// giveUp has a commit leave the line that takes no room, and calls the next if it was called.
func (a *admission) giveUp(p *place) {
	if a.pressure.crowd.line.leave(p) {
		a.pressure.callNext()
	}
}

// callNext calls those who wait for room and find it by now; all of them once the store has failed, to be told.
func (p *pressure) callNext() {
	p.crowd.line.serve(func(pages int64) bool { return p.Failed() != nil || p.store.FitsBound(pages) })
}

// makeWay makes room for commits that have asked for the given number of pages. The caller holds checkpoints.mu.
func (m *maintenance) makeWay(pages int64) (err error) {
	before := m.marks.committed.Load()
	defer func() {
		if lerr := m.log.withLog(func() error {
			m.pressure.noteBound()
			step := m.store.SpaceStats().FileBytes / boundStep
			if !m.pressure.roomy(pages) && m.marks.committed.Load() == before {
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
		if next := m.pressure.crowd.line.wants(); next > 0 && err == nil { // others have taken the room, or more of them have come
			m.pressure.crowd.asked.Store(next)
			m.due.Store(true)
			m.rouse()
		}
	}()
	pages = max(pages, m.pressure.crowd.line.wants())
	if !m.pressure.roomy(pages) && m.store.Returning() >= (pages+m.pressure.wayPages())*logstore.PageSize { // as behind the first flush of a load
		if err := m.checkpoints.checkpointTwice(); err != nil {
			return err
		}
	}
	if m.pressure.roomy(pages) {
		return nil
	}
	for range mostParts {
		n, err := m.flusher.parts()
		if err != nil {
			return err
		}
		if n == 1 {
			break
		}
		if err := m.cleaner.cleanFor(pages); err != nil {
			return err
		}
		if err := m.flusher.sweep(n, true); err != nil || m.pressure.roomy(pages) {
			return err
		}
		if _, err := m.flusher.drain((*override.Batch).FoldOthers, m.pressure.reserveMore); err != nil { // for the flush of the next part
			return err
		}
	}
	if fits, err := m.pressure.allFitsNow(); err != nil || !fits || m.pressure.roomy(pages) { // a flush of all would have the file grow by all that is dirty
		return err
	}
	if err := m.cleaner.cleanFor(pages); err != nil {
		return err
	}
	if err := m.flusher.flush(); err != nil {
		return err
	}
	if _, err := m.flusher.drain((*override.Batch).Fold, m.pressure.reserveMore); err != nil { // what has moved is named by its old place, and so keeps that from reuse
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

// reserveWithin finds room for what background work moves to make room: it may pass the bound by no more than is spared for it.
func (p *pressure) reserveWithin(extra int64) error {
	return p.reservePast(0, extra)
}

// reserveAtRest is reserveWithin where nobody commits: what readers hold does not count, nor what a file is past its bound by, as where commits
// have deleted much at last. A turn moves no more than restMoved.
func (p *pressure) reserveAtRest(extra int64) error {
	return p.reservePast(max(p.store.HeldBytes(), p.store.SpaceStats().FileBytes-p.store.Bound()), extra)
}

// reservePast is reserveWithin that may pass the bound by more bytes than that.
func (p *pressure) reservePast(more, extra int64) error {
	over := boundClean + p.store.SpaceStats().LoggedBytes/boundLogged + more
	err := p.store.ReserveWithin(logstore.ForWrites, extra, over/logstore.PageSize)
	if err == logstore.ErrBound {
		return logstore.ErrFull
	}
	return err
}

func (p *pressure) allFitsNow() (fits bool, err error) {
	err = p.tree.withTree(func() error {
		fits = p.allFits()
		return p.Failed()
	})
	return fits, err
}

// cleanFor empties segments, the emptiest first, until the pages that makeWay is to make room for will be free, where less lives in them than is
// dead. The caller holds checkpoints.mu.
func (c *cleaner) cleanFor(pages int64) error {
	victims, _ := c.store.Victims(c.flusher.stuck, false)
	n, moved, gain := 0, int64(0), int64(0)
	for want := pages + c.store.Bound()/boundEmpty/logstore.PageSize; n < len(victims) && gain < want && victims[n].Live*2 <= int64(c.store.SegmentPages()); n++ {
		moved += victims[n].Live
		gain += int64(c.store.SegmentPages()) - victims[n].Live
	}
	c.at = time.Now()
	_, err := c.cleanVictims(victims[:n], moved, c.searchDue(), c.pressure.reserveWithin)
	return err
}

// wayPages is how many pages there should be room for beside what is asked for.
func (p *pressure) wayPages() int64 { return p.store.Bound() / boundGain / logstore.PageSize }

// roomy reports whether a commit that asks for the given number of pages finds them within the bound, and the next ones too.
func (p *pressure) roomy(pages int64) bool {
	return p.store.FitsBound(pages + p.wayPages())
}
