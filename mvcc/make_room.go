package mvcc

import (
	"time"

	"flashdbm/logstore"
	"flashdbm/override"
)

// A file is full when a commit finds no room in it. Then dead pages are made free, with the room that
// logstore/space/reservations.go holds back for that: a flush gives up what commits have replaced, and two
// checkpoints make it reusable when the readers that may look at it have ended. If many segments have few live pages,
// these are moved together, again and again as long as that gains room. Before that, leaves are filled up that puts
// in random key order have left partly empty: see spread.go.

const (
	roomTries = 8                      // attempts of a commit to make room that others take
	roomWait  = 100 * time.Millisecond // longest wait for readers to leave dead pages, before they are asked to end
	lastWait  = time.Second            // longest wait when they have been asked to end
	vainTries = 8                      // attempts to gain room by cleaning that have gained nothing

	// longTable: a fold of all parents writes about a 200th of the live pages. With a smaller share of the pages in
	// the table, it costs more than the shorter checkpoints gain. With a larger share, files of 64 MiB stay at 67 %
	// payload for records of 40 bytes instead of 70.
	longTable = 8
)

// roomWanted is what a commit on a full file asks for.
type roomWanted struct {
	// deletes: the commit only deletes, so segments are cleaned even if nearly all of them is live.
	deletes bool
	full    bool // the same for a put that only replaces
	// pages is how many pages the commit needs. Readers that hold that many are asked to end; for deletes also
	// readers that hold fewer.
	pages   int64
	reserve func(more int64) error // reserves what the commit needs, if more pages than that are free
	asked   bool                   // readers were waited for once,
	vain    bool                   // and were asked to end, and have not ended: see waitsInVain
}

// makeRoom is called by a committer that finds the file full, and reserves what the committer needs. It makes more
// room than that if it can, since otherwise the next commit would do the same again. If others have committed
// meanwhile, they may have taken the room, and makeRoom tries again.
func (a *admission) makeRoom(w roomWanted) error {
	for try := 1; ; try++ {
		before := a.marks.committed.Load()
		installed, err := a.freeDead()
		if err != nil && !logstore.IsFull(err) {
			return err
		}
		more := a.store.Slack() / 2
		if err = a.awaitRoom(installed, &w, more); logstore.IsFull(err) && !w.deletes && !w.full {
			err = a.spread(&w, more)
		}
		if logstore.IsFull(err) {
			err = a.cleanForRoom(&w, more)
		}
		if !logstore.IsFull(err) || a.marks.committed.Load() == before || try == roomTries {
			return err
		}
	}
}

// freeDead flushes and checkpoints twice. It returns the Seq from which on readers do not see what the last flush has
// retired.
func (a *admission) freeDead() (installed uint64, err error) {
	a.step(StepWait)
	a.checkpoints.mu.Lock()
	defer a.checkpoints.mu.Unlock()
	if err = a.flusher.flushParts(); err == nil {
		err = a.flusher.flush()
	}
	for range 2 {
		if err == nil {
			err = a.checkpoints.checkpoint()
		}
	}
	return a.flusher.installed.Load(), err
}

// cleanForRoom moves the live pages of the emptiest segments together until there is room, or as long as that gains
// room.
func (a *admission) cleanForRoom(w *roomWanted, more int64) error {
	a.checkpoints.mu.Lock()
	defer a.checkpoints.mu.Unlock()
	err := w.reserve(more)
	most := a.store.Room()
	// still counts turns in a row that have moved nothing. One such turn may help: a segment in which redo began can
	// be emptied only after its checkpoints.
	still := 0
	for vain := 0; logstore.IsFull(err) && vain < vainTries; vain++ {
		if vain > 0 { // enough for the commit alone will do
			more = 0
		}
		moved, cerr := a.cleaner.cleanOnce(w.deletes || w.full)
		if cerr != nil && !logstore.IsFull(cerr) {
			return cerr
		}
		if _, cerr := a.tree.reclaimNow(); cerr != nil {
			return cerr
		}
		err = a.awaitRoom(a.flusher.installed.Load(), w, more)
		room := a.store.Room()
		if still++; moved {
			still = 0
		}
		if still > 1 {
			break
		}
		if room > most {
			most, vain = room, 0
		}
	}
	if logstore.IsFull(err) {
		err = w.reserve(0)
	}
	return err
}

// cleanOnce cleans as much as there is room for, and reports whether that was anything. The parents of what has
// moved are folded after the flush that moves it: until then its name keeps the old segment. The caller holds
// checkpoints.mu.
func (c *cleaner) cleanOnce(full bool) (moved bool, err error) {
	rest := 2 * c.store.CheckpointPages()
	reserve := func(extra int64) error { return c.store.ReserveBeside(extra, rest) }
	if err := c.flusher.shortenTable(reserve); err != nil {
		return false, err
	}
	drained, err := c.flusher.drain((*override.Batch).Fold, reserve)
	if err != nil {
		return false, err
	}
	victims, _ := c.store.Victims(c.flusher.stuck, full)
	room := c.store.Room() - rest
	before := c.flusher.moved.Load()
	if _, err = c.cleanVictims(victims, room/2, true, reserve); err != nil {
		return false, err
	}
	moved = c.flusher.moved.Load() > before
	if err = c.flusher.flush(); err != nil {
		return moved, err
	}
	also, err := c.flusher.drain((*override.Batch).Fold, reserve)
	if err != nil {
		return moved, err
	}
	for _, do := range []func() error{c.flusher.flush, c.checkpoints.checkpoint, c.checkpoints.checkpoint} {
		if err := do(); err != nil {
			return moved, err
		}
	}
	return moved || drained || also, nil
}

// awaitRoom reserves what a committer needs, if more pages besides are free. It tries until nobody reads below the
// given Seq, and then returns the last result. After lastWait, or when waiting is no use, it does without the further
// pages; later puts do not wait for the same reader again. Readers that make it wait for longer than roomWait are asked
// to end, if that can help; deletes always ask.
func (a *admission) awaitRoom(installed uint64, w *roomWanted, more int64) error {
	begin := time.Now()
	w.vain = w.vain || a.waitsInVain(installed)
	for {
		err := w.reserve(more)
		if !logstore.IsFull(err) || a.tree.horizon.Load() >= installed {
			return err
		}
		switch waited := time.Since(begin); {
		case waited > lastWait || w.vain && !w.deletes:
			if waited > lastWait {
				a.awaited.Store(a.tree.horizon.Load() + 1)
			}
			w.vain = true
			return w.reserve(0)
		case waited > roomWait || w.asked:
			w.asked = true
			if !w.deletes && a.store.HeldBytes() < w.pages*logstore.PageSize {
				return w.reserve(0)
			}
			a.readers.expireBelow(installed)
		}
		time.Sleep(time.Millisecond)
		if _, err := a.tree.reclaimNow(); err != nil {
			return err
		}
	}
}
