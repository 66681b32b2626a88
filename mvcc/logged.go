package mvcc

import (
	"bytes"
	"encoding/binary"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
	"flashdbm/override"
)

// bornLogged are the logged values of one page, that are born with their group.
type bornLogged struct {
	addr  logstore.Addr
	span  int // pages of the file
	mask  uint16
	seq   uint64 // no reader below it comes to them
	bytes int
}

const refsAtOnce = 128

// logsValues reports whether values stay where they are logged. Those of WriteThrough commits do not: small commits share a page, which
// grows, and merging would have to end it.
func (e *Engine) logsValues() bool {
	return e.opts.Durability != WriteThrough && !e.opts.KeepInline && e.store.LogsValues()
}

// isLogged reports whether the value of a put is one that stays where it is logged.
func isLogged(op *btree.Op) bool {
	return !op.Delete && op.Ref == nil && len(op.Value) >= logstore.LeastLogged
}

// anyLogged reports whether the batch has such a value.
func (e *Engine) anyLogged() bool {
	if !e.logsValues() {
		return false
	}
	for i := range e.ops {
		if isLogged(&e.ops[i]) {
			return true
		}
	}
	return false
}

// logInto writes the redo of the ops into g, in whose pages logged values stay. Those come first: so the pages that live for them have little
// else, and no more than one page of the batch ends early because a logged value cannot be in it. Each key is there once.
func (e *Engine) logInto(g *logstore.Group) (copied bool) {
	copies := &e.tables.active.Copies
	small := e.opBytes <= copyBytes
	copied = true
	e.opBytes = 0
	stays := e.logsValues()
	for i := range e.ops {
		op := &e.ops[i]
		if stays && isLogged(op) {
			e.logValue(g, op)
			op.Key = copies.Copy(op.Key)
		}
		e.opBytes += len(op.Key) + len(op.Value)
	}
	for i := range e.ops {
		switch op := &e.ops[i]; {
		case op.Ref != nil && op.Ref.Kind == btree.Logged:
		case small:
			b := copies.Reserve(len(op.Key) + len(op.Value) + redo.MaxRecord)
			from := len(b)
			b = redo.AppendOp(b, op)
			copies.Fill(b)
			g.Append(b[from:])
		default:
			e.scratch = redo.Append(e.scratch[:0], op)
			g.Append(e.scratch)
			copied = false
		}
	}
	e.redoOps += uint64(len(e.ops))
	return copied
}

// logValue logs a put whose value stays in the log, and has op refer to that.
func (e *Engine) logValue(g *logstore.Group, op *btree.Op) {
	head := binary.AppendUvarint(append(e.scratch[:0], redo.Logged), uint64(len(op.Key)))
	head = binary.AppendUvarint(head, uint64(len(op.Value)))
	head = append(head, op.Key...)
	e.scratch = head
	place, span := g.Record(head, op.Value)
	if n := len(e.newborn); n == 0 || e.newborn[n-1].addr != place.Addr() {
		e.newborn = append(e.newborn, bornLogged{addr: place.Addr(), seq: e.views.Load()})
	}
	b := &e.newborn[len(e.newborn)-1]
	b.span = span
	b.mask |= place.Mask()
	b.bytes += len(head) + len(op.Value)
	if len(e.refs) == cap(e.refs) {
		e.refs = make([]btree.Ref, 0, refsAtOnce)
	}
	e.refs = append(e.refs, btree.Ref{Kind: btree.Logged, ID: uint64(place), ValueLen: uint64(len(op.Value))})
	op.Ref, op.Value = &e.refs[len(e.refs)-1], nil
}

// bearLogged notes the logged values of a group just written.
func (e *Engine) bearLogged(group uint64) {
	for _, b := range e.newborn {
		e.pages.BornLogged(group, b.addr, b.span, b.mask, b.bytes, b.seq)
	}
	e.newborn = e.newborn[:0]
}

// redoGroup returns the group that redo goes to: where commits are buffered that of those before, until it is written.
func (e *Engine) redoGroup() *logstore.Group {
	if e.open != nil {
		return e.open
	}
	return e.store.Begin(logstore.RecordGroup)
}

// keepOpen leaves the group in memory, until it is written by writeRedo, which whoever begins another group calls.
func (e *Engine) keepOpen(g *logstore.Group) {
	if g.Pages() > 0 {
		e.open = g
		g.Held = e.writeRedo
	}
}

// waiting returns the bytes of redo that are in no group that was written.
func (e *Engine) waiting() int64 {
	if e.open != nil {
		return e.open.Pages() * logstore.BodySize
	}
	return int64(len(e.redo))
}

// The pages of logged values stay in memory until a sync. Where commits are faster than the device, a sync is asked for once these take an
// unsyncedSoon-th of MemoryLimit, and whoever writes more than an unsyncedMost-th waits for it.
const (
	unsyncedSoon = 32
	unsyncedMost = 8
)

