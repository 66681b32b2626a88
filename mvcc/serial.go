package mvcc

import (
	"bytes"
	"errors"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
	"flashdbm/lockfree"
)

// readSet is what a serializable transaction has read: keys, present or absent, and ranges. At commit all of it must
// read the same in the newest state as in the snapshot.
type readSet struct {
	keys    writeset.Set // in the form of deletes: an ordered set of keys
	ranges  []*keyRange
	counted bool // Len was read
}

// keyRange is [from, to); a nil from or to is an open end.
type keyRange struct{ from, to []byte }

func (r *readSet) addKey(key []byte) { r.keys.Delete(key) }

// span adds an empty range, which the caller extends as it reads on.
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

// validate compares the newest applied state with what a serializable transaction has read, or any transaction has
// cleared or guarded. It follows the walk of the commit list: a commit that the walk did not find any more was cut
// after applied had moved past it, so it is in the state that is compared here.
func (r *resolver) validate(tx *Tx) error {
	guards := guardsWritten(tx, &r.writes)
	if tx.reads == nil && tx.cleared == nil && !guards {
		return nil
	}
	slot, newest := r.readers.register(lockfree.Slot{}, &r.marks.applied)
	defer slot.Release()
	// If only background work has changed the tree, the records are the same.
	if newest.at == tx.Snapshot() || r.marks.committed.Load() <= tx.Snapshot() {
		return nil
	}
	same, err := true, error(nil)
	if guards {
		same, err = guardsHold(tx, &newest)
	}
	if same && err == nil {
		same, err = r.unchanged(tx, &newest)
	}
	if err == nil && !same {
		r.readers.conflicts.Add(1)
		err = ErrConflict
	}
	return err
}

func (r *resolver) unchanged(tx *Tx, newest *snapshot) (bool, error) {
	if tx.reads == nil {
		return sameRanges(&tx.snap, newest, tx.cleared)
	}
	if tx.reads.counted {
		before, err := tx.snap.len()
		if err != nil {
			return false, err
		}
		if n, err := newest.len(); err != nil || n != before {
			return false, err
		}
	}
	for en := range tx.reads.keys.All() {
		same, err := sameRecord(&tx.snap, newest, en.Key)
		if !same || err != nil {
			return false, err
		}
	}
	return sameRanges(&tx.snap, newest, tx.reads.ranges) // ranges that were cleared are among those that were read
}

func sameRanges(snap, newest *snapshot, ranges []*keyRange) (bool, error) {
	for _, x := range ranges {
		same, err := sameRange(snap, newest, x)
		if !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// sameRecord compares a record in two snapshots.
func sameRecord(a, b *snapshot, key []byte) (bool, error) {
	x, inA, err := a.find(key)
	if err != nil {
		return false, err
	}
	y, inB, err := b.find(key)
	if err != nil || inA != inB {
		return false, err
	}
	if !inA {
		return true, nil
	}
	return sameValue(a, b, key, x, y)
}

// sameValue compares the values of a key in two snapshots. Long values are the same if they are in the same run,
// since a run is never rewritten in place, or if their bytes are equal, since a run or logged value may have been
// moved.
func sameValue(a, b *snapshot, key []byte, x, y found) (bool, error) {
	rx, ry := x.ref(), y.ref()
	if rx.Kind != ry.Kind {
		return false, nil
	}
	if rx.Kind == btree.Inline {
		return bytes.Equal(x.value(), y.value()), nil
	}
	if rx == ry {
		return true, nil
	}
	if rx.Kind == btree.Extents || rx.ValueLen != ry.ValueLen || rx.KeyLen != ry.KeyLen {
		return false, nil
	}
	read := func(s *snapshot, ref btree.Ref) ([]byte, error) {
		if ref.Kind == btree.Logged {
			return s.Logged(key, ref)
		}
		return s.Run(ref)
	}
	vx, err := read(a, rx)
	if err != nil {
		return false, err
	}
	vy, err := read(b, ry)
	return bytes.Equal(vx, vy), err
}

// sameRange compares the records of a range in two snapshots.
func sameRange(a, b *snapshot, x *keyRange) (bool, error) {
	var placeA, placeB treeCursor
	ca, cb := placeA.reset(a), placeB.reset(b)
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
		if same, err := sameValue(a, b, ca.Key(), placeA.found(), placeB.found()); !same || err != nil {
			return false, err
		}
		inA, inB = ca.Next(), cb.Next()
	}
}
