package mvcc

import (
	"encoding/binary"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// bornLogged are the logged values of one page, which become live when their group is written.
type bornLogged struct {
	addr  logstore.Addr
	span  int // pages of the file
	mask  uint16
	seq   uint64 // no reader below it comes to them
	bytes int
}

const refsAtOnce = 128

// logsValues reports whether values stay where they are logged. Those of WriteThrough commits do not: small commits
// share a page, which still grows, and merging a logged value would have to end the page.
func (l *redoLog) logsValues() bool {
	return l.opts.Durability != WriteThrough && !l.opts.KeepInline && l.store.LogsValues()
}

// isLogged reports whether the value of a put stays where it is logged.
func isLogged(op *btree.Op) bool {
	return !op.Delete && op.Ref == nil && len(op.Value) >= logstore.LeastLogged
}

// anyLogged reports whether the batch has such a value.
func (c *committer) anyLogged() bool {
	if !c.log.logsValues() {
		return false
	}
	for i := range c.batch.ops {
		if isLogged(&c.batch.ops[i]) {
			return true
		}
	}
	return false
}

// logInto writes the redo of the ops into g, in whose pages logged values stay. Ops with logged values come first: so
// the pages that stay live for the values have little else, and at most one page of the batch ends early because a
// logged value does not fit. The batch has each key once. copied is as for logOps.
func (c *committer) logInto(g *logstore.Group) (copied bool) {
	copies := &c.tree.tables.active.Copies
	small := c.batch.opBytes <= copyBytes
	copied = true
	if c.log.logsValues() {
		for i := range c.batch.ops {
			if op := &c.batch.ops[i]; isLogged(op) {
				c.batch.opBytes -= len(op.Value)
				c.log.logValue(g, op)
				op.Key = copies.Copy(op.Key)
			}
		}
	}
	for i := range c.batch.ops {
		switch op := &c.batch.ops[i]; {
		case op.Ref != nil && op.Ref.Kind == btree.Logged:
		case small:
			chunk := copies.Reserve(len(op.Key) + len(op.Value) + redo.MaxRecord)
			b := redo.AppendOp(*chunk, op)
			g.Append(b[len(*chunk):])
			*chunk = b
		default:
			c.log.scratch = redo.Append(c.log.scratch[:0], op)
			g.Append(c.log.scratch)
			copied = false
		}
	}
	c.log.redoOps += uint64(len(c.batch.ops))
	return copied
}

// logOne is collectOps and logInto for a Buffered batch of one put of a short record, and reports whether the batch is
// that. It executes 185 instructions where they execute 341, without the encoding that both call.
func logOne(c *committer, g *logstore.Group) bool {
	if len(c.batch.nodes) != 1 || c.opts.Durability != Buffered {
		return false
	}
	key, value, ok := writeset.OnlyPut(c.batch.nodes[0].Value.set)
	bytes := len(key) + len(value)
	if !ok || bytes >= logstore.LeastLogged {
		return false
	}
	c.log.runs, c.batch.listed = c.log.runs[:0], c.batch.listed[:0]
	c.batch.ops, c.batch.opBytes = append(c.batch.ops[:0], btree.Op{Key: key, Value: value}), bytes
	chunk := c.tree.tables.active.Copies.Reserve(bytes + redo.MaxRecord)
	b := redo.AppendOp(*chunk, &c.batch.ops[0])
	g.Append(b[len(*chunk):])
	*chunk = b
	c.known.put.Add(uint64(bytes))
	c.log.redoOps++
	return true
}

// logValue logs a put whose value stays in the log, and makes op refer to that place.
func (l *redoLog) logValue(g *logstore.Group, op *btree.Op) {
	head := binary.AppendUvarint(append(l.scratch[:0], redo.Logged), uint64(len(op.Key)))
	head = binary.AppendUvarint(head, uint64(len(op.Value)))
	head = append(head, op.Key...)
	l.scratch = head
	place, span := g.Record(head, op.Value)
	if n := len(l.newborn); n == 0 || l.newborn[n-1].addr != place.Addr() {
		l.newborn = append(l.newborn, bornLogged{addr: place.Addr(), seq: l.readers.views.Load()})
	}
	b := &l.newborn[len(l.newborn)-1]
	b.span = span
	b.mask |= place.Mask()
	b.bytes += len(head) + len(op.Value)
	if len(l.refs) == cap(l.refs) {
		l.refs = make([]btree.Ref, 0, refsAtOnce)
	}
	l.refs = append(l.refs, btree.Ref{Kind: btree.Logged, ID: uint64(place), ValueLen: uint64(len(op.Value))})
	op.Ref, op.Value = &l.refs[len(l.refs)-1], nil
}

// bearLogged notes that the logged values of a group just written are live.
func (l *redoLog) bearLogged(group uint64) {
	for _, b := range l.newborn {
		l.pages.BornLogged(group, b.addr, b.span, b.mask, b.bytes, b.seq)
	}
	l.newborn = l.newborn[:0]
}

// The pages of logged values stay in memory until a sync. If commits are faster than the device, a sync is requested
// when these pages take an unsyncedSoon-th of MemoryLimit, and a leader that finds more than an unsyncedMost-th syncs
// at once.
const (
	unsyncedSoon = 32
	unsyncedMost = 8
)

// boundUnsynced bounds the memory of pages that wait for a sync. Token held.
func (l *redoLog) boundUnsynced() error {
	switch kept := l.store.UnsyncedBytes(); {
	case kept >= l.opts.MemoryLimit/unsyncedMost:
		return l.syncLog()
	case kept >= l.opts.MemoryLimit/unsyncedSoon:
		select {
		case l.syncDue <- struct{}{}:
		default:
		}
	}
	return nil
}

// readGroupRedo is redo.Read of a group's stream: puts whose values stay in the log refer to them.
func readGroupRedo(stream []byte, g *logstore.ScannedGroup, f func(op btree.Op), special func(redo.Special)) error {
	var pages []logstore.ScannedPage // of the stream, from the one that has been reached
	values := 0
	for _, p := range g.Pages {
		if p.Kind == logstore.KindRecord {
			pages = append(pages, p)
			values += p.Values
		}
	}
	var err error
	page, n := 0, 0 // where in the stream the first of pages begins, and how many logged values of it were read
	rerr := redo.ReadAt(stream, func(op btree.Op, from, end int, logged bool) {
		if logged {
			for len(pages) > 0 && from >= page+pages[0].BodyBytes() {
				page, n = page+pages[0].BodyBytes(), 0
				pages = pages[1:]
			}
			if len(pages) == 0 || n >= pages[0].Values || end > page+pages[0].BodyBytes() {
				err = redo.ErrStream
				return
			}
			place := logstore.PlaceOf(pages[0].Addr, end-len(op.Value)-page, n)
			op.Ref = &btree.Ref{Kind: btree.Logged, ID: uint64(place), ValueLen: uint64(len(op.Value))}
			op.Value = nil
			n++
			values--
		}
		f(op)
	}, special)
	switch {
	case rerr != nil:
		return rerr
	case err == nil && values != 0:
		return redo.ErrStream
	}
	return err
}
