package mvcc

import (
	"errors"

	"flashdbm/internal/btree"
	"flashdbm/internal/overlay"
	"flashdbm/internal/redo"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
	"flashdbm/override"
)

// followed is the state of an engine that reads a file beside the process which writes it. At first such an engine is
// what recovery makes of the file, read-only. Then it takes in what the writer appends, each time at a new Seq, so
// transactions that began before keep their snapshots. What makes that safe is in logstore/beside.go and
// override/follow.go.
//
// It shows what the writer has written whole: what recovery would find if the writer were killed now. In Durable
// mode, if the writer has not said yet that it synced that, the engine syncs the file first, so that nothing it shows
// can be lost in a power cut.
type followed struct {
	redo []followedGroup // record groups after the redo start
	lost bool            // the engine goes no further: it serves the transactions that it has
	feed feed            // the record groups that it has taken in lately
}

type followedGroup struct {
	no     uint64
	ranges []redo.Range // cut before the ops are applied
	ops    []btree.Op
}

// startFollowing ends the recovery of an engine beside a writer.
func (rv *recovery) startFollowing(rec *logstore.Recovery) error {
	rv.follow = &followed{}
	if rec.Created {
		return nil
	}
	rv.follow.feed.beginAnew(rv.pages.RedoStart() + 1)
	for i := range rec.Groups {
		g := &rec.Groups[i]
		switch {
		case g.Kind == logstore.PageGroup:
			rv.follow.feed.beginAnew(max(g.No, rv.pages.RedoStart()+1))
		case g.Kind == logstore.RecordGroup && g.No > rv.pages.RedoStart():
			if err := rv.keepRedo(g); err != nil {
				return err
			}
		}
	}
	if err := rv.syncFollowed(); err != nil {
		return err
	}
	rv.pages.Begin(rv.marks.applied.Load() + 1)
	for i := range rv.follow.redo {
		rv.stats.Records += int64(len(rv.follow.redo[i].ops))
	}
	rv.known.tell(rv.stats)
	return rv.applyFollowed(0, rv.tree.records)
}

func (rv *recovery) syncFollowed() error {
	if rv.opts.Durability != Durable {
		return nil
	}
	return rv.store.SyncFollowed()
}

// keepRedo reads the records of a group. It replaces the last group if that has the same number: the writer has
// appended to it.
func (rv *recovery) keepRedo(g *logstore.ScannedGroup) error {
	stream, err := rv.redoStream(g)
	if err != nil {
		return err
	}
	f := rv.follow
	if n := len(f.redo); n > 0 && f.redo[n-1].no == g.No {
		f.redo = f.redo[:n-1]
	}
	group := followedGroup{no: g.No}
	special, err := readGroup(stream, g, &group.ops)
	if err != nil {
		return err
	}
	for _, x := range special {
		if x.Range != nil {
			group.ranges = append(group.ranges, *x.Range)
		}
	}
	if len(special) > len(group.ranges) {
		if group.ops, err = rv.layeredOps(special); err != nil {
			return err
		}
	}
	f.redo = append(f.redo, group)
	f.feed.note(group)
	return nil
}

// redoStream joins the record pages of a group.
func (rv *recovery) redoStream(g *logstore.ScannedGroup) ([]byte, error) {
	if body := g.Body(); body != nil {
		return body, nil
	}
	stream := make([]byte, 0, g.RedoPages()*logstore.PageSize)
	for _, p := range g.Pages {
		if p.Kind != logstore.KindRecord {
			continue
		}
		body, err := rv.store.Body(p)
		if err != nil {
			return nil, err
		}
		stream = append(stream, body...)
	}
	return stream, nil
}

// layeredOps returns the ops of the layers that a group lists. All of them are in memory until the writer has flushed
// them, which it does at once.
func (rv *recovery) layeredOps(listed []redo.Special) (ops []btree.Op, err error) {
	layers, _, err := rv.openLayers(rv.store.NewUsedPages(), listed)
	if err != nil {
		return nil, err
	}
	m := writeset.MergeLayers(layers, nil)
	for m.Next() {
		op, ref, leads := m.Op()
		if leads && !op.Delete {
			op.Ref = &ref
		}
		ops = append(ops, op)
	}
	return ops, m.Err()
}

