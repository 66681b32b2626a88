package mvcc

import (
	"bytes"
	"math"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
	"flashdbm/override"
)

// A transaction that clears a range of many records cuts it: its write set has the range, instead of one delete for
// each record. What a transaction writes is its cut ranges and, over them, its write set. When a range is cut, the
// set gets deletes for what the transaction had put into it before; later puts are in the set anyway.
//
//	reads     look at the set first, then at the ranges, then at the snapshot
//	commit    is a batch of its own (heavy.go). The tree has all commits before it. The ranges are cut out of the
//	          tree before the ops are applied, under a Seq that nobody reads at yet. So memtables and their readers
//	          know nothing of ranges
//	log       one redo record for each range, in the one group of the commit
//	flush     follows at once, and is of all dirty pages: see below
//	conflicts are those of ranges, as for all transactions that clear ranges (clear.go)
//
// Cutting looks once at each page between the two ends, with the token in hand: for its number of records, and for
// the values that it refers to, which die one by one.
//
// Crash cases. Before the group is whole: nothing has happened. After that, before the flush is whole: recovery
// applies the redo in the order of the groups, and cuts where the group comes (see redoTable). At that point the tree
// has everything older, including what left-behind leaves lack on the device. Only the tree reports deaths of cut
// values, as for layers, so none is counted twice: the flush that follows is of all dirty pages, redo then starts
// after the group, and no flush that lists such deaths comes before it. If that flush fails because there is no room,
// the next one writes all dirty pages (pressure.layered).

// leastCut is the fewest records of a range that is cut, if there is room to delete them one by one. Fewer deletes
// are in a few leaves, and cost no more than a batch of its own and a flush.
const leastCut = 4097

// leastCut returns the fewest records of a range that is cut.
func (o *Options) leastCut() int64 {
	if n := o.CutFrom; n > 0 {
		return n
	}
	return leastCut
}

// cuts are ranges in key order, none of which touches another.
type cuts []*keyRange

