package mvcc

import (
	"sync/atomic"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// redoLog is redo on its way to the log. Its fields but the atomic ones belong to the token's holder.
type redoLog struct {
	*file
	marks   *watermarks
	readers *readers
	token   *token
	room    *room

	redo     []byte          // not yet in the log; between batches empty unless Buffered, see unlogged
	redoOps  uint64          // records in redo
	open     *logstore.Group // of redo that is not yet in the log; Buffered
	runs     []bornRun       // of the group being built
	newborn  []bornLogged    // of groups not written
	refs     []btree.Ref     // room for those of logged values
	scratch  []byte
	bytes    redo.Bytes
	recent   recent
	device   device
	unlogged atomic.Bool   // redo has commits that have returned, or are about to: set before they do, false only once they are in the log and noted
	wanted   atomic.Bool   // a sync waits for the token's holder to log what is in memory; set by the sync, taken back by a holder. See logBuffered
	syncDue  chan struct{} // a sync is due before the next tick; room for one
}

// recent is what background work goes by that commits have done lately. It belongs to the token's holder.
type recent struct {
	batches  uint64 // so far
	ops      int    // in the last batch of commits
	reserved int64  // pages, by small Buffered commits whose accounts are not done yet: see accountPages
	stays    bool   // values of the last batch stay in the log: no flush brings page groups nearer
	beside   bool   // its group is synced beside the next one: the same
	row      row
}

// row counts the lone commits in a row, each of which changed the same leaf as the one before it, or one that was dirty. Token held.
type row struct {
	leaf    logstore.PageID
	commits int
}

// inRow reports whether the next commit is taken for one to the same leaf as those before it. Token held.
func (l *redoLog) inRow() bool { return l.recent.row.commits >= leastRow }

// waiting returns the bytes of redo that are in no group that was written.
func (l *redoLog) waiting() int64 {
	if l.open != nil {
		return l.open.Pages() * logstore.BodySize
	}
	return int64(len(l.redo))
}

// redoGroup returns the group that redo goes to: where commits are buffered that of those before, until it is written.
func (l *redoLog) redoGroup() *logstore.Group {
	if l.open != nil {
		return l.open
	}
	return l.store.Begin(logstore.RecordGroup)
}

// keepOpen leaves the group in memory, until it is written by writeRedo, which whoever begins another group calls.
func (l *redoLog) keepOpen(g *logstore.Group) {
	if l.open == nil && g.Pages() > 0 {
		l.open, g.Held = g, l.writeRedo
	}
}

// commitRedo is commitRecords for a group that has no runs, or before those are born.
func (l *redoLog) commitRedo(g *logstore.Group) (group uint64, err error) {
	if len(l.redo) > 0 {
		g.Write(logstore.KindRecord, l.redo)
	}
	l.open = nil
	pages := g.Pages()
	if group, err = g.Commit(l.redoOps); err != nil {
		return 0, err
	}
	l.bearLogged(group)
	l.room.logged += pages
	l.bytes.Add(pages * logstore.PageSize)
	l.redo, l.redoOps = l.redo[:0], 0
	return group, nil
}

// writeRedo logs what Buffered commits have left in memory. The batch at hand, if there is one, is none of these commits: what its
// transactions have written to private segments is theirs still, as no group has listed it. Token held.
func (l *redoLog) writeRedo() error {
	if err := l.Failed(); err != nil || l.waiting() == 0 {
		return err
	}
	if _, err := l.commitRedo(l.redoGroup()); err != nil {
		return err
	}
	l.room.spend()
	l.marks.groups.Note(l.store.LastGroup(), l.marks.applied.Load())
	l.unlogged.Store(false)
	return nil
}

// noteLogged notes that the batch at seq is in the log, unless it is in e.redo on its way there. Token held.
func (l *redoLog) noteLogged(seq uint64) {
	if l.waiting() == 0 {
		l.marks.groups.Note(l.store.LastGroup(), seq)
	}
}

// startSync sets the device to work on the group that was written last, if it will be synced.
func (l *redoLog) startSync() error {
	if l.opts.Durability != Durable {
		return nil
	}
	return l.store.WriteOutTail()
}

// syncLog syncs all groups so far.
func (l *redoLog) syncLog() error {
	if l.store.Durable() >= l.store.LastGroup() { // as behind a page group
		l.marks.publishDurable()
		return l.Failed()
	}
	begun := time.Now()
	err := l.store.Sync()
	l.device.wait(time.Since(begun))
	l.marks.publishDurable()
	return err
}

// syncBeside is syncLog for a leader who has passed the token on.
func (l *redoLog) syncBeside() error {
	begun := time.Now()
	err := l.store.Sync()
	l.device.took.Add(int64(time.Since(begun)))
	l.marks.publishDurable()
	return err
}

// syncSettled makes all commits that are settled durable.
func (l *redoLog) syncSettled() error {
	if err := l.logBuffered(); err != nil {
		return err
	}
	if err := l.store.Sync(); err != nil {
		return err
	}
	l.marks.publishDurable()
	return nil
}

// awaitDurable returns once the batch at seq survives a power cut, and views see it. A batch is noted behind being shown, so that durable never
// passes applied: who saw it between the two finds it synced and durable below it. It is noted before its token is passed on.
func (l *redoLog) awaitDurable(seq uint64) error {
	if l.marks.durable.Load() >= seq {
		return nil
	}
	if err := l.store.Sync(); err != nil {
		return err
	}
	l.marks.publishDurable()
	if l.marks.durable.Load() >= seq {
		return nil
	}
	l.token.take()
	l.token.pass(true)
	return l.syncSettled()
}

// lacks returns how many pages are to be reserved for a flush of the given number of pages. Token held.
func (l *redoLog) lacks(pages int64) int64 {
	return max(0, withMargin(pages)+redo.Pages(l.waiting())-l.room.held)
}

// provideFor makes sure that a flush of the given number of pages has room, for which some was reserved ahead. Token held.
func (l *redoLog) provideFor(pages, ahead int64) error {
	l.room.rebalance(0)
	l.room.held += ahead
	missing := l.lacks(pages)
	err := l.store.Reserve(missing, true)
	if err == nil {
		l.room.held += missing
	}
	return err
}
