package mvcc

import (
	"runtime/debug"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
	"flashdbm/override"
)

// A commit is heavy if part of its write set is in layers, if it has so many keys that the pages they change may take
// more than half of MemoryLimit, or if it cuts ranges (cut.go). A heavy commit is a batch of its own, is applied in
// pieces (see pieces), and may have to begin a flush in the middle. So its committer takes checkpoints.mu first,
// which keeps other flushes away, and then the token. With both it completes what waits in the commit list, resolves
// and pushes its commit, and leads its own batch:
//
//	layers   what is left of the write set in memory becomes a layer too; SyncPrivate
//	push     nobody else drains the commit: the token is here
//	log      a record group: the redo, or the list of the layers, which from then on belong to the log
//	sync     not in WriteThrough mode
//	apply    cut the ranges, then apply in pieces, under a Seq that nobody reads at; enter keys into the table of
//	         last writes
//	applied  moves: the tree has the batch
//	cut      the commit list; durable moves
//	flush    of what was not written early. Layers make it due at once, because they take room until the end of the
//	         flush lists them as dead; so do ranges (cut.go)
//
// Crash cases: a group that lists layers counts only if it is whole, and the layers were synced before it. Without
// the group, recovery takes the segments of the layers for free. With it, recovery merges the layers again until a
// flush whose base is not below the group is whole; so the layers, and the runs that they refer to, live until that
// flush lists them. A record's run lives as long as the record.
//
// Readers go on meanwhile, at lower Seqs. Other commits wait, as they do for any batch.

// heavy reports whether the transaction commits as a heavy one.
func (tx *Tx) heavy() bool {
	if n := tx.set.Len(); n > 2*minPieceOps && n > 2*tx.e.pieceOps() {
		return true
	}
	return tx.set.Spilled() != nil || len(tx.cuts) > 0
}

// commitHeavy commits a heavy transaction that was admitted.
func (c *committer) commitHeavy(tx *Tx, n *commitNode) error {
	lost, err := c.leadHeavy(tx, n)
	n.Value.tx = nil
	if tx.pushed == nil {
		c.store.Release(tx.held)
	}
	if lost != nil {
		return c.resolver.lost(lost)
	}
	return err
}

// leadHeavy resolves and completes a heavy commit. If it conflicts with another commit, nothing was done,
// and lost is that conflict.
func (c *committer) leadHeavy(tx *Tx, n *commitNode) (lost *conflict, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	c.step(StepWait)
	c.checkpoints.mu.Lock()
	defer c.checkpoints.mu.Unlock()
	if c.tree.memory.Load() > c.earlyBytes()/2 { // what is dirty now stays in memory until the end
		if err := c.flusher.flush(); err != nil && !logstore.IsFull(err) {
			return nil, err
		}
	}
	if err := mayCut(c, tx); err != nil {
		return nil, err
	}
	err = c.tree.withMerged(func() (err error) {
		lost, err = c.turnHeavy(tx, n)
		return err
	})
	return lost, err
}

// turnHeavy is leadHeavy with the token and checkpoints.mu held.
func (c *committer) turnHeavy(tx *Tx, n *commitNode) (*conflict, error) {
	c.commitNodes(c.resolver.list.Drain(c.batch.nodes[:0]), nil)
	if err := c.Failed(); err != nil {
		return nil, err
	}
	if lost, err := c.resolver.resolveHeavy(tx, n); lost != nil || err != nil {
		return lost, err
	}
	tx.pushed = n
	var f *override.Flush
	err := c.commitAround(n, func() (err error) {
		f, err = c.mergeAndApplyHeavy(n)
		return err
	})
	if err != nil || f == nil {
		return nil, err
	}
	return nil, c.flusher.finishFlush(f, c.log.bytes.Total(), c.flusher.between)
}

