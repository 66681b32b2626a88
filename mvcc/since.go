package mvcc

import (
	"context"
	"fmt"
	"io"
	"weak"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// What has changed since a group of the log can be read off the pages of the tree, since each page says in which
// group it was written. A page that is only in memory, or was written in a later group, may have changed since that
// group. A page written in that group or before has not, and the tree had the same page then. Cleaning rewrites pages
// that have not changed, and one changed record brings its whole leaf along: the result is never too little, and may
// be too much.
//
// The result is a list of key intervals. A database that has everything up to the group, or any later state, replaces
// its records in each interval by those of the interval, and keeps its records outside of all intervals. Then it has
// what this snapshot has.
//
//  1. The records of a changed leaf are in an interval. It reaches from the last key of an unchanged leaf to the
//     first key of the next unchanged leaf, or to an end of the key space.
//  2. Between two unchanged leaves there were no records at the group if every node on the way through the tree from
//     one leaf to the other is unchanged too. Otherwise a leaf there may have been removed since, and an interval
//     without records covers the gap.
//  3. A logged value in a group not above the given one was there at that time, under its key, and in every state
//     since. So its key alone stands for it.
//  4. The group does not lie among the parts of a flush with leaves that were built and are in no redo (override.Build):
//     a snapshot of that group has none of them, and those in earlier parts would not count as changed.
//  5. The group was durable. Otherwise a crash could give its number to another group.
//  6. A record that was there at the group or later, is in no page and is not there now, was put and deleted after
//     the flush that wrote its leaf. If the tree in memory had it, the leaf is still in memory. Otherwise put and
//     delete were both in a memtable, or are redone: merged one after the other, they change the leaf; merged at
//     once, the delete marks the leaf (overlay.Sorter).
//
// An engine that writes keeps the keys of its commits since the first backup, and an engine beside a writer those of the
// record groups that it has taken in. If these go back to the group, they are used instead, and an interval lies around
// each changed key: see changedKeys and feed.

// ChangeSink receives the intervals in key order.
type ChangeSink interface {
	// Begin begins an interval of the keys above low and below high; nil is an end of the key space. The slices are
	// valid until the next call.
	Begin(low []byte) error
	// Put adds a record. r yields length bytes.
	Put(key []byte, r io.Reader, length int64) error
	// Keep adds the key of a record that has not changed.
	Keep(key []byte) error
	// End ends the interval below high, nil for the end of the key space.
	End(high []byte) error
}

// markChanges makes a mark among the changed keys, of a group that is durable when it returns.
func markChanges(c *committer) error {
	if err := c.log.withLog(func() error {
		if err := c.log.writeRedo(); err != nil {
			return err
		}
		c.changed.mark(c.store.CloseGroup())
		return nil
	}); err != nil {
		return err
	}
	return c.log.syncAwaited()
}

// ReadAt begins a read-only transaction for a backup. It returns a group of the log up to which everything was durable
// before the transaction began: whatever the backup lacks has changed since that group. Everything that the transaction
// sees is durable, and is in the tree.
func (e *Engine) ReadAt() (tx *Tx, group uint64, err error) {
	if err := markChanges(&e.committer); err != nil {
		return nil, 0, err
	}
	merged := uint64(0)
	if err := e.tree.withMerged(func() error {
		group, merged = e.store.Durable(), e.readers.views.newest.Load().Base
		return e.Failed()
	}); err != nil {
		return nil, 0, err
	}
	if err := e.Sync(); err != nil { // also what Buffered commits have left in memory
		return nil, 0, err
	}
	if tx, err = e.Begin(TxOptions{ReadOnly: true}); err != nil {
		return nil, 0, err
	}
	if tx.snap.at = tx.snap.view.Base; tx.snap.at < merged { // what the tree has, without the memtables above it
		tx.Rollback()
		return nil, 0, fmt.Errorf("flashdbm: a snapshot at %d begins before %d, which is durable", tx.Snapshot(), merged)
	}
	if e.opts.Durability != Durable { // what it sees must not be lost
		if err := e.Sync(); err != nil {
			tx.Rollback()
			return nil, 0, err
		}
	}
	return tx, group, nil
}

// ReadNow is ReadAt for callers who read by a cursor: records may be in memtables. Commits need not wait for a merge,
// which took up to 360 ms.
func ReadNow(e *Engine) (tx *Tx, group uint64, err error) {
	if err := markChanges(&e.committer); err != nil {
		return nil, 0, err
	}
	if err := e.log.withLog(func() error {
		group = e.store.Durable()
		e.marks.publishDurable() // transactions that begin from now on see all of it
		return e.Failed()
	}); err != nil {
		return nil, 0, err
	}
	if err := e.Sync(); err != nil { // also what Buffered commits have left in memory
		return nil, 0, err
	}
	if tx, err = e.Begin(TxOptions{ReadOnly: true}); err != nil || e.opts.Durability == Durable {
		return tx, group, err
	}
	if err := e.Sync(); err != nil { // what it sees must not be lost
		tx.Rollback()
		return nil, 0, err
	}
	return tx, group, nil
}

// GroupRead returns for a transaction of an engine that does not write what ReadAt returns as group.
func (tx *pinned) GroupRead() uint64 { return tx.e.pages.GroupAt(tx.Snapshot()) }

// Moment identifies what a transaction sees of a file that another process writes. Two transactions with the same
// Moment see the same. With the same GroupRead they need not, because records are added to the last group of the log.
type Moment struct {
	engine weak.Pointer[Engine]
	seq    uint64
}

func (tx *pinned) Moment() Moment { return Moment{weak.Make(tx.e), tx.Snapshot()} }

// UUID returns the UUID of the file.
func (tx *pinned) UUID() [16]byte { return tx.e.store.UUID() }

// Changes passes to sink what has changed since a group. earlier is a transaction that had everything up to that
// group, or nil: leaves in memory that are the same for it are left out.
func (tx *Tx) Changes(ctx context.Context, since uint64, earlier *Tx, sink ChangeSink) (err error) {
	defer tx.e.guard(&err)
	if f := tx.e.recovery.follow; f != nil {
		if keys, ok := f.feed.since(since); ok {
			return tx.tell(ctx, keys, sink)
		}
	} else if keys, ok := tx.e.committer.changed.since(since); ok {
		return tx.tell(ctx, keys, sink)
	}
	tx, end, err := tx.inTree()
	if err != nil {
		return err
	}
	defer end()
	w := changeWalk{ctx: ctx, tx: tx, since: since, sink: sink, unbroken: true}
	if earlier != nil {
		w.earlier = &earlier.snap.Snapshot
	}
	root, err := tx.snap.Node(override.Root)
	if err == nil {
		err = w.node(override.Root, root)
	}
	if err == nil && (w.open || !w.unbroken) {
		if err = w.begin(); err == nil {
			err = sink.End(nil)
		}
	}
	return err
}

// inTree returns a transaction with the same records, all of them in the tree, and a function that ends it. That is
// tx itself, except in an engine that only reads and has redo left from Open.
func (tx *Tx) inTree() (t *Tx, end func(), err error) {
	if tx.snap.view.Covers(tx.snap.at) {
		return tx, func() {}, nil
	}
	e := tx.e
	if err := e.tree.mergeAll(); err != nil {
		return nil, nil, err
	}
	slot, snap := e.readers.register(lockfree.Slot{}, &e.marks.applied)
	if snap.at != tx.snap.at || !snap.view.Covers(snap.at) {
		slot.Release()
		return nil, nil, fmt.Errorf("flashdbm: the changes of a snapshot that ReadAt has not begun")
	}
	return &Tx{pinned: pinned{e: e, readOnly: true, slot: slot, snap: snap}}, slot.Release, nil
}

// changeWalk goes through the tree in key order.
type changeWalk struct {
	ctx      context.Context
	tx       *Tx
	since    uint64
	earlier  *override.Snapshot // nil for none
	sink     ChangeSink
	unbroken bool   // every node on the way from the last unchanged leaf is unchanged
	last     []byte // last key of that leaf; nil before the first one
	open     bool   // an interval was begun
}

func (w *changeWalk) begin() error {
	if w.open {
		return nil
	}
	w.open = true
	return w.sink.Begin(w.last)
}

// node goes through a node and its subtree.
func (w *changeWalk) node(id btree.PageID, n btree.Node) error {
	image := n.Image()
	changed := image == nil || logstore.WrittenIn(image) > w.since || logstore.WrittenIn(image) == 0
	if changed && w.earlier != nil && w.tx.snap.Same(id, w.earlier) {
		changed = false
	}
	if n.IsLeaf() {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		return w.leaf(n, changed)
	}
	level := n.Level()
	for i := range n.Count() {
		if changed {
			w.unbroken = false
		}
		child, err := w.tx.snap.Node(n.Child(i))
		if err != nil {
			return err
		}
		if child.Level() != level-1 {
			return fmt.Errorf("%w: page %#x has level %d instead of %d", btree.ErrMalformed, n.Child(i), child.Level(), level-1)
		}
		if err := w.node(n.Child(i), child); err != nil {
			return err
		}
	}
	if changed {
		w.unbroken = false
	}
	return w.tx.Expired()
}

func (w *changeWalk) leaf(n btree.Node, changed bool) error {
	if changed {
		w.unbroken = false
		if err := w.begin(); err != nil {
			return err
		}
		for i := range n.Count() {
			if err := w.record(n.Cell(i)); err != nil {
				return err
			}
		}
		return nil
	}
	if n.Count() == 0 {
		return nil
	}
	if w.open || !w.unbroken {
		first, err := n.Cell(0).WholeKey(&w.tx.snap)
		if err != nil {
			return err
		}
		if err := w.begin(); err != nil {
			return err
		}
		if err := w.sink.End(first); err != nil {
			return err
		}
		w.open = false
	}
	last, err := n.Cell(n.Count() - 1).WholeKey(&w.tx.snap)
	if err != nil {
		return err
	}
	w.last, w.unbroken = append(w.last[:0], last...), true
	return nil
}

// record passes a record of a changed leaf to the sink.
func (w *changeWalk) record(c btree.Cell) error {
	key, err := c.WholeKey(&w.tx.snap)
	if err != nil {
		return err
	}
	if c.Kind() == btree.Logged {
		group, err := w.tx.e.store.GroupOfLogged(logstore.Place(c.Ref().ID))
		if err == nil && group <= w.since && group != 0 {
			return w.sink.Keep(key)
		}
	}
	r, length, err := w.tx.foundReader(found{cell: c})
	if err != nil {
		return err
	}
	return w.sink.Put(key, r, length)
}

// ReadOnly reports whether the engine writes nothing.
func (e *Engine) ReadOnly() bool { return e.opts.Store.ReadOnly }
