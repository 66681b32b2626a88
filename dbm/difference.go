package dbm

import (
	"bytes"
	"io"

	"flashdbm/mvcc"
)

// differenceSink finds the records that differ between two snapshots of a database. Its input is the list of
// intervals in which pages have changed (mvcc/since.go); it passes on only the records of these intervals that
// differ from the older snapshot.
//
// Invariants:
//
//  1. The output turns a copy with exactly the records of the older snapshot into one with those of the newer one.
//     It does not do so for a copy of a moment in between: a record that changed and changed back is not in the
//     output. Such an increment therefore has the kind Difference, which may be applied only to the moment of its
//     base or of its end.
//  2. An output interval lies between two records that both snapshots have, or reaches to an end of the input
//     interval.
type differenceSink struct {
	to  mvcc.ChangeSink
	old *mvcc.Cursor
	on  bool // old is at a record

	last []byte // key of the last record that both snapshots have, or the low end of the input interval; nil for the beginning of all keys
	open bool   // an output interval that starts after last is open

	had, has bytes.Buffer // values of the older and of the newer snapshot
}

// mostCompared, in bytes, is the longest value that is compared with its older version. A longer value is passed on
// whenever its page has changed and its place in the log is new. A larger bound reads more of both snapshots and
// writes less to the increment.
const mostCompared = 64 << 10

// Begin implements mvcc.ChangeSink.
func (d *differenceSink) Begin(low []byte) error {
	d.open = false
	if low == nil {
		d.last, d.on = nil, d.old.First()
		return d.old.Err()
	}
	d.last = append([]byte{}, low...)
	if d.on = d.old.Seek(low); d.on && bytes.Equal(d.old.Key(), low) {
		d.on = d.old.Next()
	}
	return d.old.Err()
}

// changed begins an output interval, unless one is open.
func (d *differenceSink) changed() error {
	if d.open {
		return nil
	}
	d.open = true
	return d.to.Begin(d.last)
}

// same ends the open output interval at a record that both snapshots have, and moves past the record.
func (d *differenceSink) same(key []byte) error {
	if d.open {
		if err := d.to.End(key); err != nil {
			return err
		}
		d.open = false
	}
	if d.last = append(d.last[:0], key...); d.last == nil {
		d.last = []byte{} // nil would be the beginning of all keys, which lies below the empty key
	}
	d.on = d.old.Next()
	return d.old.Err()
}

// upTo moves past the older snapshot's records below key, or past all that are left if key is nil. The newer
// snapshot lacks these records, so they lie in an output interval. upTo reports whether the older snapshot has a
// record with that key.
func (d *differenceSink) upTo(key []byte) (there bool, err error) {
	for d.on {
		if key != nil {
			if o := bytes.Compare(d.old.Key(), key); o >= 0 {
				return o == 0, d.old.Err()
			}
		}
		if err := d.old.Err(); err != nil {
			return false, err
		}
		if err := d.changed(); err != nil {
			return false, err
		}
		d.on = d.old.Next()
	}
	return false, d.old.Err()
}

// Put implements mvcc.ChangeSink.
func (d *differenceSink) Put(key []byte, r io.Reader, length int64) error {
	there, err := d.upTo(key)
	if err != nil {
		return err
	}
	if there && length <= mostCompared {
		d.has.Reset()
		if _, err := d.has.ReadFrom(io.LimitReader(r, length)); err != nil {
			return err
		}
		r = bytes.NewReader(d.has.Bytes())
		old, had, err := d.old.ValueReader()
		if err != nil {
			return err
		}
		if had == length {
			d.had.Reset()
			if _, err := d.had.ReadFrom(io.LimitReader(old, had)); err != nil {
				return err
			}
			if bytes.Equal(d.had.Bytes(), d.has.Bytes()) {
				return d.same(key)
			}
		}
	}
	if err := d.changed(); err != nil {
		return err
	}
	if err := d.to.Put(key, r, length); err != nil || !there {
		return err
	}
	d.on = d.old.Next()
	return d.old.Err()
}

// Keep implements mvcc.ChangeSink.
func (d *differenceSink) Keep(key []byte) error {
	there, err := d.upTo(key)
	if err != nil {
		return err
	}
	if there {
		return d.same(key)
	}
	if err := d.changed(); err != nil {
		return err
	}
	return d.to.Keep(key)
}

// End implements mvcc.ChangeSink. Records at high and above belong to no interval.
func (d *differenceSink) End(high []byte) error {
	if _, err := d.upTo(high); err != nil || !d.open {
		return err
	}
	d.open = false
	return d.to.End(high)
}
