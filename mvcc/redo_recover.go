package mvcc

import (
	"bytes"
	"slices"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// readyRedo takes in the record groups behind the redo start, wherever they lie, on a goroutine of its own: it only reads, and meanwhile what
// they are read from can be written again and synced. The function returned waits for the result, nil if there is nothing to redo.
func (rv *recovery) readyRedo(rec *logstore.Recovery) func() (*redoTable, error) {
	var p *redoTable
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		if rv.opts.Store.Beside { // which keeps what it redoes: see startFollowing
			return
		}
		begin := time.Now()
		var ops []btree.Op
		var old int
		if ops, old, err = rv.readGroups(rec); err == nil && len(ops) > 0 {
			p = rv.newRedoTable(ops, old)
		}
		rv.stats.Steps.Sort = time.Since(begin)
	}()
	return func() (*redoTable, error) {
		<-done
		return p, err
	}
}

// startRedo has readers see the redo, and a few records get into the tree at once, before anything else uses the engine.
func (rv *recovery) startRedo(p *redoTable) error {
	if p == nil {
		return nil
	}
	rv.stats.Records = int64(p.Len())
	rv.tree.tables.redo.Store(p)
	rv.tree.publishView(baseSeq, baseSeq)
	rv.marks.show(redoSeq)
	rv.marks.durable.Store(redoSeq)
	if rv.redoneBehind(p.Len()) {
		return nil
	}
	if err := rv.tree.mergeAll(); err != nil {
		return err
	}
	return rv.Failed() // what was durable could be read, but who opens wants more
}

// readGroups decodes the records to redo, in the order of their commits. The first ones, so many, are of groups up to the base.
func (rv *recovery) readGroups(rec *logstore.Recovery) (ops []btree.Op, old int, err error) {
	base, start := rv.pages.Base(), rv.pages.RedoStart()
	var pages, count int
	due := func(g *logstore.ScannedGroup) bool { return g.Kind == logstore.RecordGroup && g.No > start }
	for i := range rec.Groups {
		if g := &rec.Groups[i]; due(g) {
			pages += g.RedoPages()
			count += int(min(g.Count, uint64(g.RedoPages())*logstore.PageSize))
		}
	}
	bodies := make([]byte, 0, pages*logstore.PageSize)
	ops = make([]btree.Op, 0, min(count, pages*logstore.PageSize/16))
	for i := range rec.Groups {
		g := &rec.Groups[i]
		if !due(g) {
			continue
		}
		from, before := len(bodies), len(ops)
		if body := g.Body(); body != nil {
			bodies = append(bodies, body...)
		} else if bodies, err = rv.store.AppendBodies(bodies, g.Pages, logstore.KindRecord); err != nil {
			return nil, 0, err
		}
		if err := readGroupRedo(bodies[from:len(bodies):len(bodies)], g, func(op btree.Op) { ops = append(ops, op) }, nil); err != nil {
			return nil, 0, err
		}
		if uint64(len(ops)-before) != g.Count {
			return nil, 0, redo.ErrStream
		}
		if g.No <= base {
			old = len(ops)
		}
		rv.log.bytes.Add(int64(g.RedoPages()) * logstore.PageSize)
	}
	return ops, old, nil
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

// sortOps sorts by key; of several ops of a key the last one counts. The runs of the others are in the log and never get into the tree.
func sortOps(ops []btree.Op) (keep []btree.Op, lost []btree.Ref) {
	slices.SortStableFunc(ops, func(a, b btree.Op) int { return bytes.Compare(a.Key, b.Key) })
	keep = ops[:0]
	for i := range ops {
		if i+1 == len(ops) || !bytes.Equal(ops[i].Key, ops[i+1].Key) {
			keep = append(keep, ops[i])
		} else if ops[i].Ref != nil {
			lost = append(lost, *ops[i].Ref)
		}
	}
	return keep, lost
}
