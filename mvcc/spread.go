package mvcc

import (
	"math"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// Keys that come in no order leave the leaves two thirds full, as each that is full is split in two. On a full file that is room for half as
// many records again. So before a put is refused, the records of neighbouring leaves move together, as Compact does it, with half of what
// that could save left in the leaves: see btree.Spread.
//
// Invariants:
//
//  1. A put waits for one turn of Compact after the other until there is room for it, and for no more than a round through the tree.
//  2. A round through the tree that has not made enough room is not begun anew before much was written, and not before some leaves could be
//     saved. So a full file refuses puts without writing its tree for each.
//  3. No record changes, and deletes find what is held back for them: what moves leaves that, as cleaning does.
const (
	// spreadGain: a round has to save a 64th of the pages. With more of a file for records more pages are written for the last of them.
	spreadGain  = 64
	spreadLeast = 8   // and at least 8 pages, a segment of the smallest files
	spreadNews  = 256 // and a 256th of the records has come, or as large a share of the leaves has
	spreadOther = 8   // of the records, an 8th: whose lengths may be others than those before
)

// spreading is where filling up for room goes on, and what the last whole round has left. Guarded by checkpoints.mu.
type spreading struct {
	next    []byte // the key
	records int64
	leaves  int64   // that the records were in,
	full    float64 // and how many records full ones would have
}

// due reports whether a round over this number of leaves may save enough of them.
func (s *spreading) due(records, leaves int64) bool {
	density := float64(records) / float64(leaves)
	news := math.Abs(float64(records-s.records)) + math.Abs(float64(leaves-s.leaves))*density
	gain := float64(leaves) * (1 - density/s.full)
	return s.full == 0 || news*spreadOther >= float64(records) || news*spreadNews >= float64(records) && gain >= max(float64(leaves)/spreadGain, spreadLeast)
}

// spread fills up leaves until there is what a commit needs, and more bytes beside that.
func (a *admission) spread(w *roomWanted, more int64) error {
	var round btree.Repacked
	for vain := 0; vain < vainTries; {
		looked := round.Leaves
		all, err := a.spreadOnce(&round)
		if err != nil && !logstore.IsFull(err) {
			return err
		}
		if all { // what there is will do
			more = 0
		}
		if _, rerr := a.tree.reclaimNow(); rerr != nil {
			return rerr
		}
		if err = a.awaitRoom(a.flusher.installed.Load(), w, more); !logstore.IsFull(err) || all {
			return err
		}
		if round.Leaves == looked {
			vain++
		}
	}
	return w.reserve(0)
}

// spreadOnce is a turn of a round in which leaves are filled up, and reports whether there is nothing left to do. It adds to what the round
// has done.
func (a *admission) spreadOnce(round *btree.Repacked) (all bool, err error) {
	a.step(StepWait)
	a.checkpoints.mu.Lock()
	defer a.checkpoints.mu.Unlock()
	m, s, c := a.maintenance, &a.spreading, &compaction{m: a.maintenance}
	var records, leaves int64
	measure := func() error {
		return a.tree.withMerged(func() error {
			records, leaves = a.tree.records, max(a.tree.leaves(), 1)
			return a.Failed()
		})
	}
	if err := measure(); err != nil {
		return true, err
	}
	if round.Leaves == 0 && !s.due(records, leaves) {
		return true, nil
	}
	written := 0
	for written < m.turnPages() && int64(round.Leaves) < leaves {
		r, ferr := a.flusher.refillSome(s.next, btree.Spread)
		if err = ferr; err != nil {
			break
		}
		s.next = r.Next
		round.Leaves += r.Leaves
		round.Full += r.Full
		written += r.Written
		a.checkpoints.pace()
	}
	if err != nil && !logstore.IsFull(err) {
		return true, err
	}
	if written > 0 {
		err = c.settle()
	} else if err != nil { // as on a file that is full of what has moved before
		var moved bool
		if moved, err = a.cleaner.gatherOnce(true); !moved {
			return true, err
		}
	}
	if all = int64(round.Leaves) >= leaves; all {
		if merr := measure(); merr != nil {
			return true, merr
		}
		s.records, s.leaves, s.full = records, leaves, float64(records)/float64(round.Full)
	}
	return all, err
}
