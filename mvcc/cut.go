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

// A transaction that clears a range of many records has the range in its write set instead of a delete for each of them: the range is cut. What a
// transaction writes is its cut ranges, and over them its write set, in this order: what it had put into a range before is deleted in the set when
// the range is cut, and what it puts there later is in the set anyway.
//
//	reads     the set first, then the ranges, then the snapshot
//	commit    is one of those that are a batch of their own (see heavy.go): the tree has all commits before it, and the ranges are cut out of
//	          the tree, before the ops are applied, under a Seq that nobody reads at yet. So memtables and their readers know of no ranges
//	log       a redo record for each range, in the one group of the commit
//	flush     follows at once, and is of all: see below
//	conflicts by ranges, as of all that clear: see clear.go
//
// Cutting looks at each page between the two ends once: for its number of records, and for the values that it leads to, which die one by one. It is
// done with the token in hand.
//
// Crash cases. Before the group is whole: nothing happened. Behind it, before the flush is whole: recovery applies the redo in the order of the
// groups, and cuts where the group comes (see redoTable). Everything before is in the tree then, also what leaves have that were left behind. Deaths
// come from the tree alone, as those of layers do, so none is counted twice: the flush that follows is of all, redo then starts behind the group, and
// no flush that lists deaths of what was cut comes before it. While it is missing, for want of room, the next one is of all (pressure.layered).

// leastCut is from how many records on a range is cut, wherever there is room to delete them one by one. The deletes of fewer are in some leaves, and cost no more than a batch of its own and a flush do.
const leastCut = 4097

// leastCut returns how many it is.
func (o *Options) leastCut() int64 {
	if n := o.CutFrom; n > 0 {
		return n
	}
	return leastCut
}

// cuts are ranges in order, none of which touches another.
type cuts []*keyRange

// find returns the range that has a key, nil if none has.
func (c cuts) find(key []byte) *keyRange {
	low, high := 0, len(c) // by hand: handed to a function of slices, each key that is looked up would be on the heap
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

// with returns the ranges and another one, which is not empty. The others stay as they are.
func (c cuts) with(x *keyRange) cuts {
	all, y := make(cuts, 0, len(c)+1), *x
	at := 0
	for _, o := range c {
		switch {
		case o.to != nil && bytes.Compare(o.to, y.from) < 0:
			all, at = append(all, o), len(all)+1
		case y.to != nil && bytes.Compare(y.to, o.from) < 0:
			all = append(all, o)
		default: // both become one
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

// cutRange adds a range to those that are cut.
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

// turnsOf changes with all that makes cursors of the transaction be laid anew.
func turnsOf(tx *Tx) int { return tx.set.Turns() + tx.cutTurns }

// bare reports whether the transaction has written nothing so far that a cursor has to lay over the snapshot.
func (c *Cursor) bare() bool { return c.merge.Set().Empty() && len(c.tx.cuts) == 0 }

// snapshotHas returns what the snapshot has of a range, whatever the transaction has written, up to about the given number of records.
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

// cutCursor moves over what cut ranges leave.
type cutCursor struct {
	mover
	cuts cuts
}

func (c *cutCursor) First() bool          { return c.onwards(c.mover.First()) }
func (c *cutCursor) Next() bool           { return c.onwards(c.mover.Next()) }
func (c *cutCursor) Seek(key []byte) bool { return c.onwards(c.mover.Seek(key)) }
func (c *cutCursor) Last() bool           { return c.back(c.mover.Last()) }
func (c *cutCursor) Prev() bool           { return c.back(c.mover.Prev()) }

// onwards goes on to the first record that is not cut.
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
		case x.to == nil: // off the end, from where Prev goes to the last record
			return c.mover.Last() && c.mover.Next()
		}
		found = c.mover.Seek(x.to)
	}
	return false
}

// back is onwards in the other direction.
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

// cutPages bounds the pages that cutting takes beside those of the ops: redo, the nodes on the ways to both ends with the neighbours that they
// are merged with, and the lists of what dies in the flush that follows.
func cutPages(tx *Tx) int64 {
	if len(tx.cuts) == 0 {
		return 0
	}
	size := int64(0)
	for _, x := range tx.cuts {
		size += int64(len(x.from)+len(x.to)) + redo.MaxRecord
	}
	levels := int64(1)
	if root, err := tx.snap.Node(override.Root); err == nil { // else the commit will tell
		levels += int64(root.Level())
	}
	nodes := int64(len(tx.cuts)) * 2 * 2 * levels
	live := tx.e.store.SpaceStats().LiveBytes / logstore.PageSize
	return redo.Pages(size) + 1 + nodes + live/listedInPage + 1
}

const listedInPage = logstore.BodySize / 12 // pages that die which a page of a flush lists

// redo returns what the redo record says of the range.
func (x *keyRange) redo() redo.Range { return redo.Range{From: x.from, To: x.to} }

// cut cuts a range out of the tree. What the batch has applied so far was before it.
func (p *pieces) cut(x redo.Range) error {
	r, err := btree.Cut(p.batch, override.Root, x.From, x.To)
	if err != nil {
		return err
	}
	p.records += r.Added
	return p.relieve()
}

// mayCut makes sure that the file says that ranges may be in its log. The caller holds checkpoints.mu, and not the token.
func mayCut(c *committer, tx *Tx) error {
	if len(tx.cuts) == 0 || c.store.LogsRanges() {
		return nil
	}
	if err := c.flusher.flush(); err != nil && !logstore.IsFull(err) {
		return err
	}
	return c.checkpoints.checkpoint()
}
