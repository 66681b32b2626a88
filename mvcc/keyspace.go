package mvcc

import (
	"bytes"
	"math"

	"flashdbm/internal/commit"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// Keyspaces reports whether the file says that its keys are those of keyspaces. What that means is up to the engine's
// user; to the engine all keys are alike.
func Keyspaces(e *Engine) bool { return logstore.Keyspaces(e.store) }

// SetKeyspaces makes the file say so, and returns when it does.
func SetKeyspaces(e *Engine) error {
	if Keyspaces(e) {
		return nil
	}
	logstore.WantKeyspaces(e.store)
	return e.Checkpoint()
}

// KeyspacesOf is Keyspaces of a transaction's engine.
func KeyspacesOf(tx *Tx) bool { return Keyspaces(tx.e) }

// claims are what a transaction conflicts by, in addition to the keys that it writes and those that a serializable
// one has read.
type claims struct {
	guards  *writeset.Set // records that nobody may have changed since the snapshot, with their values there; nil for none
	cleared []*keyRange   // ranges cleared by DeleteRange: see clear.go

	cuts     cuts // those of the cleared ranges that are cut: see cut.go
	cutTurns int  // how often a range was cut
}

// guarded reports whether the transaction's guards count: they do in a file that says keyspaces. Before it does,
// nobody writes the records that guards are for. A resolver looks at the file after the head of the commit list, so a
// transaction that begins to write such records later finds this commit in the list, or in its snapshot.
func guarded(tx *Tx) bool { return tx.guards != nil && Keyspaces(tx.e) }

// Guard makes the commit lose, at any isolation level, in a file that says keyspaces, if the record of key has
// changed by then. value is what the transaction's snapshot has, nil for no record. The value says which record that
// is, so no table of hashes has to.
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

// GuardedGet is Get of a key that the transaction guards with the result. The transaction does not count as one that has
// read: its writes do not conflict with those of others that write the same keys. If the transaction has written the key
// itself, or has cut a range with it, GuardedGet returns what it has then and guards nothing.
func GuardedGet(tx *Tx, key []byte) (value []byte, ok bool, err error) {
	if tx.set != nil {
		if en, own, err := tx.set.Find(key); err != nil {
			return nil, false, err
		} else if own {
			return tx.entryValue(en)
		}
	}
	if tx.cuts.has(key) {
		return nil, false, nil
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

// guardsWritten reports whether a commit above the snapshot may have written a guarded key, according to the table of
// last writes.
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

// Freeing says that the put just made is of a short record, and that the commit leads to deletes of more than it puts.
// Such a put may use the pages that are held back for deletes, so that it succeeds on a full file.
func Freeing(tx *Tx) { tx.puts-- }

// Count returns the number of records from from on and below to; nil for no upper bound. It reads each page of the
// tree that has any of them.
func Count(tx *Tx, from, to []byte) (n int64, err error) {
	s, err := measure(tx, from, to, math.MaxInt64)
	return s.records, err
}

// rangeSize is the result of measure.
type rangeSize struct {
	records  int64
	keyBytes int64  // an estimate: the last key of a leaf stands for all of them
	rest     []byte // first key that was not looked at; nil for none
}

// measure counts the records of a range until it has most, and all of the leaf that it reaches then.
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

// skip moves to the last of the records that Stretch would yield, and returns how many these are; 0 if it would yield
// none.
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

// Within says that the cursor is used only for keys from from on and below to; nil for no bound. What a serializable
// transaction reads outside of these bounds, by moving past them, does not count as read.
func (c *Cursor) Within(from, to []byte) { c.low, c.high = from, to }

// clip restricts span to the bounds of Within.
func (c *Cursor) clip(span *keyRange) {
	if c.low != nil && bytes.Compare(span.from, c.low) < 0 {
		span.from = c.low
	}
	if c.high != nil && (span.to == nil || bytes.Compare(span.to, c.high) > 0) {
		span.to = c.high
	}
}
