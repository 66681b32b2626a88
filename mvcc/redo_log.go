package mvcc

import (
	"sync/atomic"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// redoLog is redo on its way to the log. Its fields except the atomic ones belong to the token holder.
type redoLog struct {
	*file
	marks   *watermarks
	readers *readers
	token   *token
	room    *room

	redo    []byte          // not yet in the log; empty between batches unless Buffered: see unlogged
	redoOps uint64          // records in redo
	open    *logstore.Group // Buffered: the group with redo that is not yet in the log
	runs    []bornRun       // of the group that is being built
	newborn []bornLogged    // of groups that were not written yet
	refs    []btree.Ref     // memory for references to logged values
	scratch []byte
	bytes   redo.Bytes
	recent  recent
	device  device
	// unlogged: redo or open has commits that have returned or are about to. Set before they return; false only when
	// they are in the log and noted in marks.
	unlogged atomic.Bool
	logged   atomic.Uint64 // Seq up to which the log has all commits, noted in marks before
	// wanted: a sync waits for the token holder to log what is in memory. The sync sets it, a holder resets it. See
	// logBuffered.
	wanted  atomic.Bool
	syncDue chan struct{} // a sync is due before the next tick; room for one
	asked   atomic.Int64  // calls of syncAwaited since segments were last zeroed
}

// recent is what commits have done lately, for decisions of background work. It belongs to the token holder.
type recent struct {
	batches  uint64 // since the engine was opened
	ops      int    // in the last batch of commits
	reserved int64  // pages reserved by small Buffered commits that account has not counted yet: see accountPages
	stays    bool   // values of the last batch stay in the log, so no flush brings page groups nearer
	beside   bool   // its group is synced beside the next one, so no flush brings page groups nearer
	row      row
}

// row counts lone commits in a row, each of which changed the same leaf as the one before it, or a leaf that was
// dirty. Token held.
type row struct {
	leaf    logstore.PageID
	commits int
}

// inRow reports whether the next commit is expected to change the same leaf as those before it. Token held.
func (l *redoLog) inRow() bool { return l.recent.row.commits >= leastRow }

// waiting returns the bytes of redo that no written group has.
func (l *redoLog) waiting() int64 {
	if l.open != nil {
		return l.open.Pages() * logstore.BodySize
	}
	return int64(len(l.redo))
}

// redoGroup returns the group that redo goes to: the open one if Buffered commits have left one, else a new one.
func (l *redoLog) redoGroup() *logstore.Group {
	l.token.mustBeHeld()
	if l.open != nil {
		return l.open
	}
	return l.store.Begin(logstore.RecordGroup)
}

// keepOpen leaves the group in memory until writeRedo writes it. A goroutine that begins another group calls that
// first, by way of g.Held.
func (l *redoLog) keepOpen(g *logstore.Group) {
	l.token.mustBeHeld()
	if l.open == nil && g.Pages() > 0 {
		l.open, g.Held = g, l.writeRedo
	}
}

// commitRedo writes g with the redo at hand. It does not note the group's runs: see committer.commitRecords and
// bearRuns. Token held.
func (l *redoLog) commitRedo(g *logstore.Group) (group uint64, err error) {
	l.token.mustBeHeld()
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

// writeRedo logs what Buffered commits have left in memory. That never includes the batch at hand: what its
// transactions have written to private segments is still theirs, as no group has listed it. Token held.
func (l *redoLog) writeRedo() error {
	l.token.mustBeHeld()
	if err := l.Failed(); err != nil || l.waiting() == 0 {
		return err
	}
	if _, err := l.commitRedo(l.redoGroup()); err != nil {
		return err
	}
	l.room.spend()
	l.note(l.marks.applied.Load())
	l.unlogged.Store(false)
	return nil
}

// noteLogged notes that the batch at seq is in the log, unless its redo is still in memory. Token held.
func (l *redoLog) noteLogged(seq uint64) {
	l.token.mustBeHeld()
	if l.waiting() == 0 {
		l.note(seq)
	}
}

// note notes that the log has all commits up to seq. Token held.
func (l *redoLog) note(seq uint64) {
	l.marks.groups.Note(l.store.LastGroup(), seq)
	l.logged.Store(seq)
}

// startSync makes the device start to write the last group, in Durable mode.
func (l *redoLog) startSync() error {
	if l.opts.Durability != Durable {
		return nil
	}
	return l.store.WriteOutTail()
}

// syncLog syncs all groups so far. Token held.
func (l *redoLog) syncLog() error {
	if l.store.Durable() >= l.store.LastGroup() { // as after a page group
		l.marks.publishDurable()
		return l.Failed()
	}
	begun := time.Now()
	err := l.store.Sync()
	l.device.wait(time.Since(begun))
	l.marks.publishDurable()
	return err
}

// syncBeside is syncLog for a leader that has passed the token on.
func (l *redoLog) syncBeside() error {
	begun := time.Now()
	err := l.store.Sync()
	l.device.took.Add(int64(time.Since(begun)))
	l.marks.publishDurable()
	return err
}

// syncCommitted makes all commits that are completed durable. The caller does not hold the token.
func (l *redoLog) syncCommitted() error {
	if err := l.logBuffered(); err != nil {
		return err
	}
	if err := l.store.Sync(); err != nil {
		return err
	}
	l.marks.publishDurable()
	return nil
}

// syncAwaited is syncCommitted for a caller that waits for the sync, unlike the
// tick.
func (l *redoLog) syncAwaited() error {
	l.asked.Add(1)
	return l.syncCommitted()
}

// awaitDurable returns when the batch at seq survives a power cut and Views see it. A batch is noted in marks after
// it was shown, so that durable never passes applied. A reader that saw it in between finds the store synced and
// durable below seq; then awaitDurable takes the token once, because the batch is noted before its leader passes the
// token on.
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
	return l.syncCommitted()
}

// lacks returns how many more pages have to be reserved for a flush of the given number of pages. Token held.
func (l *redoLog) lacks(pages int64) int64 {
	return max(0, withMargin(pages)+redo.Pages(l.waiting())-l.room.held)
}

// provideFor makes sure that a flush of the given number of pages has room; ahead of them were reserved by the
// caller. Token held.
func (l *redoLog) provideFor(pages, ahead int64) error {
	l.token.mustBeHeld()
	l.room.rebalance(0)
	l.room.held += ahead
	missing := l.lacks(pages)
	err := l.store.Reserve(missing, true)
	if err == nil {
		l.room.held += missing
	}
	return err
}
