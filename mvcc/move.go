package mvcc

import (
	"bytes"
	"errors"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
	"flashdbm/override"
)

// A value outside of the leaves, in a run or in a page of redo, is moved by being logged again: in a record group
// with the redo of a put of the same value. The leaf that refers to it is changed under the same token. So the old
// place leaves the tree, and dies with the next flush like that of any overwritten value. Which records have runs in
// a segment is found by going through the tree, once for several segments; a logged value is stored with its key.
//
// Invariants:
//
//  1. A value moves only if the newest tree, which lacks nothing, still refers to exactly that place under the
//     value's key. So no older value comes back, neither here nor from the redo, whose place in the log is after all
//     earlier commits and before all later ones.
//  2. Transactions do not notice. The Seq is one of background work and the table of last writes does not change, so
//     no transaction loses to a move. Validation of reads compares values, not places (sameValue). Older snapshots
//     read the old place, whose segment is not reused before they end.
//  3. The group counts whole or not at all. Before it is whole, the old place is live. After that both places are,
//     until the flush that lists the old one as dead. If recovery finds no such flush, it applies the redo, which
//     drops the old place again.
//
// Lists of extents do not move: a put of a list would let the extents of the old list die. Runs in private segments
// do not move either.

const (
	movedBytes   = 64 * logstore.BodySize // most bytes logged under one token, or one value
	movedValues  = 128                    // most values moved under one token
	moveKeyBytes = 8 << 20                // most bytes of keys found in one search
	searchOften  = 1 << 10                // records between two looks whether the search should end
	// searchedShare: in the background the tree is searched once for each quarter of the live bytes that is written
	// to the log
	searchedShare = 4
)

// placedValue is a value in a run, or a logged one, with the key of its record.
type placedValue struct {
	key []byte
	ref btree.Ref
}

// bytes returns how many bytes of the log the value takes.
func (v *placedValue) bytes() int64 {
	n := int64(v.ref.KeyLen) + int64(v.ref.ValueLen)
	if v.ref.Kind == btree.Run {
		n = logstore.RunPages(n) * logstore.BodySize
	}
	return n + int64(len(v.key)) + redo.MaxRecord
}

// findRuns returns the records of the newest tree whose runs are in the given segments. The caller holds
// checkpoints.mu and not the token.
func (c *cleaner) findRuns(segments map[uint32]bool) (found []placedValue, err error) {
	defer c.guard(&err)
	slot := c.readers.registry.Acquire(&c.readers.views)
	defer slot.Release()
	snap := c.pages.At(slot.Seq())
	var records btree.Cursor
	records.Reset(&snap, override.Root)
	size := 0
	for n := 0; size < moveKeyBytes && records.Next(); n++ {
		if n%searchOften == 0 && (c.readers.closed.Load() || c.Failed() != nil) {
			break
		}
		cell := records.Cell()
		if cell.Kind() != btree.Run {
			continue
		}
		ref := cell.Ref()
		if a := ref.ID; logstore.IsAddr(a) && segments[uint32(a/uint64(c.store.SegmentPages()))] {
			// A damaged run stays where it is: its length may be wrong, so no room can be reserved for it.
			if _, err := snap.Run(ref); err != nil {
				continue
			}
			key := append([]byte{}, records.Key()...)
			found = append(found, placedValue{key, ref})
			size += len(key)
		}
	}
	return found, records.Err()
}

// moveRuns moves the runs of the given segments, as far as reserve finds room. The caller holds checkpoints.mu; a
// flush follows.
func (c *cleaner) moveRuns(segments map[uint32]bool, reserve reservation) (room bool, err error) {
	found, err := c.findRuns(segments)
	if err != nil && !errors.Is(err, logstore.ErrCorrupt) { // what was found beside damage can move
		return false, err
	}
	return c.move(found, reserve)
}

// findLogged returns the live logged values of a segment. Damaged pages stay where they are.
func (c *cleaner) findLogged(segment uint32) (found []placedValue) {
	pages, masks := c.store.LoggedIn(segment)
	for i, a := range pages {
		body, err := c.store.RecordPage(a)
		if err != nil {
			continue
		}
		n := 0
		_ = redo.ReadAt(body, func(op btree.Op, _, end int, logged bool) {
			if logged && masks[i]>>n&1 != 0 {
				place := logstore.PlaceOf(a, end-len(op.Value), n)
				found = append(found, placedValue{op.Key, btree.Ref{Kind: btree.Logged, ID: uint64(place), ValueLen: uint64(len(op.Value))}})
			}
			if logged {
				n++
			}
		}, func(redo.Special) {})
	}
	slices.SortFunc(found, func(a, b placedValue) int { return bytes.Compare(a.key, b.key) })
	return found
}

