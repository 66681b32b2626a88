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

// What has changed since a group of the log is told by the pages of the tree: each says in which group it was written. A page in memory,
// or written in a later group, may have changed since; one written in that group or before has not, and is what the tree had there then.
// Cleaning writes pages again that did not change, and a record that changed brings the whole leaf: so what is found is never too little,
// and may be too much.
//
// The result is a list of intervals of keys. What a database that has all up to the group, or any later state, has for records in an
// interval is replaced by the records of the interval; outside of all intervals it stays. Then it has what this snapshot has.
//
//  1. The records of a leaf that has changed are in an interval, which reaches from the last key of an unchanged leaf to the first key of the
//     next one, or to an end of all keys.
//  2. Between two unchanged leaves nothing was at the group, if every node from the one up to the other through the tree is unchanged too.
//     Else there may have been a leaf that was removed since: an interval without records is between them.
//  3. A logged value in a group not above the given one was there then, under its key, and in every state since. So its key alone stands for
//     it.
//  4. The group was durable. Else a crash could give its number to another one.
//  5. Of a record that was there at the group, or at a later one, and is in no page and not there now, both the put and the delete came behind the
//     flush that wrote its leaf. Mostly the tree in memory had the record, and the leaf is still in memory. Else both were in a memtable, or are
//     redone. If they are merged one after the other, the leaf has changed; if at once, the delete marks the leaf: see overlay.Sorter.
//
// An engine beside a writer tells what has changed by the keys of the record groups that it has taken in, where it has all that are asked for: see feed.

// ChangeSink takes the intervals in the order of their keys.
type ChangeSink interface {
	// Begin begins an interval of keys above low and below high; nil is an end of all keys. The slices are valid until the next call.
	Begin(low []byte) error
	// Put adds a record. r has length bytes.
	Put(key []byte, r io.Reader, length int64) error
	// Keep adds a record that has not changed.
	Keep(key []byte) error
	// End ends the interval below high, nil for the end of all keys.
	End(high []byte) error
}

// ReadAt begins a read-only transaction for a backup, and returns the group of the log that all up to was durable before: what is found to have
// changed since that group is all that the backup may lack. What the transaction sees is durable.
func (e *Engine) ReadAt() (tx *Tx, group uint64, err error) {
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
	if tx.snap.at = tx.snap.view.Base; tx.snap.at < merged { // what the tree has, without the memtables above
		tx.Rollback()
		return nil, 0, fmt.Errorf("flashdbm: a snapshot at %d begins before %d, which is durable", tx.Snapshot(), merged)
	}
	if e.opts.Durability != Durable { // what it sees is not to be lost
		if err := e.Sync(); err != nil {
			tx.Rollback()
			return nil, 0, err
		}
	}
	return tx, group, nil
}

// ReadNow is ReadAt of a transaction for which records may be in memtables, for who reads them by a cursor. Nobody waits for a merge, as other commits do
// while one is made: that took up to 360 ms.
func ReadNow(e *Engine) (tx *Tx, group uint64, err error) {
	if err := e.log.withLog(func() error {
		group = e.store.Durable()
		e.marks.publishDurable() // what begins from now on sees all of it
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
	if err := e.Sync(); err != nil { // what it sees is not to be lost
		tx.Rollback()
		return nil, 0, err
	}
	return tx, group, nil
}

// GroupRead returns what ReadAt does of a transaction of an engine that does not write.
func (tx *pinned) GroupRead() uint64 { return tx.e.pages.GroupAt(tx.Snapshot()) }

// Moment is what a transaction sees of a file that its process does not write. Two with the same Moment see the same, which those with the same
// GroupRead need not: records are added to the last group of the log.
type Moment struct {
	engine weak.Pointer[Engine]
	seq    uint64
}

func (tx *pinned) Moment() Moment { return Moment{weak.Make(tx.e), tx.Snapshot()} }

// UUID returns that of the file.
func (tx *pinned) UUID() [16]byte { return tx.e.store.UUID() }

// Changes tells sink what has changed since a group. With an earlier transaction, which had all up to the group, it leaves out leaves in memory that are what they
// were for that; nil is none.
func (tx *Tx) Changes(ctx context.Context, since uint64, earlier *Tx, sink ChangeSink) (err error) {
	defer tx.e.guard(&err)
	if f := tx.e.recovery.follow; f != nil {
		if keys, ok := f.feed.since(since); ok {
			return tx.tell(ctx, keys, sink)
		}
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

// inTree returns a transaction with the same records, all of them in the tree, and what ends it: tx itself, unless that is one of an engine that
// only reads, over records that Open has left to redo.
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

// changeWalk goes through the tree in the order of its keys.
type changeWalk struct {
	ctx      context.Context
	tx       *Tx
	since    uint64
	earlier  *override.Snapshot // nil for none
	sink     ChangeSink
	unbroken bool   // every node on the way from the last unchanged leaf is unchanged
	last     []byte // its last key; nil before the first one
	open     bool   // an interval was begun
}

func (w *changeWalk) begin() error {
	if w.open {
		return nil
	}
	w.open = true
	return w.sink.Begin(w.last)
}

// node goes through a node and what is below it.
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

// record tells of a record of a leaf that has changed.
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
