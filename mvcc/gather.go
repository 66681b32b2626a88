package mvcc

import (
	"bytes"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// gather merges the write sets of the batch into entries, in key order; of several writes of a key the last one counts.
func (e *Engine) gather() {
	e.entries = e.entries[:0]
	for _, n := range e.nodes {
		for en := range n.Value.set.All() {
			e.entries = append(e.entries, en)
		}
	}
	if len(e.nodes) == 1 {
		return
	}
	slices.SortStableFunc(e.entries, func(a, b Entry) int { return bytes.Compare(a.Key, b.Key) })
	keep := e.entries[:0]
	for i := range e.entries {
		if i+1 < len(e.entries) && bytes.Equal(e.entries[i].Key, e.entries[i+1].Key) {
			continue
		}
		keep = append(keep, e.entries[i])
	}
	clear(e.entries[len(keep):])
	e.entries = keep
}

// bornRun is a run of the group being built.
type bornRun struct {
	addr    logstore.Addr
	payload int64
}

// buildOps turns the entries into the tree's ops and their redo, adding to g a run for each value that its leaf has no room for.
func (e *Engine) buildOps(g *logstore.Group) (runs bool) {
	e.ops, e.runs, e.listed = e.ops[:0], e.runs[:0], e.listed[:0]
	for i := range e.entries {
		en := &e.entries[i]
		op := btree.Op{Key: en.Key, Value: en.Value, Delete: en.Deleted}
		if !en.Deleted && (en.Ref != nil || !btree.FitsInline(len(en.Key), len(en.Value))) {
			op.Value, op.Ref = nil, e.writeRun(g, en)
		}
		e.ops = append(e.ops, op)
	}
	for i := range e.ops {
		e.redo = appendRedo(e.redo, &e.ops[i])
	}
	e.redoOps += uint64(len(e.ops))
	return len(e.runs) > 0
}

// writeRun adds the run of a long record: its value, or the list of its extents, behind its key if that is long.
func (e *Engine) writeRun(g *logstore.Group, en *Entry) *btree.Ref {
	ref := &btree.Ref{KeyLen: refKeyLen(en.Key)}
	key := en.Key[:ref.KeyLen]
	payload := int64(len(key))
	if en.Ref != nil {
		ref.Kind, ref.ValueLen = btree.Extents, en.Ref.Len
		ref.ID = g.List(0, key, en.Ref.Extents)
		e.listed = append(e.listed, en.Ref.Extents[0].Addr)
		payload += logstore.ListBytes(len(en.Ref.Extents))
	} else {
		ref.Kind, ref.ValueLen = btree.Run, uint64(len(en.Value))
		ref.ID = g.Run(0, key, en.Value)
		payload += int64(len(en.Value))
	}
	e.runs = append(e.runs, bornRun{ref.ID, payload})
	return ref
}

// bear notes the runs of a group just written, and the extents that it lists: they live from now on.
func (e *Engine) bear(group uint64) {
	for _, r := range e.runs {
		e.pages.Born(group, r.addr, r.payload)
	}
	for _, n := range e.nodes {
		for _, l := range n.Value.large {
			if slices.Contains(e.listed, l.Start()) {
				l.Publish(group)
			} else { // overwritten by the same transaction, or by a later one of the batch
				l.Discard()
			}
		}
	}
	e.runs, e.listed = e.runs[:0], e.listed[:0]
}