// CatchUp takes in what the writer has appended. If lost is true, the engine can go no further, and the caller should
// open another one. An error that comes with lost may be damage, or it may mean that the writer has overwritten what
// this reader was about to read: another engine tells. One goroutine at a time may call it.
func (e *Engine) CatchUp() (lost bool, err error) {
	if e.recovery.follow.lost {
		return true, nil
	}
	err = e.tree.withMerged(func() error {
		groups, lost, err := e.store.Follow(e.marks.applied.Load() + 1)
		switch {
		case err != nil:
			return err
		case lost:
			e.recovery.follow.lost = true
			return nil
		case len(groups) == 0:
			return nil
		}
		if err := e.recovery.syncFollowed(); err != nil {
			return err
		}
		return e.recovery.takeIn(groups)
	})
	e.recovery.follow.lost = e.recovery.follow.lost || err != nil
	return e.recovery.follow.lost, err
}

// takeIn makes the groups visible, all at one Seq.
func (rv *recovery) takeIn(groups []logstore.ScannedGroup) error {
	f := rv.follow
	rv.pages.Begin(rv.marks.applied.Load() + 1)
	fresh, records := len(f.redo), rv.tree.records
	for i := range groups {
		g := &groups[i]
		rebased, err := rv.pages.Follow(g)
		if err != nil {
			return err
		}
		if g.Kind == logstore.RecordGroup {
			if err := rv.keepRedo(g); err != nil {
				return err
			}
			fresh = min(fresh, len(f.redo)-1)
		}
		if rebased {
			start := rv.pages.RedoStart()
			n := 0
			for n < len(f.redo) && f.redo[n].no <= start {
				n++
			}
			f.redo = append(f.redo[:0:0], f.redo[n:]...)
			fresh, records = 0, rv.pages.BaseRecords()
		}
		if g.Kind == logstore.PageGroup || rebased && len(f.redo) == 0 {
			f.feed.beginAnew(g.No)
		} else if rebased {
			f.feed.flushed(rv.pages.RedoStart())
		}
	}
	rv.stats.Groups += len(groups)
	rv.known.tell(rv.stats)
	return rv.applyFollowed(fresh, records)
}

// applyFollowed applies the record groups from index from on, and publishes the batch begun last. records is the
// number of records before.
func (rv *recovery) applyFollowed(from int, records int64) error {
	var ops []btree.Op
	pages := rv.pages.SameBatch()
	apply := func() error {
		var sorter overlay.Sorter
		r, err := btree.Apply(pages, override.Root, sorter.Sort(ops, func(btree.Ref) {}))
		records, ops = records+r.Added, nil
		return err
	}
	for _, g := range rv.follow.redo[from:] {
		if len(g.ranges) > 0 {
			if err := apply(); err != nil {
				return err
			}
		}
		for _, x := range g.ranges {
			r, err := btree.Cut(pages, override.Root, x.From, x.To)
			if err != nil {
				return err
			}
			records += r.Added
		}
		ops = append(ops, g.ops...)
	}
	if err := apply(); err != nil {
		return err
	}
	seq := rv.pages.Seq()
	rv.tree.publish(seq, records)
	rv.marks.durable.Store(seq)
	rv.tree.reclaim()
	rv.pages.Followed(rv.tree.horizon.Load())
	if rv.tree.memory.Load() > rv.opts.MemoryLimit { // readers of earlier Seqs hold what was replaced since
		if oldest, ok := rv.readers.registry.Oldest(); ok && oldest.Seq() < seq {
			oldest.Expire()
		}
	}
	return nil
}

// RenewBy sets the function that begins another read-only transaction, whose snapshot Renew takes over.
func (tx *pinned) RenewBy(begin func() (*Tx, error)) { tx.renew = begin }

// Renew moves a transaction to a newer snapshot after an error, and reports whether it did. It does so only for
// ErrSnapshotTooOld, and if RenewBy was called. The caller must not have returned anything of the present snapshot to
// its user.
func (tx *pinned) Renew(err error) bool {
	if tx.renew == nil || !errors.Is(err, ErrSnapshotTooOld) {
		return false
	}
	n, err := tx.renew()
	if err != nil {
		return false
	}
	if n.lease != nil {
		tx.e.readers.leases.Remove(tx.lease)
		n.lease.Succeed(tx.lease)
		tx.lease = n.lease
	}
	tx.leaveSlot()
	tx.e, tx.slot, tx.shared, tx.snap = n.e, n.slot, n.shared, n.snap
	return true
}
