package mvcc

import (
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/internal/overlay"
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
