package mvcc

import (
	"bytes"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// redoGroups applies the record groups behind the base, wherever they lie, merged and sorted by key, before anything else uses the
// engine. A writing open that needs more memory than half the limit flushes as it goes.
func (e *Engine) redoGroups(rec *logstore.Recovery) error {
	var streams [][]byte
	var ops []btree.Op
	base := e.pages.Base()
	for i := range rec.Groups {
		g := &rec.Groups[i]
		if g.Kind != logstore.RecordGroup || g.No <= base {
			continue
		}
		stream, err := e.redoStream(g)
		if err != nil {
			return err
		}
		streams = append(streams, stream)
		before := len(ops)
		if err := readRedo(stream, func(op btree.Op) { ops = append(ops, op) }); err != nil {
			return err
		}
		if uint64(len(ops)-before) != g.Count {
			return errRedo
		}
		e.recBytes += int64(len(g.Pages)) * logstore.PageSize
	}
	e.recovery.Records = int64(len(ops))
	if len(ops) == 0 {
		return nil
	}
	ops, lost := sortOps(ops)
	return e.redoOpsSorted(ops, lost)
}

// redoStream joins the record pages of a group.
func (e *Engine) redoStream(g *logstore.ScannedGroup) ([]byte, error) {
	stream := make([]byte, 0, len(g.Pages)*logstore.BodySize)
	for _, p := range g.Pages {
		if p.Kind != logstore.KindRecord {
			continue
		}
		body, err := e.store.Body(p.Addr)
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

// redoOpsSorted applies ops as one batch, in pieces.
func (e *Engine) redoOpsSorted(ops []btree.Op, lost []btree.Ref) error {
	e.keeper.mu.Lock()
	defer e.keeper.mu.Unlock()
	return e.withBaton(func() error {
		p := e.beginPieces(e.store.LastGroup(), 0)
		for _, ref := range lost {
			p.batch.Drop(ref)
		}
		if err := p.apply(ops); err != nil {
			p.abandon()
			return err
		}
		e.publish(e.pages.Seq(), p.records)
		e.durable.Store(e.applied.Load())
		if f := p.seal(); f != nil {
			return e.finishFlush(f)
		}
		e.reclaim()
		return nil
	})
}
