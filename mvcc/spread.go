package mvcc

import (
	"math"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// Keys in random order leave the leaves two thirds full, since each full leaf is split in two. On a full file that
// space would hold half as many records again. So before a put is refused, the records of neighbouring leaves are
// moved together, as Compact does, but with half of the possible saving left in the leaves: see btree.Spread.
//
// Invariants:
//
//  1. A put waits for one turn of Compact after the other until there is room for it, and for at most one round
//     through the tree.
//  2. After a round that has not made enough room, the next one begins only when much was written and some leaves
//     could be saved. So a full file refuses puts without rewriting its tree for each.
//  3. No record changes, and deletes find the room that is held back for them: moving leaves that alone, as cleaning
//     does.
const (
	// spreadGain: a round has to save a 64th of the pages. Larger: more of a file can hold records, but the last of
	// them cost more page writes.
	spreadGain  = 64
	spreadLeast = 8   // and at least 8 pages, a segment of the smallest files
	spreadNews  = 256 // and a 256th of the records must be new, or as large a share of the leaves
	spreadOther = 8   // or an eighth of the records is new: their lengths may differ from those before
)

// spreading says where filling up goes on, and what the last whole round has left. Guarded by checkpoints.mu.
type spreading struct {
	next    []byte // key at which filling up goes on
	records int64
	leaves  int64   // leaves that had those records,
	full    float64 // and how many records a full leaf would have had
}

// due reports whether a round over the given leaves may save enough of them.
func (s *spreading) due(records, leaves int64) bool {
	density := float64(records) / float64(leaves)
	news := math.Abs(float64(records-s.records)) + math.Abs(float64(leaves-s.leaves))*density
	gain := float64(leaves) * (1 - density/s.full)
	return s.full == 0 || news*spreadOther >= float64(records) || news*spreadNews >= float64(records) && gain >= max(float64(leaves)/spreadGain, spreadLeast)
}

// spread fills leaves up until there is room for what a commit needs, and for more pages besides.
func (a *admission) spread(w *roomWanted, more int64) error {
	var round btree.Repacked
	for vain := 0; vain < vainTries; {
		looked := round.Leaves
		all, err := a.spreadOnce(&round)
		if err != nil && !logstore.IsFull(err) {
			return err
		}
		if all { // enough for the commit alone will do
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

// spreadOnce is one turn of a round of filling up. It adds what it has done to round, and reports whether nothing is
// left to do.
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
		err = c.endTurn()
	} else if err != nil { // as on a file that is full of what was moved before
		var moved bool
		if moved, err = a.cleaner.cleanOnce(true); !moved {
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
