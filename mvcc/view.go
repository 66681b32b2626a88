package mvcc

import (
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/internal/overlay"
	"flashdbm/override"
)

// views leads to the newest view, which is all that a reader needs: see overlay.View. Its Tree is the watermark at
// which all users of the engine register.
//
// A reader registers at the Tree of the newest view, takes the view, reads the Seq that it will read at (applied, or
// durable for a View), and begins again if there is another view by then. It takes no lock and waits for nobody. That
// is right because:
//
//   - The view was the newest one when the Seq was read. So each commit up to that Seq is in the view's tables or not
//     above its Base: a commit is in the newest table before applied moves to it, and a view with a new table is
//     published before anything is inserted there.
//   - The reader is registered at the view's Tree, and was while that was the newest. So what a newer tree supersedes
//     is kept for it, and a table that no newer view has is not reused (see memtables).
//   - Base is not above durable: in Durable mode only what is durable is merged, and a page group is shown only after
//     it is synced. So one view serves readers at durable and readers at applied.
type views struct{ newest atomic.Pointer[overlay.View] }

// Load returns the Tree of the newest view: see lockfree.Watermark.
func (v *views) Load() uint64 { return v.newest.Load().Tree }

// snapshot is what a transaction reads: the tree at the Seq that it is registered at and, over that, the memtables of
// a view, up to the Seq at.
type snapshot struct {
	override.Snapshot
	view *overlay.View
	at   uint64
}

// found is a record: op of a memtable, or if that is nil cell of the tree.
type found struct {
	cell btree.Cell
	op   *btree.Op
}

func (s *snapshot) find(key []byte) (f found, ok bool, err error) {
	if op := s.view.Find(key, s.at); op != nil {
		return found{op: op}, !op.Delete, nil
	}
	f.cell, ok, err = btree.Get((*override.Lookup)(&s.Snapshot), override.Root, key)
	return f, ok, err
}

// touch makes the system begin to read the value of a record that a lookup has found.
func (s *snapshot) touch(f *found) {
	if ref := f.ref(); ref.Kind == btree.Logged {
		s.Touch(ref)
	}
}

// len returns the number of records.
func (s *snapshot) len() (int64, error) {
	return s.view.Len(s.at, func(key []byte) (bool, error) {
		_, ok, err := btree.Get(&s.Snapshot, override.Root, key)
		return ok, err
	})
}

// treeCursor is a cursor over a snapshot, without the transaction's own writes.
type treeCursor struct {
	btree.Cursor
	over  overlay.Cursor
	above bool // the memtables have entries: over merges them with the tree's cursor
}

// reset puts the cursor on no record, and returns the one of the two cursors that is to be moved.
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