// resolveHeavy is resolve for the token holder. Nobody else drains or cuts meanwhile, so after a failed push only the
// commits that were pushed since need to be looked at: a large transaction is checked while others push.
func (r *resolver) resolveHeavy(tx *Tx, n *commitNode) (*conflict, error) {
	var checked *commitNode
	for first := true; ; first = false {
		head := r.list.Head()
		switch {
		case tx.blind():
		case first:
			if why := r.conflict(tx, head); why != nil {
				return why, nil
			}
			if err := r.validate(tx); err != nil {
				return nil, err
			}
		default:
			for x := head; x != checked; x = x.Next() {
				if r.dependsOn(tx, &x.Value) {
					return &conflict{winner: &x.Value}, nil
				}
			}
		}
		if r.list.Push(n, head) {
			return nil, nil
		}
		checked = head
	}
}

// commitAround drains the list, which contains n. It completes the commits before n as a batch, then n by commit,
// then those after n as a batch, also after a panic, which has poisoned the store. Token held.
func (c *committer) commitAround(n *commitNode, commit func() error) error {
	nodes := c.resolver.list.Drain(nil)
	at := 0
	for nodes[at] != n {
		at++
	}
	defer c.commitNodes(nodes[at+1:], nil)
	c.commitNodes(nodes[:at:at], nil)
	return commit()
}

// mergeAndApplyHeavy logs and applies a heavy commit. It returns the flush to finish at once, nil for none.
func (c *committer) mergeAndApplyHeavy(n *commitNode) (f *override.Flush, err error) {
	defer c.protect(&err)
	if err := c.Failed(); err != nil {
		return nil, err
	}
	if err := c.tree.merge(); err != nil {
		return nil, err
	}
	f, err = c.applyHeavy(n)
	if err != nil {
		return nil, c.store.Fail(err)
	}
	return f, nil
}

func (c *committer) applyHeavy(n *commitNode) (f *override.Flush, err error) {
	if err := c.log.writeRedo(); err != nil { // first, and without n: a group that lists layers has no other redo
		return nil, err
	}
	own := &n.Value
	seq := c.marks.applied.Load() + 1
	own.seq.Store(seq)
	c.batch.nodes = append(c.batch.nodes[:0], n)
	defer func() { c.batch.nodes = c.batch.nodes[:0] }()
	var drops []btree.Ref
	g := c.store.Begin(logstore.RecordGroup)
	group := g.Number()
	if s := own.set.Spilled(); s != nil {
		for _, x := range own.cuts() {
			c.log.redo = redo.AppendRange(c.log.redo, x.redo())
			c.log.redoOps++
		}
		drops = c.logLayers(g, s)
		c.known.put.Add(uint64(own.set.Size().Bytes))
	} else {
		c.collectOps(g)
		c.logInto(g)
		for _, x := range own.cuts() {
			g.Append(redo.AppendRange(nil, x.redo()))
			c.log.redoOps++
		}
	}
	if err := c.commitRecords(g); err != nil {
		return nil, err
	}
	if s := own.set.Spilled(); s != nil {
		s.Publish(group, seq)
		c.log.bytes.Add(s.Bytes())
	}
	c.pressure.layered = c.pressure.layered || own.set.Spilled() != nil || len(own.cuts()) > 0
	// Buffered: also what was acknowledged before; nobody else gets the token until the pieces are done
	if c.opts.Durability != WriteThrough {
		if err := c.store.Sync(); err != nil {
			return nil, err
		}
	}
	p := c.flusher.beginPieces(group, own.tx.held)
	defer func() {
		if err != nil {
			p.abandon()
		}
	}()
	for _, x := range own.cuts() {
		if err = p.cut(x.redo()); err != nil {
			return nil, err
		}
	}
	if s := own.set.Spilled(); s != nil {
		c.resolver.writes.Missing(seq)
		err = p.applyLayers(s.Layers(), func(key []byte) { c.resolver.writes.Of(writeset.HashKey(key)).Store(seq) })
		for _, ref := range drops {
			p.batch.Drop(ref)
		}
	} else if err = p.apply(c.batch.ops); err == nil {
		c.resolver.enterKeys(seq, c.batch.nodes)
	}
	clear(c.batch.ops)
	c.batch.ops = c.batch.ops[:0]
	if err != nil {
		return nil, err
	}
	c.resolver.cleared.note(c.batch.nodes, seq)
	c.showAlone(seq, group, p.records) // group is synced, unlike pages that were written early
	c.resolver.list.Cut(n)
	c.tree.sets.retire(c.batch.nodes, true, false)
	c.marks.publishDurable()
	f = p.seal(own.set.Spilled() != nil || len(own.cuts()) > 0)
	c.tree.reclaim()
	c.maintenance.nudge()
	return f, nil
}