// move moves values of one kind, in ascending order of their keys, as far as reserve finds room. The caller holds
// checkpoints.mu and not the token.
func (c *cleaner) move(values []placedValue, reserve reservation) (room bool, err error) {
	for len(values) > 0 {
		n, size := 0, int64(0)
		most := min(movedBytes, int64(c.stepPages())*2*logstore.BodySize)
		for n < min(len(values), movedValues) && (n == 0 || size+values[n].bytes() <= most) {
			size += values[n].bytes()
			n++
		}
		if room, err := c.moveSome(values[:n], size, reserve); err != nil || !room {
			return room, err
		}
		values = values[n:]
		c.checkpoints.pace()
	}
	return true, nil
}

// cleanPages bounds the pages of the tree that are not dirty. No more can become dirty unless one is split, and a
// moved value splits none: its record keeps its length. Token held.
func cleanPages(t *tree) int64 {
	tree := t.sizes()
	return max(0, t.livePages()+tree.born-tree.dirty/logstore.PageSize)
}

// moveSome moves values if reserve finds room for the leaves of their records and for what is logged: twice the size,
// since runs and values leave ends of pages unused. Room for leaves that are dirty is held already. With room for one
// leaf a value, a full file of some MiB would have none for the 15 pages of values of a segment, though all of these
// records may be in a few leaves; what is dead in pages of the log would stay there, and puts would be refused.
func (c *cleaner) moveSome(values []placedValue, size int64, reserve reservation) (room bool, err error) {
	err = c.tree.withMerged(func() error {
		if err := c.Failed(); err != nil {
			return err
		}
		extra := 2*redo.Pages(size) + withMargin(min(int64(len(values)), cleanPages(c.tree))) + 4
		if err := reserve(extra); logstore.IsFull(err) {
			return nil
		} else if err != nil {
			return err
		}
		room = true
		c.room.held += extra
		if err := c.logAgain(values); err != nil {
			return c.store.Fail(err)
		}
		c.room.spend()
		c.room.rebalance(0)
		return nil
	})
	return room, err
}

// logAgain logs those of the values that the tree still refers to, and changes the tree to refer to the new places.
// Token held; the tree lacks nothing.
func (c *cleaner) logAgain(values []placedValue) error {
	run, newest := values[0].ref.Kind == btree.Run, c.pages.At(c.pages.Seq())
	if run {
		if err := c.log.writeRedo(); err != nil { // of Buffered commits, which are older
			return err
		}
	}
	g := c.log.redoGroup()
	ops := make([]btree.Op, 0, len(values))
	size := int64(0)
	for i := range values {
		v := &values[i]
		value, ok := movable(&newest, v)
		if !ok {
			continue
		}
		ops = append(ops, btree.Op{Key: v.key, Value: value})
		op := &ops[len(ops)-1]
		if run {
			ref := v.ref
			ref.ID = g.Run(0, v.key[:ref.KeyLen], value)
			c.log.runs = append(c.log.runs, bornRun{ref.ID, int64(ref.KeyLen) + int64(ref.ValueLen)})
			op.Value, op.Ref = nil, &ref
			c.log.redo = redo.Append(c.log.redo, op)
		} else {
			c.log.logValue(g, op)
		}
		size += v.bytes()
	}
	if len(ops) == 0 {
		return nil
	}
	c.log.redoOps += uint64(len(ops))
	if c.opts.Durability == Buffered && !run {
		c.log.keepOpen(g)
		if c.log.waiting() >= bufferedBytes {
			if err := c.log.writeRedo(); err != nil {
				return err
			}
		}
	} else {
		group, err := c.log.commitRedo(g)
		if err != nil {
			return err
		}
		c.log.bearRuns(group)
	}
	if run { // it was durable before, and reads from now on use the new place, in Durable mode too
		if err := c.store.Sync(); err != nil {
			return err
		}
	}
	if err := c.pressure.editFor(applying(ops)); err != nil {
		return err
	}
	c.flusher.moved.Add(uint64(redo.Pages(size)))
	return c.log.boundUnsynced()
}

// movable returns the value if the newest tree refers to its place. A damaged value stays where it is.
func movable(newest *override.Snapshot, v *placedValue) (value []byte, ok bool) {
	cell, ok, err := btree.Get(newest, override.Root, v.key)
	if err != nil || !ok || cell.Kind() != v.ref.Kind || cell.Ref() != v.ref {
		return nil, false
	}
	if v.ref.Kind == btree.Run {
		value, err = newest.Run(v.ref)
	} else {
		value, err = newest.Logged(v.key, v.ref)
	}
	return value, err == nil
}
