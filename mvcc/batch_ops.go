package mvcc

import (
	"bytes"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// collectOps fills c.batch.ops with the ops of the batch's write sets, in key order; of several writes to one key the
// last one counts. Each value that does not fit into a leaf becomes a run in g.
func (c *committer) collectOps(g *logstore.Group) {
	c.batch.ops, c.batch.opBytes, c.log.runs, c.batch.listed = c.batch.ops[:0], 0, c.log.runs[:0], c.batch.listed[:0]
	if len(c.batch.nodes) == 1 {
		c.batch.ops, c.batch.opBytes = c.batch.nodes[0].Value.set.AppendOps(c.batch.ops, func(en writeset.Entry) *btree.Ref { return c.writeRun(g, &en) })
	} else {
		c.mergeSets()
		for i := range c.batch.entries {
			c.addOp(g, &c.batch.entries[i])
		}
	}
	c.known.countOps(c.batch.opBytes, c.batch.ops, len(c.log.runs))
}

func (c *committer) addOp(g *logstore.Group, en *writeset.Entry) {
	op := btree.Op{Key: en.Key, Value: en.Value, Delete: en.Deleted}
	if !en.Deleted && (en.Ref != nil || !btree.FitsInline(len(en.Key), len(en.Value))) {
		op.Value, op.Ref = nil, c.writeRun(g, en)
	}
	c.batch.opBytes += len(op.Key) + len(op.Value)
	c.batch.ops = append(c.batch.ops, op)
}

// mergeSets merges the batch's write sets into c.batch.entries, sorted by key, one entry per key.
func (c *committer) mergeSets() {
	c.batch.entries = c.batch.entries[:0]
	for _, n := range c.batch.nodes {
		for en := range n.Value.set.All() {
			c.batch.entries = append(c.batch.entries, en)
		}
	}
	slices.SortStableFunc(c.batch.entries, func(a, b writeset.Entry) int { return bytes.Compare(a.Key, b.Key) })
	keep := c.batch.entries[:0]
	for i := range c.batch.entries {
		if i+1 < len(c.batch.entries) && bytes.Equal(c.batch.entries[i].Key, c.batch.entries[i+1].Key) {
			continue
		}
		keep = append(keep, c.batch.entries[i])
	}
	clear(c.batch.entries[len(keep):])
	c.batch.entries = keep
}

// bornRun is a run of the group that is being built.
type bornRun struct {
	addr    logstore.Addr
	payload int64
}

// logOps appends the redo of the ops to the redo that waits for the log. The redo of a small batch is encoded in the
// memory of the active memtable, and the ops then refer to their keys and values there: one copy serves log, readers
// and tree, and a write set can be reused before the batch is merged. Only small batches are copied: their write
// sets take much more memory than their keys and values do.
func (c *committer) logOps() (copied bool) {
	c.log.redoOps += uint64(len(c.batch.ops))
	bound := c.batch.opBytes + len(c.batch.ops)*redo.MaxRecord
	if c.batch.opBytes > copyBytes || bound > writeset.MaxShared {
		for i := range c.batch.ops {
			c.log.redo = redo.Append(c.log.redo, &c.batch.ops[i])
		}
		return false
	}
	copies := &c.tree.tables.active.Copies
	chunk := copies.Reserve(bound)
	b := *chunk
	from := len(b)
	for i := range c.batch.ops {
		b = redo.AppendOp(b, &c.batch.ops[i])
	}
	*chunk = b
	c.log.redo = append(c.log.redo, b[from:]...)
	return true
}

// writeRun adds the run of a long record to g: the part of a long key that is not in the leaf, then the value or the
// list of its extents.
func (c *committer) writeRun(g *logstore.Group, en *writeset.Entry) *btree.Ref {
	ref := &btree.Ref{KeyLen: btree.RunKeyLen(en.Key)}
	key := en.Key[:ref.KeyLen]
	payload := int64(len(key))
	if en.Ref != nil {
		ref.Kind, ref.ValueLen = btree.Extents, en.Ref.Len
		ref.ID = g.List(0, key, en.Ref.Extents)
		c.batch.listed = append(c.batch.listed, en.Ref.Extents[0].Addr)
		payload += logstore.ListBytes(len(en.Ref.Extents))
	} else {
		ref.Kind, ref.ValueLen = btree.Run, uint64(len(en.Value))
		ref.ID = g.Run(0, key, en.Value)
		payload += int64(len(en.Value))
	}
	c.log.runs = append(c.log.runs, bornRun{ref.ID, payload})
	return ref
}

// bear notes that the runs of a group just written, and the extents that it lists, are live from now on. The batch is
// not shown yet, so readers that come to them through a memtable are registered at the tree of the present view or at
// a later one. Token held.
func (c *committer) bear(group uint64) {
	birth := c.readers.views.Load()
	if len(c.log.runs) > 0 {
		c.log.bearRuns(group)
	}
	for _, n := range c.batch.nodes {
		for _, l := range n.Value.tx.large {
			if slices.Contains(c.batch.listed, l.Start()) {
				l.Publish(group, birth)
			} else { // overwritten by the same transaction, or by a later one of the batch
				l.Discard()
			}
		}
	}
	c.batch.listed = c.batch.listed[:0]
}

// bearRuns notes that the runs of a group just written are live. Token held.
func (l *redoLog) bearRuns(group uint64) {
	birth := l.readers.views.Load()
	for _, r := range l.runs {
		l.pages.Born(group, r.addr, r.payload, birth)
	}
	l.runs = l.runs[:0]
}