// find returns the range that contains key; nil if none does.
func (c cuts) find(key []byte) *keyRange {
	low, high := 0, len(c) // by hand: if key were passed to a function of package slices, it would escape to the heap
	for low < high {
		if mid := (low + high) / 2; bytes.Compare(c[mid].from, key) <= 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 || c[low-1].to != nil && bytes.Compare(key, c[low-1].to) >= 0 {
		return nil
	}
	return c[low-1]
}

func (c cuts) has(key []byte) bool { return len(c) > 0 && c.find(key) != nil }

// with returns the ranges together with x, which is not empty. The receiver does not change.
func (c cuts) with(x *keyRange) cuts {
	all, y := make(cuts, 0, len(c)+1), *x
	at := 0
	for _, o := range c {
		switch {
		case o.to != nil && bytes.Compare(o.to, y.from) < 0:
			all, at = append(all, o), len(all)+1
		case y.to != nil && bytes.Compare(y.to, o.from) < 0:
			all = append(all, o)
		default: // the two become one
			if bytes.Compare(o.from, y.from) < 0 {
				y.from = o.from
			}
			if o.to == nil || y.to != nil && bytes.Compare(o.to, y.to) > 0 {
				y.to = o.to
			}
		}
	}
	return slices.Insert(all, at, &y)
}

// cutRange cuts a range in a transaction.
func cutRange(tx *Tx, x *keyRange) error {
	tx.readAny = true
	if tx.reads != nil {
		*tx.reads.span() = *x
	}
	set := tx.writes()
	if tx.set.Overlaps(x.from, x.to) {
		var own [][]byte
		if err := set.Each(func(key []byte, deleted bool) error {
			if !deleted && bytes.Compare(key, x.from) >= 0 && (x.to == nil || bytes.Compare(key, x.to) < 0) {
				own = append(own, bytes.Clone(key))
			}
			return nil
		}); err != nil {
			return err
		}
		for _, key := range own {
			if err := tx.Delete(key); err != nil {
				return err
			}
		}
	}
	tx.cuts = tx.cuts.with(x)
	tx.cutTurns++
	return nil
}

// OwnOnly hides the snapshot from all later reads: they see what the transaction has written, and nothing else. The
// transaction must not be committed afterwards.
func (c *claims) OwnOnly() {
	c.cuts = cuts{&keyRange{}}
	c.cutTurns++
}

// turnsOf changes whenever cursors of the transaction have to be rebuilt.
func turnsOf(tx *Tx) int { return tx.set.Turns() + tx.cutTurns }

// bare reports whether the transaction has written nothing that a cursor has to merge with the snapshot.
func (c *Cursor) bare() bool { return c.merge.Set().Empty() && len(c.tx.cuts) == 0 }

// snapshotHas returns the size of a range in the snapshot, regardless of what the transaction has written, up to
// about most records.
func snapshotHas(tx *Tx, x *keyRange, most int64) (rangeSize, error) {
	return measure(&Tx{pinned: pinned{e: tx.e, readOnly: true, slot: tx.slot, snap: tx.snap}, ctx: tx.ctx}, x.from, x.to, most)
}

// lenCut returns how many records of the snapshot are cut.
func lenCut(tx *Tx) (n int64, err error) {
	for _, x := range tx.cuts {
		some, err := snapshotHas(tx, x, math.MaxInt64)
		if err != nil {
			return 0, err
		}
		n += some.records
	}
	return n, nil
}

// cutCursor moves over the records outside of the cut ranges.
type cutCursor struct {
	mover
	cuts cuts
}

func (c *cutCursor) First() bool          { return c.onwards(c.mover.First()) }
func (c *cutCursor) Next() bool           { return c.onwards(c.mover.Next()) }
func (c *cutCursor) Seek(key []byte) bool { return c.onwards(c.mover.Seek(key)) }
func (c *cutCursor) Last() bool           { return c.back(c.mover.Last()) }
func (c *cutCursor) Prev() bool           { return c.back(c.mover.Prev()) }

// onwards moves forward to the first record that is not cut.
func (c *cutCursor) onwards(found bool) bool {
	for found {
		key := c.mover.Key()
		if c.mover.Err() != nil {
			return true
		}
		x := c.cuts.find(key)
		switch {
		case x == nil:
			return true
		case x.to == nil: // past the end, from where Prev goes to the last record
			return c.mover.Last() && c.mover.Next()
		}
		found = c.mover.Seek(x.to)
	}
	return false
}

// back moves backward to the first record that is not cut.
func (c *cutCursor) back(found bool) bool {
	for found {
		key := c.mover.Key()
		if c.mover.Err() != nil {
			return true
		}
		x := c.cuts.find(key)
		if x == nil {
			return true
		}
		found = c.mover.Seek(x.from) && c.mover.Prev()
	}
	return false
}

// cutBy reports whether a commit has cut a range of which the transaction has read anything.
func (r *readSet) cutBy(c cuts) bool {
	for _, x := range c {
		if r.counted || r.keys.Overlaps(x.from, x.to) || slices.ContainsFunc(r.ranges, x.crosses) {
			return true
		}
	}
	return false
}

// cutPages bounds the pages that cutting takes in addition to the ops: redo, the nodes on the paths to both ends of
// each range with the neighbours that they are merged with, and the lists of dead pages in the flush that follows.
func cutPages(tx *Tx) int64 {
	if len(tx.cuts) == 0 {
		return 0
	}
	size := int64(0)
	for _, x := range tx.cuts {
		size += int64(len(x.from)+len(x.to)) + redo.MaxRecord
	}
	levels := int64(1)
	if root, err := tx.snap.Node(override.Root); err == nil { // else the commit will report it
		levels += int64(root.Level())
	}
	nodes := int64(len(tx.cuts)) * 2 * 2 * levels
	live := tx.e.store.SpaceStats().LiveBytes / logstore.PageSize
	return redo.Pages(size) + 1 + nodes + live/listedInPage + 1
}

const listedInPage = logstore.BodySize / 12 // dead pages that one page of a flush lists

// redo returns the redo record of the range.
func (x *keyRange) redo() redo.Range { return redo.Range{From: x.from, To: x.to} }

// cut cuts a range out of the tree. What the batch has applied so far precedes it.
func (p *pieces) cut(x redo.Range) error {
	r, err := btree.Cut(p.batch, override.Root, x.From, x.To)
	if err != nil {
		return err
	}
	p.records += r.Added
	return p.relieve()
}

// mayCut makes sure that the file says that its log may contain ranges. The caller holds checkpoints.mu, and not the
// token.
func mayCut(c *committer, tx *Tx) error {
	if len(tx.cuts) == 0 || c.store.LogsRanges() {
		return nil
	}
	if err := c.flusher.flush(); err != nil && !logstore.IsFull(err) {
		return err
	}
	return c.checkpoints.checkpoint()
}
