package mvcc

import (
	"bytes"
	"math"
	"slices"
	"sync/atomic"

	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// A transaction that clears a range deletes the records that it finds there, one by one if they are few, otherwise as
// described in cut.go. It conflicts as a range:
//
//  1. It has read the range. If another commit since its snapshot has put a new record there, the transaction gets a
//     conflict: otherwise that record would stay, although it was committed before the range was cleared. Records
//     that another commit has changed or deleted are found as conflicts of keys.
//  2. It has written the range. A transaction that writes a key in the range, or clears part of it, from a snapshot
//     before this commit, gets a conflict; also for a key that was not in the range, which therefore is in no write
//     set of this commit. A serializable transaction that has only read the range loses if what it has read has
//     changed.
//
// For rule 2, commits that have cleared ranges carry them in the commit list. recentlyCleared has them from before
// applied moves, like the table of last writes, so they are found there when they have left the list: lockfree.List
// explains why no conflict is missed.

// DeleteRange removes the records from from on and below to; nil for no upper bound.
func (tx *Tx) DeleteRange(from, to []byte) error {
	_, err := DeletePart(tx, from, to, math.MaxInt64)
	return err
}

// DeletePart is DeleteRange of about the first most records of a range, possibly a few more. It returns the key at
// which the rest begins, nil if there is none.
func DeletePart(tx *Tx, from, to []byte, most int64) (rest []byte, err error) {
	x := &keyRange{from: bytes.Clone(from)}
	if to != nil {
		x.to = append([]byte{}, to...)
	}
	// This also reads each page that a commit would cut, before anything is logged: a damaged page is reported here.
	s, err := snapshotHas(tx, x, most)
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

// deletesEach reports whether the records of a range are deleted one by one: if they are few and there is room for
// that. On a full file there may be no room for one leaf per record, while a cut takes a few pages for any number of
// records. The room may be gone when the transaction commits; a transaction that tries again then cuts the range.
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

// crosses reports whether two ranges have a key in common.
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

// crossesClearing reports whether the transaction conflicts with c, a commit in the list, by a range that either has
// cleared.
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

// recentlyCleared has the ranges that commits have cleared lately. The token holder writes it, anyone reads it.
type recentlyCleared struct{ list atomic.Pointer[clearedList] }

// clearedList does not change.
type clearedList struct {
	ranges []clearedRange // oldest first
	// before: Seq of the newest range that was dropped: a transaction with a snapshot below it gets a conflict, for
	// any write
	before uint64
}

type clearedRange struct {
	*keyRange
	seq uint64
}

// mostCleared is how many ranges are kept. Each resolver looks at those above its snapshot.
const mostCleared = 64

// note adds the ranges that the batch at seq has cleared. Token held, before applied moves.
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

// conflict returns the Seq of a commit above the snapshot that has cleared a range in which the transaction writes; 0
// if there is none.
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