// boundUnsynced sees to it that the pages that wait for a sync take no more memory than they may. Baton holder.
func (e *Engine) boundUnsynced() error {
	switch kept := e.store.UnsyncedBytes(); {
	case kept >= e.opts.MemoryLimit/unsyncedMost:
		return e.syncLog()
	case kept >= e.opts.MemoryLimit/unsyncedSoon:
		select {
		case e.keeper.sync <- struct{}{}:
		default:
		}
	}
	return nil
}

// loggedRecord is a logged value and its key.
type loggedRecord struct {
	key, value []byte
	place      logstore.Place
}

// moveLogged logs the live logged values of a segment again.
func (e *Engine) moveLogged(segment uint32, reserve reservation) (room bool, err error) {
	pages, masks := e.store.LoggedIn(segment)
	var found []loggedRecord
	for i, a := range pages {
		body, err := e.store.RecordPage(a)
		if err != nil { // damage stays where it is
			continue
		}
		n := 0
		_ = redo.ReadAt(body, func(op btree.Op, _, end int, logged bool) {
			if logged && masks[i]>>n&1 != 0 {
				found = append(found, loggedRecord{op.Key, op.Value, logstore.PlaceOf(a, end-len(op.Value), n)})
			}
			if logged {
				n++
			}
		}, nil)
	}
	slices.SortFunc(found, func(a, b loggedRecord) int { return bytes.Compare(a.key, b.key) })
	for len(found) > 0 {
		n := min(len(found), moveLoggedAtOnce)
		if room, err := e.moveSomeLogged(found[:n], reserve); err != nil || !room {
			return room, err
		}
		found = found[n:]
		e.pace()
	}
	return true, nil
}

const moveLoggedAtOnce = 128

func (e *Engine) moveSomeLogged(records []loggedRecord, reserve reservation) (room bool, err error) {
	size := int64(0)
	for i := range records {
		size += int64(len(records[i].key) + len(records[i].value) + redo.MaxRecord)
	}
	return e.moveRecords(2*redo.Pages(size), len(records), reserve, func() error { return e.rewriteLogged(records) })
}

func (e *Engine) rewriteLogged(records []loggedRecord) error {
	newest := e.pages.At(e.pages.Seq())
	e.ops, e.runs, e.listed = e.ops[:0], e.runs[:0], e.listed[:0]
	defer func() {
		clear(e.ops)
		e.ops = e.ops[:0]
	}()
	var last []byte
	for i := range records {
		r := &records[i]
		if last != nil && bytes.Equal(last, r.key) {
			continue
		}
		cell, ok, err := btree.Get(&newest, override.Root, r.key)
		if err != nil || !ok || cell.Kind() != btree.Logged || logstore.Place(cell.Ref().ID) != r.place || cell.Ref().ValueLen != uint64(len(r.value)) {
			continue
		}
		last = r.key
		e.ops = append(e.ops, btree.Op{Key: r.key, Value: r.value})
	}
	if len(e.ops) == 0 {
		return nil
	}
	e.opBytes = 0
	moved := int64(0)
	for i := range e.ops {
		moved += int64(len(e.ops[i].Key) + len(e.ops[i].Value))
	}
	g := e.redoGroup()
	for i := range e.ops {
		e.logValue(g, &e.ops[i])
	}
	e.redoOps += uint64(len(e.ops))
	if e.opts.Durability == Buffered {
		e.keepOpen(g)
		if e.waiting() >= bufferedBytes {
			if err := e.writeRedo(); err != nil {
				return err
			}
		}
	} else {
		if err := e.commitRecords(g); err != nil {
			return err
		}
	}
	b := e.pages.Begin(e.applied.Load() + 1)
	if err := e.uncounted(func() error {
		_, err := btree.Apply(b, override.Root, e.ops)
		return err
	}); err != nil {
		return err
	}
	e.publishEdit()
	e.cleaned.Add(uint64(redo.Pages(moved)))
	return e.boundUnsynced()
}

// readGroupRedo is redo.Read of a group's stream: puts whose values stay in the log refer to them.
func readGroupRedo(stream []byte, g *logstore.ScannedGroup, f func(op btree.Op), layers func(redo.Spilled)) error {
	var pages []logstore.ScannedPage // of the stream, from the one on where it is
	values := 0
	for _, p := range g.Pages {
		if p.Kind == logstore.KindRecord {
			pages = append(pages, p)
			values += p.Values
		}
	}
	var err error
	page, n := 0, 0 // where in the stream the first page begins, and logged values of it so far
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
	}, layers)
	switch {
	case rerr != nil:
		return rerr
	case err == nil && values != 0:
		return redo.ErrStream
	}
	return err
}
