package mvcc

import (
	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// Callers that only need the beginning of a value read no more of a large one than its first extent.

// Beginning returns a slice with which the value of key begins: the whole value, unless it is larger than a run. It
// is valid as long as what Get returns.
func Beginning(tx *Tx, key []byte) (b []byte, ok bool, err error) {
	if tx.set != nil {
		if en, ok, err := tx.set.Find(key); ok || err != nil {
			tx.readAny = true
			if err != nil || en.Deleted {
				return nil, false, err
			}
			b, err = entryBeginning(tx, en)
			return b, err == nil, err
		}
	}
	f, ok, err := tx.lookup(key)
	if !ok || err != nil {
		return nil, false, err
	}
	b, err = foundBeginning(tx, f)
	return b, err == nil, err
}

// BeginningAt is Beginning of the cursor's record.
func BeginningAt(c *Cursor) ([]byte, error) {
	switch en, ok, err := c.entry(); {
	case err != nil:
		return nil, err
	case ok:
		return entryBeginning(c.tx, en)
	}
	return foundBeginning(c.tx, c.tree.found())
}

// Head returns a copy of the first n bytes at most of the value of key, in a transaction of its own; nil if there is
// no such record.
func Head(e *Engine, key []byte, n int) ([]byte, error) {
	tx, err := e.glance()
	if err != nil {
		return nil, err
	}
	defer e.endGlance(tx)
	f, ok, err := tx.snap.find(key)
	if !ok || err != nil {
		return nil, err
	}
	b, err := foundBeginning(tx, f)
	return append([]byte{}, b[:min(n, len(b))]...), err
}

func foundBeginning(tx *Tx, f found) ([]byte, error) {
	ref := f.ref()
	if ref.Kind != btree.Extents {
		return tx.foundValue(f)
	}
	extents, err := tx.snap.Extents(ref)
	if err != nil {
		return nil, err
	}
	return firstOf(tx, extents)
}

func entryBeginning(tx *Tx, en writeset.Entry) ([]byte, error) {
	if en.Ref == nil {
		return en.Value, nil
	}
	return firstOf(tx, en.Ref.Extents)
}

func firstOf(tx *Tx, extents []logstore.Extent) ([]byte, error) {
	if len(extents) == 0 {
		return nil, nil
	}
	return tx.snap.Raw(extents[0])
}
