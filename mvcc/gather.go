package mvcc

import (
	"bytes"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// gather makes ops of the write sets of the batch, in key order; of several writes of a key the last one counts. For each value that its
// leaf has no room for it adds a run to g.
func (e *Engine) gather(g *logstore.Group) {
	e.ops, e.opBytes, e.runs, e.listed = e.ops[:0], 0, e.runs[:0], e.listed[:0]
	if len(e.nodes) == 1 {
		e.ops, e.opBytes = e.nodes[0].Value.set.AppendOps(e.ops, func(en writeset.Entry) *btree.Ref { return e.writeRun(g, &en) })
	} else {
		e.mergeSets()
		for i := range e.entries {
			e.addOp(g, &e.entries[i])
		}
	}
	e.known.gathered(e.ops)
}

func (e *Engine) addOp(g *logstore.Group, en *writeset.Entry) {
	op := btree.Op{Key: en.Key, Value: en.Value, Delete: en.Deleted}
	if !en.Deleted && (en.Ref != nil || !btree.FitsInline(len(en.Key), len(en.Value))) {
		op.Value, op.Ref = nil, e.writeRun(g, en)
	}
	e.opBytes += len(op.Key) + len(op.Value)
	e.ops = append(e.ops, op)
}

// mergeSets merges the write sets of the batch into entries.
func (e *Engine) mergeSets() {
	e.entries = e.entries[:0]
	for _, n := range e.nodes {
		for en := range n.Value.set.All() {
			e.entries = append(e.entries, en)
		}
	}
	slices.SortStableFunc(e.entries, func(a, b writeset.Entry) int { return bytes.Compare(a.Key, b.Key) })
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

// logOps adds the redo of the ops to what waits for the log. That of a small batch is encoded into the memory of the active memtable, and the
// ops then have their keys and values there: one copy, that of the log, serves readers and the tree too, and the write sets can be used again before
// the batch is merged. It is so with small ones because those have much more memory than bytes.
func (e *Engine) logOps() (copied bool) {
	e.redoOps += uint64(len(e.ops))
	bound := e.opBytes + len(e.ops)*redo.MaxRecord
	if e.opBytes > copyBytes || bound > writeset.MaxShared {
		for i := range e.ops {
			e.redo = redo.Append(e.redo, &e.ops[i])
		}
		return false
	}
	copies := &e.tables.active.Copies
	b := copies.Reserve(bound)
	from := len(b)
	for i := range e.ops {
		b = redo.AppendOp(b, &e.ops[i])
	}
	copies.Fill(b)
	e.redo = append(e.redo, b[from:]...)
	return true
}

// writeRun adds the run of a long record: its value, or the list of its extents, behind its key if that is long.
func (e *Engine) writeRun(g *logstore.Group, en *writeset.Entry) *btree.Ref {
	ref := &btree.Ref{KeyLen: btree.RunKeyLen(en.Key)}
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

// bear notes the runs of a group just written, and the extents that it lists: they live from now on. Its batch is not shown yet, so readers
// that come to them through a memtable are registered at the tree of the present view, or at a later one.
func (e *Engine) bear(group uint64) {
	birth := e.views.Load()
	for _, r := range e.runs {
		e.pages.Born(group, r.addr, r.payload, birth)
	}
	for _, n := range e.nodes {
		for _, l := range n.Value.tx.large {
			if slices.Contains(e.listed, l.Start()) {
				l.Publish(group, birth)
			} else { // overwritten by the same transaction, or by a later one of the batch
				l.Discard()
			}
		}
	}
	e.runs, e.listed = e.runs[:0], e.listed[:0]
}
