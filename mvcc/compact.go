package mvcc

import (
	"context"
	"fmt"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// Compact makes the file as small as a load of its records in key order would, beside readers and writers:
//
//	refill  in key order, the records of neighbouring leaves move together until these are full
//	clean   what lives in segments that hold dead pages moves to the end of the log, the emptiest first
//	trim    what is free goes back to the file system
//
// Neither the refill nor the cleaning changes a record: they make pages dirty, like a fold, a few under each baton, and the next flush
// writes those. So a crash, or an end at any point, leaves the tree as it was before the last complete flush, and redo applies to that
// as ever. Between the steps others get the baton, and between the turns, which end with a checkpoint, also keeper.mu.
const (
	refillLeaves = 64   // looked at under one baton
	turnPages    = 2048 // made dirty in one turn, at most
	denseShare   = 32   // a segment of which less than so much is dead stays as it is
)

// Compaction is how far Compact has come.
type Compaction struct {
	Done      float64 // from 0 to 1, roughly
	FileBytes int64
	LiveBytes int64
}

// compaction is the state of one Compact.
type compaction struct {
	e        *Engine
	progress func(Compaction)
	done     float64
	short    bool // there was no room for something
}

// Compact compacts the file, and calls progress, if that is not nil, now and then from the same goroutine. After ErrFull or the error of
// ctx the database is as usable as before, and what was done already stays.
func (e *Engine) Compact(ctx context.Context, progress func(Compaction)) error {
	if e.opts.Store.ReadOnly {
		return e.wrap("compact", logstore.ErrReadOnly)
	}
	e.unpinned.enter() // Close waits; nothing is held back from reuse
	defer e.unpinned.leave()
	e.compacting.Lock()
	defer e.compacting.Unlock()
	c := &compaction{e: e, progress: progress}
	err := c.run(func() error {
		if e.closed.Load() {
			return ErrClosed
		}
		return ctx.Err()
	})
	return e.wrap("compact", err)
}

func (c *compaction) run(stop func() error) error {
	for _, half := range []float64{0, 0.5} {
		c.short = false
		if err := c.refill(stop, half); err != nil {
			return err
		}
		if err := c.clean(stop, half+0.25); err != nil {
			return err
		}
		if !c.short {
			break
		}
	}
	if err := c.turn(stop, func() error { return c.room(c.trim()) }); err != nil {
		return err
	}
	c.report(1)
	if c.short {
		return fmt.Errorf("%w: not all could be moved together", logstore.ErrFull)
	}
	return nil
}

// trim gives back what it can. The caller holds keeper.mu.
func (c *compaction) trim() error {
	for range vainTries {
		drained, err := c.e.drain(c.reserve)
		if err != nil {
			return err
		}
		if !drained {
			break
		}
		if err := c.settle(); err != nil {
			return err
		}
	}
	for range 6 { // a segment that was condemned goes two checkpoints later
		if err := c.e.checkpoint(); err != nil {
			return err
		}
		c.e.keeper.turn.set(0)
		c.e.trimFrom(1)
		if c.e.store.Returning()+c.e.store.Leaving() == 0 && c.e.store.Surplus(0) < int64(c.e.store.SegmentPages())*logstore.PageSize {
			break
		}
	}
	return c.e.Failed()
}

// report tells how far the work is.
func (c *compaction) report(done float64) {
	c.done = max(c.done, min(done, 1))
	if c.progress != nil {
		s := c.e.store.SpaceStats()
		c.progress(Compaction{Done: c.done, FileBytes: s.FileBytes, LiveBytes: s.LiveBytes})
	}
}

// turn does some work with keeper.mu.
func (c *compaction) turn(stop func() error, work func() error) error {
	if err := stop(); err != nil {
		return err
	}
	k := &c.e.keeper
	c.e.step(StepWait)
	k.mu.Lock()
	defer k.mu.Unlock()
	return work()
}

// refill fills up the leaves of the whole tree.
func (c *compaction) refill(stop func() error, from float64) error {
	e := c.e
	var key []byte
	looked, vain := int64(0), 0
	for more := true; more && !c.short; {
		err := c.turn(stop, func() error {
			written, full := 0, false
			for more && !full && written < e.turnPages() {
				r, err := e.repackSome(key)
				if full = logstore.IsFull(err); full {
					break
				}
				if err != nil {
					return err
				}
				key, more = r.Next, r.Next != nil
				looked += int64(r.Leaves)
				written += r.Written
				e.pace()
				if err := stop(); err != nil {
					return err
				}
			}
			if full && written == 0 {
				return c.gather(&vain)
			}
			vain = 0
			if written == 0 {
				return nil
			}
			return c.room(c.settle())
		})
		if err != nil {
			return err
		}
		c.report(from + 0.25*float64(looked)/float64(1+e.store.SpaceStats().LiveBytes/logstore.PageSize))
	}
	return nil
}

// gather makes room on a full file, as a commit would. If it is needed again and again, that is no use.
func (c *compaction) gather(vain *int) error {
	*vain++
	moved, err := c.e.gatherOnce(true)
	if !logstore.IsFull(err) && err != nil {
		return err
	}
	if _, err := c.e.reclaimNow(); err != nil {
		return err
	}
	c.short = c.short || !moved || *vain > vainTries
	return nil
}

// reserve is for what moves: it leaves what is held back for cleaning.
func (c *compaction) reserve(extra int64) error {
	return c.e.store.ReserveFor(logstore.ForDeletes, extra, 0)
}

// settle ends a turn: what it has made dirty is written, and what has moved is called by its new place, for else the old one would be kept.
// The caller holds keeper.mu.
func (c *compaction) settle() error {
	e := c.e
	if err := e.foldWith(c.reserve); err != nil {
		return err
	}
	if err := e.flush(); err != nil {
		return err
	}
	if _, err := e.drain(c.reserve); err != nil { // those for which there was no room before the flush
		return err
	}
	if err := e.flush(); err != nil {
		return err
	}
	e.keeper.turn.ended(e.store.Counters().Pages)
	return e.checkpointTwice()
}

// room notes that there was none.
func (c *compaction) room(err error) error {
	if logstore.IsFull(err) {
		c.short = true
		return nil
	}
	return err
}

// turnPages returns how many pages a turn makes dirty.
func (e *Engine) turnPages() int {
	return int(max(min(turnPages, e.opts.MemoryLimit/8/logstore.PageSize), 8))
}

// repackSome fills up some leaves, those of the given key and behind it. ErrFull if there is no room for them in the next flush.
func (e *Engine) repackSome(key []byte) (r btree.Repacked, err error) {
	err = e.withBaton(func() error {
		if err := e.Failed(); err != nil {
			return err
		}
		most := min(refillLeaves, 4*e.stepPages())
		extra := int64(most) + int64(most)/8 + 4
		if err := e.store.ReserveFor(logstore.ForDeletes, extra, 0); err != nil {
			return err
		}
		b := e.pages.Begin(e.applied.Load() + 1)
		if r, err = btree.Repack(b, override.Root, key, most); err != nil {
			return e.store.Fail(err)
		}
		e.publishEdit()
		e.rebalance(extra)
		return nil
	})
	return r, err
}

// clean empties all segments written so far that are not dense.
func (c *compaction) clean(stop func() error, from float64) error {
	e := c.e
	if err := c.turn(stop, func() error { return c.room(c.settle()) }); err != nil {
		return err
	}
	last := e.store.LastGroup()
	var all, left int64
	vain := 0
	for more := true; more && !c.short; {
		err := c.turn(stop, func() error {
			victims := c.sparse(last)
			left = 0
			for _, v := range victims {
				left += v.Live
			}
			if all = max(all, left); left == 0 {
				more = false
				return nil
			}
			before, live := e.cleaned.Load(), e.store.LiveIn(victims[0].Segment)
			e.keeper.cleaner.at = time.Now()
			room, err := e.cleanVictims(victims, int64(max(e.turnPages(), int(e.store.SegmentPages()))), true, c.reserve)
			switch {
			case err != nil:
				return err
			case e.cleaned.Load() > before:
				vain = 0
				err := c.room(c.settle())
				if e.store.LiveIn(victims[0].Segment) == live { // what moves lives on there, where tree and space map contradict each other
					e.keeper.cleaner.leave(victims[0])
				}
				return err
			case !room:
				return c.gather(&vain)
			}
			more = len(c.sparse(last)) < len(victims) // some were found to be stuck; what else is left is about to die
			return nil
		})
		if err != nil {
			return err
		}
		c.report(from + 0.25*float64(all-left)/float64(1+all))
	}
	return nil
}

// sparse returns the segments to be emptied, of those written up to the given group.
func (c *compaction) sparse(last uint64) (victims []logstore.Victim) {
	e := c.e
	room := int64(e.store.SegmentPages()) - 1
	all, _ := e.store.Victims(e.keeper.cleaner.stuck, true)
	for _, v := range all {
		if v.Written <= last && (room-v.Live)*denseShare >= room {
			victims = append(victims, v)
		}
	}
	return victims
}
