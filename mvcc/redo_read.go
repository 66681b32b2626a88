package mvcc

import (
	"time"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// readyRedo reads what is to be redone, in its own goroutine: it only reads, and meanwhile recovery can write the
// same pages again and sync them. The function that it returns waits for the result, which is nil if there is nothing
// to redo.
func (rv *recovery) readyRedo(rec *logstore.Recovery) func() (*redoTable, error) {
	var r *redoTable
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		if rv.opts.Store.Beside { // it keeps what it redoes: see startFollowing
			return
		}
		begin := time.Now()
		r, err = rv.readRedo(rec)
		rv.stats.Steps.Sort = time.Since(begin)
	}()
	return func() (*redoTable, error) {
		<-done
		return r, err
	}
}

// readRedo reads the record groups after the redo start, in their order, wherever they are in the file; nil if there
// are none.
func (rv *recovery) readRedo(rec *logstore.Recovery) (r *redoTable, err error) {
	base, start := rv.pages.Base(), rv.pages.RedoStart()
	var pages, count int
	due := func(g *logstore.ScannedGroup) bool { return g.Kind == logstore.RecordGroup && g.No > start }
	for i := range rec.Groups {
		if g := &rec.Groups[i]; due(g) {
			pages += g.RedoPages()
			count += int(min(g.Count, uint64(g.RedoPages())*logstore.PageSize))
		}
	}
	if count == 0 {
		return nil, nil
	}
	r = &redoTable{recovery: rv, merge: rv.mergeRedo}
	step := r.begin()
	step.Reserve(min(count, pages*logstore.PageSize/16))
	bodies := make([]byte, 0, pages*logstore.PageSize)
	var ops []btree.Op
	for i := range rec.Groups {
		g := &rec.Groups[i]
		if !due(g) {
			continue
		}
		from := len(bodies)
		if bodies, err = rv.store.AppendBodies(bodies, g.Pages, logstore.KindRecord); err != nil {
			return nil, err
		}
		ops = ops[:0]
		special, err := readGroup(bodies[from:len(bodies):len(bodies)], g, &ops)
		if err != nil {
			return nil, err
		}
		if len(special) > 0 {
			step.special = special
			step.Show()
			step = r.begin()
		}
		step.add(ops)
		if g.No <= base {
			step.old, step.lost = step.Len(), nil
		}
		rv.log.bytes.Add(int64(g.RedoPages()) * logstore.PageSize)
	}
	step.Show()
	return r, nil
}

// readGroup decodes the redo of a group. special is what precedes the ops: ranges, and what lists layers. A group
// that lists layers has no ops.
func readGroup(stream []byte, g *logstore.ScannedGroup, ops *[]btree.Op) (special []redo.Special, err error) {
	layered := false
	err = readGroupRedo(stream, g, func(op btree.Op) { *ops = append(*ops, op) }, func(x redo.Special) {
		special = append(special, x)
		layered = layered || x.Range == nil
	})
	if n, m := len(*ops), len(special); err == nil && (uint64(n+m) != g.Count || n > 0 && layered) {
		err = redo.ErrStream
	}
	return special, err
}

// openLayers opens the layers that a group lists; none of their pages may be in used yet. drops is what dies when
// they are merged, although the tree never had it.
func (rv *recovery) openLayers(used *logstore.UsedPages, listed []redo.Special) (layers []*writeset.Layer, drops []btree.Ref, err error) {
	for _, x := range listed {
		if x.Range != nil {
			continue
		}
		if x.Drop != nil {
			drops = append(drops, *x.Drop)
			continue
		}
		var all []logstore.Extent
		for _, a := range x.Layer {
			extents, err := rv.store.UseListOnce(used, a)
			if err != nil {
				return nil, nil, err
			}
			drops = append(drops, layerRef(a, extents))
			all = append(all, extents...)
		}
		l, err := writeset.OpenLayer(rv.store, all)
		if err != nil {
			return nil, nil, err
		}
		layers = append(layers, l)
		rv.stats.Layers++
	}
	return layers, drops, nil
}

// startRedo makes readers see the redo. It merges the redo at once if there are few records, or several steps, before
// anything else uses the engine; otherwise the merge follows in the background.
func (rv *recovery) startRedo(r *redoTable) error {
	if r == nil {
		return nil
	}
	for _, s := range r.steps {
		rv.stats.Records += int64(s.Len())
	}
	rv.tree.tables.redo.Store(r)
	rv.tree.publishView(baseSeq, baseSeq)
	rv.marks.show(redoSeq)
	rv.marks.durable.Store(redoSeq)
	if !r.stepwise() && rv.redoneBehind(int(rv.stats.Records)) {
		return nil
	}
	if err := rv.tree.mergeAll(); err != nil {
		return err
	}
	return rv.Failed() // durable data could be read, but an engine that cannot write must not open
}
