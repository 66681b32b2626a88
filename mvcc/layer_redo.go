package mvcc

import (
	"cmp"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// redoWithLayers redoes the record groups behind the redo start if some of them list layers: what lies between those is sorted by key and
// applied in pieces, and so is what the layers hold. A writing open that needs more memory than half the limit flushes as it goes, and
// at the end in any case, so that the layers give up their room. It may be more than memory holds, so it is written early as far as there
// is room at all, unlike other redo: see provide.
func (rv *recovery) redoWithLayers(rec *logstore.Recovery) error {
	rv.checkpoints.mu.Lock()
	defer rv.checkpoints.mu.Unlock()
	return rv.tree.withMerged(func() error {
		rv.pressure.layered = true
		r := &layeredRedo{recovery: rv, used: rv.store.NewUsedPages(), p: rv.flusher.beginPieces(rv.store.LastGroup(), 0)}
		if err := r.groups(rec); err != nil {
			r.p.abandon()
			return err
		}
		rv.stats.Records = r.records
		rv.tree.publish(rv.pages.Seq(), r.p.records)
		rv.marks.durable.Store(rv.marks.applied.Load())
		if f := r.p.seal(!rv.opts.Store.ReadOnly); f != nil {
			return rv.flusher.finishFlush(f, rv.flusher.between)
		}
		rv.tree.reclaim()
		return nil
	})
}

// layeredRedo is the redo at hand.
type layeredRedo struct {
	recovery *recovery
	p        *pieces
	ops      []btree.Op          // of groups without layers, not yet applied
	layers   []*writeset.Layer   // of the group at hand
	used     *logstore.UsedPages // pages that layers have
	drops    []btree.Ref
	old      map[btree.Ref]bool // values of groups up to the base: see overlay.NewTable
	records  int64
}

func (r *layeredRedo) groups(rec *logstore.Recovery) error {
	base, start := r.recovery.pages.Base(), r.recovery.pages.RedoStart()
	r.old = map[btree.Ref]bool{}
	for i := range rec.Groups {
		g := &rec.Groups[i]
		if g.Kind != logstore.RecordGroup || g.No <= start {
			continue
		}
		before := len(r.ops)
		if err := r.group(g); err != nil {
			return err
		}
		for i := before; i < len(r.ops) && g.No <= base; i++ {
			if ref := r.ops[i].Ref; ref != nil {
				r.old[*ref] = true
			}
		}
		r.recovery.log.bytes.Add(int64(g.RedoPages()) * logstore.PageSize)
	}
	return r.applyOps()
}

func (r *layeredRedo) group(g *logstore.ScannedGroup) error {
	stream, err := r.recovery.redoStream(g)
	if err != nil {
		return err
	}
	before, count := len(r.ops), uint64(0)
	rerr := readGroupRedo(stream, g, func(op btree.Op) { r.ops = append(r.ops, op) }, func(x redo.Spilled) {
		count++
		if err == nil {
			err = r.layer(x)
		}
	})
	switch {
	case rerr != nil:
		return rerr
	case err != nil:
		return err
	case count == 0:
		if uint64(len(r.ops)-before) != g.Count {
			return redo.ErrStream
		}
		return nil
	case count != g.Count || len(r.ops) != before:
		return redo.ErrStream
	}
	if err := r.applyOps(); err != nil {
		return err
	}
	err = r.p.applyLayers(r.layers, func([]byte) { r.records++ })
	for _, ref := range r.drops {
		r.p.batch.Drop(ref)
	}
	r.layers, r.drops = nil, nil
	return err
}

// layer takes in what a record of layers says.
func (r *layeredRedo) layer(x redo.Spilled) error {
	if x.Drop != nil {
		r.drops = append(r.drops, *x.Drop)
		return nil
	}
	var all []logstore.Extent
	for _, a := range x.Layer {
		extents, err := r.recovery.store.UseListOnce(r.used, a)
		if err != nil {
			return err
		}
		r.drops = append(r.drops, layerRef(a, extents))
		all = append(all, extents...)
	}
	l, err := writeset.OpenLayer(r.recovery.store, all)
	if err == nil {
		r.layers = append(r.layers, l)
		r.recovery.stats.Layers++
	}
	return err
}

// applyOps applies the ops at hand, of each key the last one. The values of the others are in the log and never get into the tree.
func (r *layeredRedo) applyOps() error {
	keep, lost := sortOps(r.ops)
	for _, ref := range lost {
		if !r.old[ref] {
			r.p.batch.Drop(ref)
		}
	}
	r.records += int64(len(keep))
	err := r.p.apply(keep)
	clear(r.ops)
	r.ops = r.ops[:0]
	return err
}

// layeredOps returns what the layers of a stream come to, and the number of the stream's records. It is all in memory until the writer has
// flushed it, which it does at once.
func (rv *recovery) layeredOps(stream []byte) (ops []btree.Op, count uint64, err error) {
	r := &layeredRedo{recovery: rv, used: rv.store.NewUsedPages()}
	rerr := redo.Read(stream, func(btree.Op) { err = redo.ErrStream }, func(x redo.Spilled) {
		count++
		if err == nil {
			err = r.layer(x)
		}
	})
	if rerr != nil || err != nil {
		return nil, 0, cmp.Or(rerr, err)
	}
	m := writeset.MergeLayers(r.layers, nil)
	for m.Next() {
		op, ref, leads := m.Op()
		if leads && !op.Delete {
			op.Ref = &ref
		}
		ops = append(ops, op)
	}
	return ops, count, m.Err()
}
