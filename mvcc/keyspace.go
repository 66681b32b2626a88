package mvcc

import (
	"bytes"
	"math"

	"flashdbm/internal/commit"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// Keyspaces reports whether the file says that its keys are those of keyspaces. What that means is for who uses the engine to know, to which
// all keys are alike.
func Keyspaces(e *Engine) bool { return logstore.Keyspaces(e.store) }

// SetKeyspaces has the file say so, and returns once it does.
func SetKeyspaces(e *Engine) error {
	if Keyspaces(e) {
		return nil
	}
	logstore.WantKeyspaces(e.store)
	return e.Checkpoint()
}

// KeyspacesOf is Keyspaces of a transaction's engine.
func KeyspacesOf(tx *Tx) bool { return Keyspaces(tx.e) }

// claims are what a transaction conflicts by beside the keys that it writes, and what a serializable one has read.
type claims struct {
	guards  *writeset.Set // records that nobody may change meanwhile, as they are at the snapshot; nil for none
	cleared []*keyRange   // by DeleteRange: see clear.go

	cuts     cuts // of the ranges cleared, those that are in no write set: see cut.go
	cutTurns int  // how often a range was cut
}

// guarded reports whether the transaction's guards count: they do in a file that says keyspaces. Until it does, nobody has begun to write what they are
// for; who resolves looks behind the head of the commit list, so whoever begins to later finds the commit there, or in his snapshot.
func guarded(tx *Tx) bool { return tx.guards != nil && Keyspaces(tx.e) }

// Guard has the commit lose, in any isolation, in a file that says keyspaces, if the record of the key is another one then. value is what the
// transaction's snapshot has, nil for no record: as it says which record it is, no table of hashes has to.
func (c *claims) Guard(key, value []byte) {
	if c.guards == nil {
		c.guards = &writeset.Set{}
	}
	if value == nil {
		c.guards.Delete(key)
	} else {
		c.guards.Put(key, value)
	}
}

// GuardedGet is Get of a key that the transaction guards by that. It does not count as one that has read: what it writes does not conflict
// with who writes the same. What it has written itself is the value, and depends on nothing.
func GuardedGet(tx *Tx, key []byte) (value []byte, ok bool, err error) {
	if tx.set != nil {
		if en, own, err := tx.set.Find(key); err != nil {
			return nil, false, err
		} else if own {
			return tx.entryValue(en)
		}
	}
	if err := tx.Expired(); err != nil {
		return nil, false, err
	}
	f, ok, err := tx.snap.find(key)
	if ok && err == nil {
		value, err = tx.foundValue(f)
	}
	if err != nil {
		return nil, false, err
	}
	tx.Guard(key, value)
	return value, ok, nil
}

// guardsWritten reports whether a commit above the snapshot may have written a guarded key, as far as the table of last writes knows.
func guardsWritten(tx *Tx, writes *commit.LastWrites) bool {
	if !guarded(tx) {
		return false
	}
	if writes.Untold() > tx.Snapshot() {
		return true
	}
	for hash := range tx.guards.Hashes {
		if writes.Of(hash).Load() > tx.Snapshot() {
			return true
		}
	}
	return false
}

// guardsHold reports whether all guarded records are what they were at the transaction's snapshot.
func guardsHold(tx *Tx, newest *snapshot) (bool, error) {
	for en := range tx.guards.All() {
		f, there, err := newest.find(en.Key)
		if err != nil || there == en.Deleted {
			return false, err
		}
		if !there {
			continue
		}
		at := pinned{e: tx.e, snap: *newest}
		value, err := at.foundValue(f)
		if err != nil || !bytes.Equal(value, en.Value) {
			return false, err
		}
	}
	return true, nil
}

// Count returns the number of records from from on and below to, nil for all that follow. It looks at each page of the tree that has any.
func Count(tx *Tx, from, to []byte) (n int64, err error) {
	s, err := measure(tx, from, to, math.MaxInt64)
	return s.records, err
}

// rangeSize is what there is of a range.
type rangeSize struct {
	records  int64
	keyBytes int64  // about: the last key of a leaf stands for all of them
	rest     []byte // first key of what was not looked at; nil for none
}

// measure counts the records of a range up to that many, and those of the last leaf that is looked at.
func measure(tx *Tx, from, to []byte, most int64) (s rangeSize, err error) {
	c := tx.Cursor()
	defer c.Release()
	c.Within(from, to)
	for ok := c.Seek(from); ok; ok = c.Next() {
		if err := tx.cancelled(); err != nil {
			return s, err
		}
		if s.records < most {
			if some := c.skip(to); some > 0 {
				s.records += some
				s.keyBytes += some * int64(len(c.Key()))
				continue
			}
		}
		key := c.Key()
		if c.Err() != nil || to != nil && bytes.Compare(key, to) >= 0 {
			break
		}
		if s.records >= most {
			s.rest = append([]byte{}, key...)
			break
		}
		s.records++
		s.keyBytes += int64(len(key))
	}
	return s, c.Err()
}

// skip goes to the last of the records that Stretch would yield, and returns how many they are; 0 where it would yield none.
func (c *Cursor) skip(to []byte) (n int64) {
	if c.tx.reads != nil || !c.bare() || !c.tree.Valid() {
		return 0
	}
	if c.tree.above {
		if c.tree.over.Op() != nil || !c.tree.over.Forward() {
			return 0
		}
		if bound := c.tree.over.Bound(); bound != nil && (to == nil || bytes.Compare(bound, to) < 0) {
			to = bound
		}
	}
	_, i, end, err := c.tree.Stretch(to)
	if err != nil || i >= end {
		return 0
	}
	c.tree.MoveTo(end - 1)
	if c.tree.above {
		c.tree.over.TreeMoved()
	}
	return int64(end - i)
}

// Within says that the cursor is used for keys from from on and below to only, nil for no bound: what a serializable transaction reads by it
// beyond is none of its business.
func (c *Cursor) Within(from, to []byte) { c.low, c.high = from, to }

// clip cuts what was covered to these.
func (c *Cursor) clip(span *keyRange) {
	if c.low != nil && bytes.Compare(span.from, c.low) < 0 {
		span.from = c.low
	}
	if c.high != nil && (span.to == nil || bytes.Compare(span.to, c.high) > 0) {
		span.to = c.high
	}
}
