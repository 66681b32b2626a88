package mvcc

import (
	"errors"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
	"flashdbm/override"
)

// followed is what an engine needs that reads a file beside the process which writes it. Such an engine is at first what recovery makes
// of the file, read-only; then it takes in what the writer appends, each time at a new Seq, so that transactions begun before keep
// their snapshot. See logstore's beside and override's following for what makes that safe.
//
// It shows what the writer has written whole: what recovery would find if the writer were killed now. In Durable mode it syncs the file
// first where the writer has not yet said that it did, so that nothing that was seen can be lost in a power cut either.
type followed struct {
	redo []followedGroup // record groups behind the redo start
	lost bool            // the engine serves the transactions that it has and goes no further
}

type followedGroup struct {
	no  uint64
	ops []btree.Op
}

// startFollowing ends the recovery of an engine beside a writer.
func (e *Engine) startFollowing(rec *logstore.Recovery) error {
	e.follow = &followed{}
	if rec.Created {
		return nil
	}
	for i := range rec.Groups {
		if g := &rec.Groups[i]; g.Kind == logstore.RecordGroup && g.No > e.pages.RedoStart() {
			if err := e.keepRedo(g); err != nil {
				return err
			}
		}
	}
	if err := e.syncFollowed(); err != nil {
		return err
	}
	e.pages.Begin(e.applied.Load() + 1)
	for i := range e.follow.redo {
		e.recovery.Records += int64(len(e.follow.redo[i].ops))
	}
	e.known.tell(e.recovery)
	return e.applyFollowed(0, e.records)
}

func (e *Engine) syncFollowed() error {
	if e.opts.Durability != Durable {
		return nil
	}
	return e.store.SyncFollowed()
}

// keepRedo reads the records of a group. The last one may have come before, with less in it.
func (e *Engine) keepRedo(g *logstore.ScannedGroup) error {
	stream, err := e.redoStream(g)
	if err != nil {
		return err
	}
	f := e.follow
	if n := len(f.redo); n > 0 && f.redo[n-1].no == g.No {
		f.redo = f.redo[:n-1]
	}
	group := followedGroup{no: g.No}
	err = readGroupRedo(stream, g, func(op btree.Op) { group.ops = append(group.ops, op) }, nil)
	count := uint64(len(group.ops))
	if errors.Is(err, redo.ErrHasLayers) {
		group.ops, count, err = e.layeredOps(stream)
	}
	if err != nil {
		return err
	}
	if count != g.Count {
		return redo.ErrStream
	}
	f.redo = append(f.redo, group)
	return nil
}

// CatchUp takes in what the writer has appended. lost: the engine can go no further, and another is to be opened. One goroutine at a
// time.
func (e *Engine) CatchUp() (lost bool, err error) {
	if e.follow.lost {
		return true, nil
	}
	err = e.withBaton(func() error {
		groups, lost, err := e.store.Follow(e.applied.Load() + 1)
		switch {
		case err != nil:
			return err
		case lost:
			e.follow.lost = true
			return nil
		case len(groups) == 0:
			return nil
		}
		if err := e.syncFollowed(); err != nil {
			return err
		}
		return e.takeIn(groups)
	})
	e.follow.lost = e.follow.lost || err != nil
	return e.follow.lost, err
}

// takeIn makes the groups visible, all at one Seq.
func (e *Engine) takeIn(groups []logstore.ScannedGroup) error {
	f := e.follow
	e.pages.Begin(e.applied.Load() + 1)
	fresh, records := len(f.redo), e.records
	for i := range groups {
		g := &groups[i]
		rebased, err := e.pages.Follow(g)
		if err != nil {
			return err
		}
		if g.Kind == logstore.RecordGroup {
			if err := e.keepRedo(g); err != nil {
				return err
			}
			fresh = min(fresh, len(f.redo)-1)
		}
		if rebased {
			start := e.pages.RedoStart()
			n := 0
			for n < len(f.redo) && f.redo[n].no <= start {
				n++
			}
			f.redo = append(f.redo[:0:0], f.redo[n:]...)
			fresh, records = 0, e.pages.BaseRecords()
		}
	}
	e.recovery.Groups += len(groups)
	e.known.tell(e.recovery)
	return e.applyFollowed(fresh, records)
}

// applyFollowed applies the record groups from the given one on and publishes the batch begun last. records is their number before.
func (e *Engine) applyFollowed(from int, records int64) error {
	var ops []btree.Op
	for i := range e.follow.redo[from:] {
		ops = append(ops, e.follow.redo[from+i].ops...)
	}
	if len(ops) > 0 {
		ops, _ = sortOps(ops)
		r, err := btree.Apply(e.pages.SameBatch(), override.Root, ops)
		if err != nil {
			return err
		}
		records += r.Added
	}
	seq := e.pages.Seq()
	e.publish(seq, records)
	e.durable.Store(seq)
	e.reclaim()
	e.pages.Followed(e.horizon.Load())
	if e.memory.Load() > e.opts.MemoryLimit { // readers of earlier Seqs hold what was replaced since
		if oldest, ok := e.registry.Oldest(); ok && oldest.Seq() < seq {
			oldest.Expire()
		}
	}
	return nil
}

// RenewBy says how a read-only transaction is to be had whose snapshot Renew takes over.
func (tx *Tx) RenewBy(begin func() (*Tx, error)) { tx.renew = begin }

// Renew moves a transaction to a newer snapshot after an error, if that helps and there is a way to have one. Its caller has seen nothing of
// the present one.
func (tx *Tx) Renew(err error) bool {
	if tx.renew == nil || !errors.Is(err, ErrSnapshotTooOld) {
		return false
	}
	n, err := tx.renew()
	if err != nil {
		return false
	}
	if n.lease != nil {
		tx.e.leases.Remove(tx.lease)
		n.lease.Succeed(tx.lease)
		tx.lease = n.lease
	}
	tx.leaveSlot()
	tx.e, tx.slot, tx.shared, tx.snap = n.e, n.slot, n.shared, n.snap
	return true
}
