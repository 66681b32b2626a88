package mvcc

import (
	"bytes"

	"flashdbm/internal/btree"
	"flashdbm/override"
)

// A glance is a read-only transaction for one lookup. Its memory is reused: a lookup allocates nothing for it, and it
// returns to its place in the registry, which is in its processor's cache.

// glance begins a glance.
func (e *Engine) glance() (*Tx, error) {
	tx, ok := e.glances.Get().(*Tx)
	if !ok {
		tx = &Tx{pinned: pinned{e: e, readOnly: true}}
	}
	if err := e.readers.look(&tx.pinned, e.marks.viewAt); err != nil {
		return nil, err
	}
	return tx, nil
}

func (e *Engine) endGlance(tx *Tx) {
	tx.slot.Release()
	tx.snap.view = nil // it would keep memtables in memory
	e.glances.Put(tx)
}

// valueIn returns the value of key in a transaction, and where it was found.
func valueIn(tx *Tx, key []byte) (value []byte, f found, ok bool, err error) {
	if f, ok, err = tx.snap.find(key); ok && err == nil {
		tx.snap.touch(&f)
		value, err = tx.foundValue(f)
	}
	return value, f, ok && err == nil, err
}

// GetCopy returns a copy of the value of key, in a transaction of its own.
func (e *Engine) GetCopy(key []byte) (value []byte, ok bool, err error) {
	tx, err := e.glance()
	if err != nil {
		return nil, false, err
	}
	defer e.endGlance(tx)
	v, f, ok, err := valueIn(tx, key)
	switch {
	case !ok:
		return nil, false, err
	case f.ref().Kind == btree.Extents: // it was put together for this call
		return v, true, nil
	}
	return append(make([]byte, 0, len(v)), v...), true, nil
}

// Look calls use with the value of key, in a transaction of its own. The slice is valid until use returns. If there
// is no such record, ok is false and use is not called.
func (e *Engine) Look(key []byte, use func(value []byte)) (ok bool, err error) {
	tx, err := e.glance()
	if err != nil {
		return false, err
	}
	defer e.endGlance(tx)
	v, _, ok, err := valueIn(tx, key)
	if ok {
		use(v)
	}
	return ok, err
}

// LookInto copies the value of key into room if it fits, and otherwise leaves room as it is. n is the length of the
// value.
func (e *Engine) LookInto(key, room []byte) (n int, ok bool, err error) {
	tx, err := e.glance()
	if err != nil {
		return 0, false, err
	}
	defer e.endGlance(tx)
	v, _, ok, err := valueIn(tx, key)
	if len(v) <= len(room) {
		copy(room, v)
	}
	return len(v), ok, err
}

// Prefetch makes the system read what lookups of the keys will need and what no lookup has read yet: first the leaves
// of all keys, then their values, each at the same time. It returns while values are still being read. Errors are
// left to the lookups.
func Prefetch(e *Engine, keys [][]byte) error {
	tx, err := e.glance()
	if err != nil {
		return err
	}
	defer e.endGlance(tx)
	leaves := make([]btree.PageID, 0, len(keys))
	for _, key := range keys {
		if tx.snap.view.Find(key, tx.snap.at) != nil {
			continue
		}
		if id, err := btree.Leaf((*override.Lookup)(&tx.snap.Snapshot), override.Root, key); err == nil {
			leaves = append(leaves, id)
		}
	}
	tx.snap.Prefetch(leaves)
	for _, key := range keys {
		if f, ok, err := tx.snap.find(key); ok && err == nil {
			tx.snap.touch(&f)
		}
	}
	return nil
}

// After calls use with the least key greater than key, or with the least key of all if first is set, in a transaction
// of its own. The slice is valid until use returns. If there is no such key, ok is false and use is not called.
func (e *Engine) After(key []byte, first bool, use func(key []byte)) (ok bool, err error) {
	tx, err := e.glance()
	if err != nil {
		return false, err
	}
	defer e.endGlance(tx)
	var place treeCursor
	c := place.reset(&tx.snap)
	if first {
		ok = c.First()
	} else if ok = c.Seek(key); ok {
		found := c.Key()
		if c.Err() == nil && bytes.Equal(found, key) {
			ok = c.Next()
		}
	}
	if !ok || c.Err() != nil {
		return false, c.Err()
	}
	found := c.Key()
	if err := c.Err(); err != nil {
		return false, err
	}
	use(found)
	return true, nil
}

// Exists reports whether there is a record with the key, in a transaction of its own.
func (e *Engine) Exists(key []byte) (bool, error) {
	tx, err := e.glance()
	if err != nil {
		return false, err
	}
	defer e.endGlance(tx)
	_, ok, err := tx.snap.find(key)
	return ok, err
}

// Len returns the number of records that a View would see.
func (e *Engine) Len() (int64, error) {
	tx, err := e.glance()
	if err != nil {
		return 0, err
	}
	defer e.endGlance(tx)
	return tx.snap.len()
}
