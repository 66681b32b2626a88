package mvcc

import (
	"bytes"
	"errors"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
	"flashdbm/override"
)

// readSet is what a serializable transaction has read: keys, present or absent, and ranges. At commit all of it must read the same in
// the newest state as at the snapshot.
type readSet struct {
	keys    writeset.Set // as deletes: an ordered set of keys
	ranges  []*keyRange
	counted bool // Len was read
}

// keyRange is [from, to); nil from or to is an open end.
type keyRange struct{ from, to []byte }

func (r *readSet) addKey(key []byte) { r.keys.Delete(key) }

// span adds a range, empty so far, that the caller widens as it reads on.
func (r *readSet) span() *keyRange {
	x := &keyRange{}
	r.ranges = append(r.ranges, x)
	return x
}

// overlaps reports whether a commit's set changes anything that was read.
func (r *readSet) overlaps(set *writeset.Set) bool {
	if r.counted || r.keys.Intersects(set) {
		return true
	}
	for _, x := range r.ranges {
		if set.Overlaps(x.from, x.to) {
			return true
		}
	}
	return false
}

// validate compares what a serializable transaction has read with the newest applied state. It follows the walk of the commit list: a
// commit that the walk no longer found was cut after applied had moved past it, so it is in the state compared here.
func (tx *Tx) validate() error {
	if tx.reads == nil {
		return nil
	}
	e := tx.e
	now := e.registry.Acquire(&e.applied)
	defer now.Release()
	if now.Seq() == tx.Snapshot() {
		return nil
	}
	if err := e.await(now.Seq()); err != nil {
		return err
	}
	newest := e.pages.At(now.Seq())
	same, err := tx.unchanged(&newest)
	if err == nil && !same {
		e.conflicts.Add(1)
		err = ErrConflict
	}
	return err
}

func (tx *Tx) unchanged(newest *override.Snapshot) (bool, error) {
	if err := tx.see(); err != nil {
		return false, err
	}
	if tx.reads.counted {
		if n := tx.e.counts.At(newest.Seq()); n < 0 || n != tx.records {
			return false, nil
		}
	}
	for en := range tx.reads.keys.All() {
		same, err := sameRecord(&tx.snap, newest, en.Key)
		if !same || err != nil {
			return false, err
		}
	}
	for _, x := range tx.reads.ranges {
		same, err := sameRange(&tx.snap, newest, x)
		if !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// sameRecord compares a record in two snapshots.
func sameRecord(a, b *override.Snapshot, key []byte) (bool, error) {
	x, inA, err := btree.Get(a, override.Root, key)
	if err != nil {
		return false, err
	}
	y, inB, err := btree.Get(b, override.Root, key)
	if err != nil || inA != inB {
		return false, err
	}
	if !inA {
		return true, nil
	}
	return sameCell(a, b, x, y)
}

// sameCell compares the values of a key in two snapshots. A long one is the same if it is the same run, which is never rewritten in place,
// or if it was moved.
func sameCell(a, b *override.Snapshot, x, y btree.Cell) (bool, error) {
	if x.Kind() != y.Kind() {
		return false, nil
	}
	if x.Kind() == btree.Inline {
		return bytes.Equal(x.Value(), y.Value()), nil
	}
	rx, ry := x.Ref(), y.Ref()
	if rx == ry {
		return true, nil
	}
	if rx.Kind == btree.Extents || rx.ValueLen != ry.ValueLen || rx.KeyLen != ry.KeyLen {
		return false, nil
	}
	read := func(s *override.Snapshot, c btree.Cell) ([]byte, error) {
		if c.Kind() == btree.Logged {
			return s.Logged(c.Key(), c.Ref())
		}
		return s.Run(c.Ref())
	}
	vx, err := read(a, x)
	if err != nil {
		return false, err
	}
	vy, err := read(b, y)
	return bytes.Equal(vx, vy), err
}

// sameRange compares the records of a range in two snapshots.
func sameRange(a, b *override.Snapshot, x *keyRange) (bool, error) {
	var ca, cb btree.Cursor
	ca.Reset(a, override.Root)
	cb.Reset(b, override.Root)
	inA, inB := ca.Seek(x.from), cb.Seek(x.from)
	for {
		inA = inA && (x.to == nil || bytes.Compare(ca.Key(), x.to) < 0)
		inB = inB && (x.to == nil || bytes.Compare(cb.Key(), x.to) < 0)
		if err := errors.Join(ca.Err(), cb.Err()); err != nil {
			return false, err
		}
		if !inA || !inB {
			return inA == inB, nil
		}
		if !bytes.Equal(ca.Key(), cb.Key()) {
			return false, nil
		}
		if same, err := sameCell(a, b, ca.Cell(), cb.Cell()); !same || err != nil {
			return false, err
		}
		inA, inB = ca.Next(), cb.Next()
	}
}
