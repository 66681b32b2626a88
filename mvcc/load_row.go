package mvcc

import (
	"bytes"
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// A load into a range of keys that nobody else reads or writes, and that has no records but those of the load, writes
// rows of leaves straight into the log, one after the other, while others commit. Which range that is, and when the
// records become visible to anybody, is up to the caller; to the engine a row is no commit but a version of the tree
// with the same commits, as those of background work are (edit.go):
//
//	checkpoints.mu   held for one row: no other flush, no checkpoint
//	flush            of what is dirty, if that is much: the token is passed on meanwhile
//	the token        held until the row is durable: other commits wait for one row
//	merge, redo      the tree has all commits up to the newest group, the base
//	build            the leaves of the row, as first parts of a flush. The first row also takes over the records of the
//	                 leaf in which the range lies, and each later row those of the last leaf of the row before
//	graft            the inner nodes that lead to the row take the place of that leaf
//	seal, sync, install   as a flush of everything dirty, whose last part makes the row count
//	publish          a version of the tree at a Seq that no commit has
//
// Nothing is noted for conflicts: no transaction has read a key of the range, or can write one. A row needs no redo,
// because the token is held until it is durable: no group that a later commit relies on comes before the row's end.
// Records that the row takes over from the leaf are as of the base, and later commits change them in the tree.
//
// Crash cases. Before the last part of the flush is durable: recovery ignores the row, and has the tree as of an earlier
// base, with redo. After it: recovery has the row. So a crash leaves whole rows, the first ones of the load, and the
// caller must know at the next open that they are not wanted.

// rowFlushBytes is how much may be dirty when a row begins; more is flushed first, without keeping commits waiting.
const rowFlushBytes = 4 << 20

// LoadRow puts records into a range of keys: see above. The keys ascend through all chunks and are above those that
// are in the range. They are durable when LoadRow returns. After an error none of them is there. Errors: ErrOrder,
// ErrFull; btree.ErrOneLeaf if the row fits one leaf and the tree has no other records.
func LoadRow(e *Engine, chunks [][]LoadRecord) error {
	return loads(e, func() error {
		fl := &e.flusher
		if e.known.dirty.Load()*logstore.PageSize > rowFlushBytes || !e.store.BuiltTrees() {
			if err := fl.flush(); err != nil {
				return err
			}
		}
		if !e.store.BuiltTrees() {
			if err := e.checkpoints.checkpoint(); err != nil {
				return err
			}
		}
		l := &loading{committer: &e.committer}
		return l.withToken(func() error { return l.row(chunks) })
	})
}

// row builds a row and makes it a part of the tree. The caller holds checkpoints.mu and the token.
func (l *loading) row(chunks [][]LoadRecord) error {
	c := l.committer
	if err := c.Failed(); err != nil {
		return err
	}
	if err := c.log.writeRedo(); err != nil {
		return err
	}
	group, first := c.store.CloseGroup(), chunks[0][0].Key
	before, behind, height, err := btree.Neighbours(c.pages.SameBatch(), override.Root, first)
	if err != nil {
		return err
	}
	defer l.end()
	l.build = c.pages.StartBuild(l.reserve, l.spent)
	l.tree = btree.NewRowBuilder(l.build, c.store.EvenLeaves())
	row, err := l.leaves(before, chunks, behind, height == 0)
	if err == nil && height == 0 && row.Leaves() < 2 {
		err = btree.ErrOneLeaf
	}
	if err == nil {
		err = c.log.provideFor(c.pages.Unwritten()+row.InnerPages(height), 0)
	}
	if err != nil {
		if aerr := l.build.Abandon(); aerr != nil {
			return aerr
		}
		return err
	}
	if err := l.graft(group, first, row); err != nil {
		return c.store.Fail(err)
	}
	c.maintenance.nudge()
	return nil
}

// graft makes a row a part of the tree, and publishes that. An error poisons the store.
func (l *loading) graft(group uint64, first []byte, row *btree.Row) error {
	c := l.committer
	obliged := c.pages.Obliged()
	c.pages.Begin(c.marks.applied.Load() + 1)
	records := c.tree.records
	f, err := l.build.FinishBy(group, func(b *override.Batch) (int64, error) {
		r, err := btree.Splice(b, override.Root, first, row)
		records += r.Added
		return records, err
	})
	if err != nil {
		return err
	}
	c.pressure.growth.own += c.pages.Obliged() - obliged
	if err := c.flusher.finishFlush(f, c.log.bytes.Total(), func(work func()) { work() }); err != nil {
		return err
	}
	l.build.Live()
	c.changed.forget()
	c.tree.records = records
	c.tree.publishEdit()
	return nil
}

// leaves makes the leaves of the row: of the records before it, its own, and those after it. apart has each of the
// three begin a leaf: a root that is a leaf becomes an inner node, which has two children at least.
func (l *loading) leaves(before []btree.Op, chunks [][]LoadRecord, behind []btree.Op, apart bool) (*btree.Row, error) {
	for i := range before {
		if err := l.tree.Add(&before[i]); err != nil {
			return nil, err
		}
	}
	if apart {
		l.tree.BeginLeaf()
	}
	for _, records := range chunks {
		for i := range records {
			if err := l.add(&records[i]); err != nil {
				return nil, err
			}
		}
	}
	if last, _ := l.tree.Last(); len(behind) > 0 && bytes.Compare(last, behind[0].Key) >= 0 {
		return nil, fmt.Errorf("%w: the row reaches into other records", btree.ErrOrder)
	}
	if apart {
		l.tree.BeginLeaf()
	}
	for i := range behind {
		if err := l.tree.Add(&behind[i]); err != nil {
			return nil, err
		}
	}
	return l.tree.FinishRow()
}
