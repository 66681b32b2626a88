package mvcc

import (
	"context"
	"fmt"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// Compact makes the file as small as a load of its records in key order would, while readers and writers go on:
//
//	refill  in key order, records of neighbouring leaves are moved together until the leaves are full
//	clean   live pages in segments that have dead pages are moved to the end of the log, the emptiest segments first
//	trim    free space goes back to the file system
//
// Neither refilling nor cleaning changes a record: both make pages dirty, like a fold, a few at a time under the
// token, and the next flush writes these. So a crash, or an end at any point, leaves the tree as it was before the
// last complete flush, and redo applies to that as always. Others get the token between the steps, and checkpoints.mu
// between the turns, each of which ends with a checkpoint.
const (
	turnPages   = 2048 // most pages made dirty in one turn
	refillTurns = 64   // most turns in which leaves are filled up if each has at least turnPages
	denseShare  = 32   // a segment of which less than a 32nd is dead stays as it is
)

// Compaction is the progress of a Compact.
type Compaction struct {
	Done      float64 // from 0 to 1, roughly
	FileBytes int64
	LiveBytes int64
}

// compaction is the state of one Compact.
type compaction struct {
	m        *maintenance
	progress func(Compaction)
	done     float64
	short    bool // there was no room for something
}

// Compact compacts the file. It calls progress, if that is not nil, from time to time in the same goroutine. After
// ErrFull or the error of ctx the database is as usable as before, and what was done stays done.
func (e *Engine) Compact(ctx context.Context, progress func(Compaction)) error {
	if e.opts.Store.ReadOnly {
		return e.wrap("compact", logstore.ErrReadOnly)
	}
	e.readers.unpinned.enter() // Close waits for it; it holds nothing back from reuse
	defer e.readers.unpinned.leave()
	e.maintenance.compacting.Lock()
	defer e.maintenance.compacting.Unlock()
	c := &compaction{m: &e.maintenance, progress: progress}
	err := c.run(func() error {
		if e.readers.closed.Load() {
			return ErrClosed
		}
		return ctx.Err()
	})
	return e.wrap("compact", err)
}

func (c *compaction) run(stop func() error) error {
	if len(c.m.store.Segments()) <= 1 { // nothing can be given back, and checkpoints would need another segment
		c.report(1)
		return stop()
	}
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

// trim gives back what it can. The caller holds checkpoints.mu.
func (c *compaction) trim() error {
	for range vainTries {
		drained, err := c.m.flusher.drain((*override.Batch).Fold, c.reserve)
		if err != nil {
			return err
		}
		if !drained {
			break
		}
		if err := c.endTurn(); err != nil {
			return err
		}
	}
	for range 6 { // a condemned segment goes back two checkpoints later
		if err := c.m.checkpoints.checkpoint(); err != nil {
			return err
		}
		c.m.checkpoints.turn.set(0)
		c.m.checkpoints.trimFrom(1)
		if c.m.store.Returning()+c.m.store.Leaving() == 0 && c.m.store.Surplus(0) < int64(c.m.store.SegmentPages())*logstore.PageSize {
			break
		}
	}
	return c.m.Failed()
}

// report passes the progress on.
func (c *compaction) report(done float64) {
	c.done = max(c.done, min(done, 1))
	if c.progress != nil {
		s := c.m.store.SpaceStats()
		c.progress(Compaction{Done: c.done, FileBytes: s.FileBytes, LiveBytes: s.LiveBytes})
	}
}

// turn does some work with checkpoints.mu held.
func (c *compaction) turn(stop func() error, work func() error) error {
	if err := stop(); err != nil {
		return err
	}
	c.m.step(StepWait)
	c.m.checkpoints.mu.Lock()
	defer c.m.checkpoints.mu.Unlock()
	return work()
}

// refill fills up the leaves of the whole tree.
func (c *compaction) refill(stop func() error, from float64) error {
	m := c.m
	var key []byte
	looked, vain := int64(0), 0
	for more := true; more && !c.short; {
		err := c.turn(stop, func() error {
			written, full := 0, false
			for more && !full && written < m.refillPages() {
				r, err := m.flusher.refillSome(key, btree.Repack)
				if full = logstore.IsFull(err); full {
					break
				}
				if err != nil {
					return err
				}
				key, more = r.Next, r.Next != nil
				looked += int64(r.Leaves)
				written += r.Written
				m.checkpoints.pace()
				if err := stop(); err != nil {
					return err
				}
			}
			if full && written == 0 {
				return c.makeRoom(&vain)
			}
			vain = 0
			if written == 0 {
				return nil
			}
			return c.room(c.endTurn())
		})
		if err != nil {
			return err
		}
		c.report(from + 0.25*float64(looked)/float64(1+m.store.SpaceStats().LiveBytes/logstore.PageSize))
	}
	return nil
}

// makeRoom makes room on a full file, as a commit would. After vainTries times in a row it gives up.
func (c *compaction) makeRoom(vain *int) error {
	*vain++
	moved, err := c.m.cleaner.cleanOnce(true)
	if !logstore.IsFull(err) && err != nil {
		return err
	}
	if _, err := c.m.tree.reclaimNow(); err != nil {
		return err
	}
	c.short = c.short || !moved || *vain > vainTries
	return nil
}

// reserve finds room for what is moved. It leaves what is held back for cleaning.
func (c *compaction) reserve(extra int64) error {
	return c.m.store.ReserveFor(logstore.ForDeletes, extra, 0)
}

// endTurn ends a turn: it writes what the turn has made dirty, and folds the parents of what has moved, since their
// old names would keep the old places from reuse. The caller holds checkpoints.mu.
func (c *compaction) endTurn() error {
	m := c.m
	if err := m.flusher.foldWith(c.reserve); err != nil {
		return err
	}
	if err := m.flusher.flush(); err != nil {
		return err
	}
	if _, err := m.flusher.drain((*override.Batch).Fold, c.reserve); err != nil { // those for which there was no room before the flush
		return err
	}
	if err := m.flusher.flush(); err != nil {
		return err
	}
	m.checkpoints.turn.ended(m.store.Counters().Pages)
	return m.checkpoints.checkpointTwice()
}

// room notes in c.short that there was no room.
func (c *compaction) room(err error) error {
	if logstore.IsFull(err) {
		c.short = true
		return nil
	}
	return err
}

// turnPages returns how many pages a turn makes dirty.
func (f *file) turnPages() int {
	return int(max(min(turnPages, f.opts.MemoryLimit/8/logstore.PageSize), 8))
}

// refillPages is turnPages for a turn that fills leaves up. Such a turn ends with two searches of all inner nodes, so in
// a large tree it is a refillTurns-th of the live pages.
func (f *file) refillPages() int {
	return max(f.turnPages(), int(min(f.store.SpaceStats().LiveBytes/refillTurns, f.opts.MemoryLimit/8)/logstore.PageSize))
}

// clean empties all segments that were written before it began and are not dense.
func (c *compaction) clean(stop func() error, from float64) error {
	m := c.m
	if err := c.turn(stop, func() error { return c.room(c.endTurn()) }); err != nil {
		return err
	}
	last := m.store.LastGroup()
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
			before, live := m.flusher.moved.Load(), m.store.LiveIn(victims[0].Segment)
			m.cleaner.at = time.Now()
			room, err := m.cleaner.cleanVictims(victims, int64(max(m.turnPages(), int(m.store.SegmentPages()))), true, c.reserve)
			switch {
			case err != nil:
				return err
			case m.flusher.moved.Load() > before:
				vain = 0
				err := c.room(c.endTurn())
				if m.store.LiveIn(victims[0].Segment) == live { // what moves stays live there: tree and space map contradict each other
					m.flusher.stuck.leave(victims[0])
				}
				return err
			case !room:
				return c.makeRoom(&vain)
			}
			more = len(c.sparse(last)) < len(victims) // some segments were found to be stuck; what else is left is about to die
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
	m := c.m
	room := int64(m.store.SegmentPages()) - 1
	all, _ := m.store.Victims(m.flusher.stuck, true)
	for _, v := range all {
		if v.Written <= last && (room-v.Live)*denseShare >= room {
			victims = append(victims, v)
		}
	}
	return victims
}
