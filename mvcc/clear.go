package mvcc

import (
	"bytes"
	"math"
	"slices"
	"sync/atomic"

	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// A transaction that clears a range deletes the records that it finds there, one by one if they are few, else see cut.go, and conflicts as a range:
//
//  1. It has read the range. If another commit since its snapshot has put a record there, it has lost: else that record would stay, though it was
//     committed before the range was cleared. What another one has changed or deleted, their keys tell.
//  2. It has written the range. Who writes a key in it, or clears a part of it, from a snapshot before the commit, has lost: also a key that
//     the range did not have, which no key of the commit tells. Who has only read there has lost, if serializable, by what changed.
//
// For 2 commits that have cleared ranges carry them in the commit list. Once they have left that, recentlyCleared has them, from before applied
// moves on, like the table of last writes: see lockfree.List for why no conflict is missed.

// DeleteRange removes the records from from on and below to, nil for all that follow.
func (tx *Tx) DeleteRange(from, to []byte) error {
	_, err := DeletePart(tx, from, to, math.MaxInt64)
	return err
}

// DeletePart is DeleteRange of the first records of a range, most of them or a few more, and returns the key that the rest begins at, nil if there is none.
func DeletePart(tx *Tx, from, to []byte, most int64) (rest []byte, err error) {
	x := &keyRange{from: bytes.Clone(from)}
	if to != nil {
		x.to = append([]byte{}, to...)
	}
	s, err := snapshotHas(tx, x, most) // also looks at each page that a commit would cut, before anything is logged: a damaged one is told of here
	if err != nil {
		return nil, err
	}
	if s.rest != nil {
		x.to = s.rest
	}
	each, err := deletesEach(tx, s)
	if err != nil {
		return nil, err
	}
	if each {
		err = deleteEach(tx, x)
	} else {
		err = cutRange(tx, x)
	}
	if err != nil {
		return nil, err
	}
	tx.cleared = append(tx.cleared, x)
	return s.rest, nil
}

// deletesEach reports whether the records of a range are deleted one by one: where they are few, and there is room for that. On a full file there may be
// none for a leaf a record, and a cut takes some pages for any number. The room may be gone again when the transaction commits: who tries anew then
// has the range cut.
func deletesEach(tx *Tx, s rangeSize) (bool, error) {
	if s.records >= tx.e.opts.leastCut() {
		return false, nil
	}
	pages := s.records + s.records/8 + redo.Pages(s.keyBytes+s.records*redo.MaxRecord)
	if tx.set != nil {
		pages += tx.e.admission.estimate(tx)
	}
	switch err := tx.e.store.ReserveFor(tx.claim(), pages, 0); {
	case err == nil:
		tx.e.store.Release(pages)
		return true, nil
	case logstore.IsFull(err):
		return false, nil
	default:
		return false, err
	}
}

// deleteEach deletes the records of a range.
func deleteEach(tx *Tx, x *keyRange) error {
	c := tx.Cursor()
	defer c.Release()
	for ok := c.Seek(x.from); ok; ok = c.Next() {
		key := c.Key()
		if err := c.Err(); err != nil {
			return err
		}
		if x.to != nil && bytes.Compare(key, x.to) >= 0 {
			break
		}
		if err := tx.Delete(key); err != nil {
			return err
		}
		if err := tx.cancelled(); err != nil {
			return err
		}
	}
	return c.Err()
}

// crosses reports whether ranges have a key in common.
func (x *keyRange) crosses(y *keyRange) bool {
	return (x.to == nil || bytes.Compare(y.from, x.to) < 0) && (y.to == nil || bytes.Compare(x.from, y.to) < 0)
}

// writesIn reports whether the transaction writes anything in a range that another one has cleared.
func writesIn(tx *Tx, x *keyRange) bool {
	for _, y := range tx.cleared {
		if x.crosses(y) {
			return true
		}
	}
	return tx.set.Overlaps(x.from, x.to)
}

// crossesClearing reports whether a commit in the list depends on, or changes, what the transaction depends on by a range that either has cleared.
func crossesClearing(tx *Tx, c *pushedCommit) bool {
	for _, x := range c.cleared() {
		if writesIn(tx, x) {
			return true
		}
	}
	for _, x := range tx.cleared {
		if c.set.Overlaps(x.from, x.to) {
			return true
		}
	}
	return false
}

// recentlyCleared are the ranges that commits have cleared. The token holder writes it, anybody reads it.
type recentlyCleared struct{ list atomic.Pointer[clearedList] }

// clearedList does not change.
type clearedList struct {
	ranges []clearedRange // the oldest first
	before uint64         // Seq of the newest one that had to leave: who has a snapshot below that has lost, whatever it writes
}

type clearedRange struct {
	*keyRange
	seq uint64
}

// mostCleared is how many ranges are kept. Each resolver looks at those above its snapshot.
const mostCleared = 64

// note notes what the batch at seq has cleared. Token held, before applied moves.
func (r *recentlyCleared) note(nodes []*commitNode, seq uint64) {
	if !slices.ContainsFunc(nodes, func(n *commitNode) bool { return n.Value.ranges != nil }) {
		return
	}
	l := &clearedList{}
	if last := r.list.Load(); last != nil {
		l.before = last.before
		l.ranges = append(l.ranges, last.ranges...)
	}
	for _, n := range nodes {
		for _, x := range n.Value.cleared() {
			l.ranges = append(l.ranges, clearedRange{x, seq})
		}
	}
	if out := len(l.ranges) - mostCleared; out > 0 {
		l.before = l.ranges[out-1].seq
		l.ranges = append([]clearedRange(nil), l.ranges[out:]...)
	}
	r.list.Store(l)
}

// conflict returns the Seq of a commit above the snapshot that has cleared what the transaction writes, 0 if there is none.
func (r *recentlyCleared) conflict(tx *Tx, snapshot uint64) uint64 {
	l := r.list.Load()
	if l == nil {
		return 0
	}
	if l.before > snapshot {
		return l.before
	}
	for i := len(l.ranges) - 1; i >= 0 && l.ranges[i].seq > snapshot; i-- {
		if writesIn(tx, l.ranges[i].keyRange) {
			return l.ranges[i].seq
		}
	}
	return 0
}
