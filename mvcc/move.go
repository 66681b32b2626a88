package mvcc

import (
	"errors"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
	"flashdbm/override"
)

// A value run moves when its segment is cleaned: the run is written again, in a record group with the redo of a put of the same value, and
// the leaf that refers to it is changed, all under one token. The old run leaves the tree by that, and dies with the next flush like that
// of any overwritten value. What holds the records of a segment's runs is found by going through the tree, once for several segments.
//
// Invariants:
//
//  1. A run moves only if the newest tree, which lacks nothing, still refers to exactly that run under its key. So no older value comes
//     back, neither here nor by the redo, which stands in the log behind all commits before and in front of all after it.
//  2. Nobody notices: the Seq is one of background work, and the table of last writes stays as it is, so no transaction loses to it; one that
//     compares what it has read compares values, not places (sameCell). Older snapshots go on to the old run, whose segment waits for them.
//  3. The group counts whole or not at all. Before it is whole, the old run lives. Behind it both do, until the flush that lists the old
//     one as dead; recovery that finds no such flush applies the redo, which drops the old run again.
//
// Lists of extents don't move: a put of a list would let the extents of the old one die. Nor do runs in private segments.

const (
	moveAtOnce    = 64      // pages of runs moved under one token, or one run
	moveKeyBytes  = 8 << 20 // of keys found in one search, at most
	searchOften   = 1 << 10 // records between two looks whether the search should end
	searchedShare = 4       // in the background the tree is searched once in so much of what lives written to the log
)

// placedRun is a run and the record that refers to it.
type placedRun struct {
	key []byte
	ref btree.Ref
}

func (r *placedRun) pages() int64 {
	return logstore.RunPages(int64(r.ref.KeyLen) + int64(r.ref.ValueLen))
}

// findRuns returns the records of the newest tree whose runs lie in the given segments. The caller holds checkpoints.mu and not the token.
func (c *cleaner) findRuns(segments map[uint32]bool) (found []placedRun, err error) {
	defer c.guard(&err)
	slot := c.readers.registry.Acquire(&c.readers.views)
	defer slot.Release()
	snap := c.pages.At(slot.Seq())
	var records btree.Cursor
	records.Reset(&snap, override.Root)
	bytes := 0
	for n := 0; bytes < moveKeyBytes && records.Next(); n++ {
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
			found = append(found, placedRun{key, ref})
			bytes += len(key)
		}
	}
	return found, records.Err()
}

// moveRuns moves the runs of the given segments, as far as reserve finds room. The caller holds checkpoints.mu, and a flush follows.
func (c *cleaner) moveRuns(segments map[uint32]bool, reserve reservation) (room bool, err error) {
	found, err := c.findRuns(segments)
	if errors.Is(err, logstore.ErrCorrupt) { // somewhere: what was found can move all the same
		err = nil
	}
	if err != nil {
		return false, err
	}
	for len(found) > 0 {
		n, pages := 0, int64(0)
		most := min(moveAtOnce, int64(c.stepPages())*2)
		for n < len(found) && (n == 0 || pages+found[n].pages() <= most) {
			pages += found[n].pages()
			n++
		}
		if room, err := c.moveSomeRuns(found[:n], reserve); err != nil || !room {
			return room, err
		}
		found = found[n:]
		c.checkpoints.pace()
	}
	return true, nil
}

func (c *cleaner) moveSomeRuns(runs []placedRun, reserve reservation) (room bool, err error) {
	var pages, size int64
	for i := range runs {
		pages += logstore.RunReserve(runs[i].pages())
		size += int64(len(runs[i].key)) + redo.MaxRecord
	}
	return c.moveRecords(pages+redo.Pages(size), len(runs), reserve, func() error {
		if err := c.log.writeRedo(); err != nil { // of Buffered commits, which are older
			return err
		}
		return c.rewriteRuns(runs)
	})
}

// moveRecords calls rewrite with the token, if there is room for what it logs, in pages, and for the leaves of the records.
func (c *cleaner) moveRecords(pages int64, records int, reserve reservation, rewrite func() error) (room bool, err error) {
	err = c.tree.withMerged(func() error {
		if err := c.Failed(); err != nil {
			return err
		}
		extra := pages + withMargin(int64(records)) + 4
		if err := reserve(extra); logstore.IsFull(err) {
			return nil
		} else if err != nil {
			return err
		}
		room = true
		c.room.held += extra
		if err := rewrite(); err != nil {
			return c.store.Fail(err)
		}
		c.room.spend()
		c.room.rebalance(0)
		return nil
	})
	return room, err
}

// rewriteRuns writes those of the runs again that are in the tree still, and lets it refer to the new ones. Token held, with a tree
// that lacks nothing and no redo in memory.
func (c *cleaner) rewriteRuns(runs []placedRun) error {
	g := c.store.Begin(logstore.RecordGroup)
	c.log.runs = c.log.runs[:0]
	ops := make([]btree.Op, 0, len(runs))
	pages := int64(0)
	for i := range runs {
		r := &runs[i]
		payload := c.movable(r)
		if payload == nil {
			continue
		}
		ref := r.ref
		ref.ID = g.Run(0, payload)
		c.log.runs = append(c.log.runs, bornRun{ref.ID, int64(len(payload))})
		ops = append(ops, btree.Op{Key: r.key, Ref: &ref})
		c.log.redo = redo.Append(c.log.redo, &ops[len(ops)-1])
		pages += r.pages()
	}
	if len(ops) == 0 {
		return nil
	}
	c.log.redoOps += uint64(len(ops))
	group, err := c.log.commitRedo(g)
	if err != nil {
		return err
	}
	c.log.bearRuns(group)
	if c.opts.Durability != Durable { // what is read from now on was durable before, and has to stay that
		if err := c.store.Sync(); err != nil {
			return err
		}
	}
	if err := c.pressure.editFor(applying(ops)); err != nil {
		return err
	}
	c.flusher.moved.Add(uint64(pages))
	return nil
}

// movable returns what the run holds if the newest tree refers to it, nil if it does not, or if there is damage: that stays where it is.
func (c *cleaner) movable(r *placedRun) []byte {
	newest := c.pages.At(c.pages.Seq())
	cell, ok, err := btree.Get(&newest, override.Root, r.key)
	if err != nil || !ok || cell.Kind() != btree.Run || cell.Ref() != r.ref {
		return nil
	}
	payload, err := c.store.Run(r.ref.ID)
	if err != nil || int64(len(payload)) != int64(r.ref.KeyLen)+int64(r.ref.ValueLen) {
		return nil
	}
	return payload
}