// showAlone shows a commit that the tree has, as a batch of its own. Token held.
func (c *committer) showAlone(seq, group uint64, records int64) {
	c.changed.forget()
	c.tree.merged(seq, seq, records)
	c.marks.committed.Store(seq)
	c.marks.show(seq)
	c.marks.groups.Note(group, seq)
	c.known.commits.Add(1)
	c.log.recent.batches++
}

// applyLayers merges layers and applies the result. It calls told with each key.
func (p *pieces) applyLayers(layers []*writeset.Layer, told func(key []byte)) error {
	m := writeset.MergeLayers(layers, p.batch.Drop)
	n := p.flusher.pieceOps()
	ops := make([]btree.Op, 0, n)
	refs := make([]btree.Ref, 0, n)
	for ok := m.Next(); ok; {
		ops, refs = ops[:0], refs[:0]
		for ; ok && len(ops) < n; ok = m.Next() {
			op, ref, leads := m.Op()
			if leads && op.Delete {
				p.batch.Drop(ref) // the run holds only the key
			} else if leads {
				refs = append(refs, ref)
				op.Ref = &refs[len(refs)-1]
			}
			ops = append(ops, op)
			told(op.Key)
		}
		if err := p.apply(ops); err != nil {
			return err
		}
	}
	return m.Err()
}

// logLayers adds to g the lists of the layers' extents and of the pages of their runs, and to the redo the records
// that name those lists. drops is what dies when the layers are applied, although the tree never had it.
func (c *committer) logLayers(g *logstore.Group, s *writeset.Spill) (drops []btree.Ref) {
	c.batch.ops, c.log.runs, c.batch.listed = c.batch.ops[:0], c.log.runs[:0], c.batch.listed[:0]
	list := func(extents []logstore.Extent, each func(a logstore.Addr, bytes int64, extents []logstore.Extent)) {
		for most := int((c.store.MaxRun() - logstore.ListBytes(0)) / (logstore.ListBytes(1) - logstore.ListBytes(0))); len(extents) > 0; {
			n := min(len(extents), most)
			a, bytes := g.List(0, nil, extents[:n]), logstore.ListBytes(n)
			c.log.runs = append(c.log.runs, bornRun{a, bytes})
			each(a, bytes, extents[:n])
			extents = extents[n:]
		}
	}
	for _, l := range s.Layers() {
		var lists []logstore.Addr
		list(l.Extents(), func(a logstore.Addr, _ int64, extents []logstore.Extent) {
			lists = append(lists, a)
			drops = append(drops, layerRef(a, extents))
		})
		c.log.redo = redo.AppendLayer(c.log.redo, lists)
		c.log.redoOps++
	}
	for _, x := range s.Owned() {
		list(x, func(a logstore.Addr, bytes int64, _ []logstore.Extent) {
			drops = append(drops, btree.Ref{Kind: btree.Run, ID: a, ValueLen: uint64(bytes)})
			c.log.redo = redo.AppendOwned(c.log.redo, a, bytes)
			c.log.redoOps++
		})
	}
	lost := s.Lost()
	for i := range lost {
		c.log.redo = redo.AppendLost(c.log.redo, &lost[i])
		c.log.redoOps++
	}
	return append(drops, lost...)
}

// layerRef is a reference to those pages of a layer that the run at a lists.
func layerRef(a logstore.Addr, extents []logstore.Extent) btree.Ref {
	ref := btree.Ref{Kind: btree.Extents, ID: a}
	for _, x := range extents {
		ref.ValueLen += uint64(x.Bytes)
	}
	return ref
}
