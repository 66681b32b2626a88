package mvcc

import (
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/internal/overlay"
	"flashdbm/lockfree"
	"flashdbm/override"
)

// views leads to the newest view, which is all that a reader needs: see overlay.View. Its Tree is the watermark that all users of the engine
// register at.
//
// A reader registers at the Tree of the newest view, takes the view, then the Seq that it reads at (applied, or durable for View), and begins
// again if there is another view by now. It takes no lock and waits for nobody. Why that is right:
//
//   - The view was the newest one when the Seq was read. So each commit up to that Seq is in its tables, or not above its Base: a commit is in
//     the newest table before applied moves to it, and a table that takes its place is published before anything is inserted there.
//   - The reader is registered at the view's Tree, and was when that was the newest: what a newer tree supersedes stays for it, and a table that
//     is in no newer view is not used again (see memtables).
//   - Base is not above durable: only what is durable is merged, where commits are synced, and a page group is shown once it is synced. So there
//     is one view for those that read at durable and those that read at applied.
type views struct{ newest atomic.Pointer[overlay.View] }

// Load returns the Tree of the newest view: see lockfree.Watermark.
func (v *views) Load() uint64 { return v.newest.Load().Tree }

// snapshot is what a transaction reads: the tree at the Seq that it is registered at, and over it the memtables of a view, up to a Seq.
type snapshot struct {
	override.Snapshot
	view *overlay.View
	at   uint64
}

// register registers a reader, in the place that was used for last, and returns what there is to read up to a watermark.
func (r *readers) register(last lockfree.Slot, upto lockfree.Watermark) (lockfree.Slot, snapshot) {
	for {
		slot := r.registry.AcquireNear(last, &r.views)
		v := r.views.newest.Load()
		at := upto.Load()
		if v.Tree == slot.Seq() && r.views.newest.Load() == v {
			return slot, snapshot{r.pages.At(v.Tree), v, max(at, v.Base)}
		}
		slot.Release()
		last = slot
	}
}

// look is register unless the engine is closed.
func (r *readers) look(last lockfree.Slot, upto *atomic.Uint64) (lockfree.Slot, snapshot, error) {
	slot, s := r.register(last, upto)
	if r.closed.Load() {
		slot.Release()
		return slot, s, ErrClosed
	}
	return slot, s, nil
}

// found is a record: of the tree, or, if op is set, of a memtable.
type found struct {
	cell btree.Cell
	op   *btree.Op
}

func (s *snapshot) find(key []byte) (f found, ok bool, err error) {
	if op := s.view.Find(key, s.at); op != nil {
		return found{op: op}, !op.Delete, nil
	}
	f.cell, ok, err = btree.Get(&s.Snapshot, override.Root, key)
	return f, ok, err
}

// len returns the number of records.
func (s *snapshot) len() (int64, error) {
	return s.view.Len(s.at, func(key []byte) (bool, error) {
		_, ok, err := btree.Get(&s.Snapshot, override.Root, key)
		return ok, err
	})
}

// treeCursor is a cursor over a snapshot, without what the transaction writes.
type treeCursor struct {
	btree.Cursor
	over  overlay.Cursor
	above bool // over is laid over the tree's cursor
}

// reset puts the cursor nowhere and returns it as what moves.
func (c *treeCursor) reset(s *snapshot) mover {
	c.Cursor.Reset(&s.Snapshot, override.Root)
	if c.above = !s.view.Covers(s.at); c.above {
		c.over.Over(&c.Cursor, s.view, s.at)
		return &c.over
	}
	return &c.Cursor
}

type mover interface {
	First() bool
	Last() bool
	Next() bool
	Prev() bool
	Seek(key []byte) bool
	Key() []byte
	Err() error
}

// found returns the record that the last move has found.
func (c *treeCursor) found() found {
	if c.above {
		if op := c.over.Op(); op != nil {
			return found{op: op}
		}
	}
	return found{cell: c.Cell()}
}

// merged makes another version of the tree the one that readers register at: it has all commits up to base, and so many records. Baton holder.
func (t *tree) merged(tree, base uint64, records int64) {
	t.records = records
	t.tables.merged(tree, base)
	t.publishView(tree, base)
}

// publishView publishes a view of a version of the tree, which has all commits up to base, with the tables that there are. Baton holder.
func (t *tree) publishView(tree, base uint64) {
	t.readers.views.newest.Store(&overlay.View{Tree: tree, Base: base, Records: t.records, Tables: t.tables.list()})
}

// publish shows a version of the tree that has all commits, and so many records: seq becomes what new updates read. Baton holder.
func (t *tree) publish(seq uint64, records int64) {
	t.merged(seq, seq, records)
	t.marks.show(seq)
}

// publishEdit shows the version of the tree begun last, which has the same commits as the one before it. Its number is the next Seq, and no
// commit has that. The note comes last: durable never passes applied. Baton holder.
func (t *tree) publishEdit() {
	seq, base := t.pages.Seq(), t.readers.views.newest.Load().Base
	if t.tables.lacksNothing() {
		base = seq
	}
	t.publishView(seq, base)
	t.marks.show(seq)
	t.log.noteLogged(seq)
	t.marks.publishDurable()
}
