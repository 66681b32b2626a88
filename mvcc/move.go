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

// A value that lies outside of the leaves, in a run or in a page of redo, moves by being logged again: in a record group with the redo of a put of
// the same value. The leaf that refers to it is changed under the same token. The old place leaves the tree by that, and dies with the next
// flush like that of any overwritten value. Which records have their runs in a segment is found by going through the tree, once for several
// segments; a logged value has its key beside it.
//
// Invariants:
//
//  1. A value moves only if the newest tree, which lacks nothing, still refers to exactly that place under its key. So no older value comes
//     back, neither here nor by the redo, which stands in the log behind all commits before and in front of all after it.
//  2. Nobody notices: the Seq is one of background work, and the table of last writes stays as it is, so no transaction loses to it; one that
//     compares what it has read compares values, not places (sameValue). Older snapshots go on to the old place, whose segment waits for them.
//  3. The group counts whole or not at all. Before it is whole, the old place lives. Behind it both do, until the flush that lists the old
//     one as dead; recovery that finds no such flush applies the redo, which drops the old one again.
//
// Lists of extents don't move: a put of a list would let the extents of the old one die. Nor do runs in private segments.

const (
	movedBytes    = 64 * logstore.BodySize // logged under one token, or one value
	movedValues   = 128                    // under one token, at most
	moveKeyBytes  = 8 << 20                // of keys found in one search, at most
	searchOften   = 1 << 10                // records between two looks whether the search should end
	searchedShare = 4                      // in the background the tree is searched once in a quarter of what lives written to the log
)

// placedValue is a value in a run, or a logged one, and the key of its record.
type placedValue struct {
	key []byte
	ref btree.Ref
}

// bytes returns what it takes in the log.
func (v *placedValue) bytes() int64 {
	n := int64(v.ref.KeyLen) + int64(v.ref.ValueLen)
	if v.ref.Kind == btree.Run {
		n = logstore.RunPages(n) * logstore.BodySize
	}
	return n + int64(len(v.key)) + redo.MaxRecord
}

// findRuns returns the records of the newest tree whose runs lie in the given segments. The caller holds checkpoints.mu and not the token.
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
			if _, err := snap.Run(ref); err != nil { // damage stays where it is, and its length is nothing to make room for
				continue
			}
			key := append([]byte{}, records.Key()...)
			found = append(found, placedValue{key, ref})
			size += len(key)
		}
	}
	return found, records.Err()
}

// moveRuns moves the runs of the given segments, as far as reserve finds room. The caller holds checkpoints.mu, and a flush follows.
func (c *cleaner) moveRuns(segments map[uint32]bool, reserve reservation) (room bool, err error) {
	found, err := c.findRuns(segments)
	if err != nil && !errors.Is(err, logstore.ErrCorrupt) { // what was found beside damage can move all the same
		return false, err
	}
	return c.move(found, reserve)
}

// findLogged returns the live logged values of a segment. Damage stays where it is.
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

// move moves values, all of one kind, whose keys ascend, as far as reserve finds room. The caller holds checkpoints.mu, and not the token.
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

// moveSome moves values, if there is room for what is logged, twice as much where runs and values leave ends unused,
// and for the leaves of the records.
func (c *cleaner) moveSome(values []placedValue, size int64, reserve reservation) (room bool, err error) {
	err = c.tree.withMerged(func() error {
		if err := c.Failed(); err != nil {
			return err
		}
		extra := 2*redo.Pages(size) + withMargin(int64(len(values))) + 4
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

// logAgain logs those of the values again that are in the tree still, and lets it refer to the new places. Token held, with a tree that lacks
// nothing.
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
	if run && c.opts.Durability != Durable { // what is read from now on was durable before, and has to stay that
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

// movable returns the value if the newest tree refers to its place. What is damaged stays where it is.
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
