package dbm

import (
	"bytes"
	"io"

	"flashdbm/mvcc"
)

// differenceSink passes on what has changed between two snapshots of a database: of the intervals that the pages tell, see mvcc/since.go, only the records
// that an older snapshot does not have so.
//
// Invariants:
//
//  1. What is passed on brings a copy with just the records of the older snapshot to those of the newer one. A copy of a moment in between is not brought
//     there: of a record that has changed and changed back nothing is told. So an increment of it is of kind Difference, which fits the moment of
//     its base and that of its end alone.
//  2. An interval that is passed on lies between two records that both snapshots have, or reaches to an end of what the pages tell.
type differenceSink struct {
	to  mvcc.ChangeSink
	old *mvcc.Cursor
	on  bool // old is on a record

	last []byte // key of the last record that both have, or the low end of the interval; nil for the beginning of all keys
	open bool   // an interval was begun behind it

	had, has bytes.Buffer // values
}

// mostCompared, in bytes, is up to which length values are compared: one that is longer is passed on wherever its page has changed and its
// place in the log is new.
const mostCompared = 64 << 10

// Begin is of mvcc.ChangeSink.
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

// changed begins an interval, unless one is open.
func (d *differenceSink) changed() error {
	if d.open {
		return nil
	}
	d.open = true
	return d.to.Begin(d.last)
}

// same goes on behind a record that both have.
func (d *differenceSink) same(key []byte) error {
	if d.open {
		if err := d.to.End(key); err != nil {
			return err
		}
		d.open = false
	}
	if d.last = append(d.last[:0], key...); d.last == nil {
		d.last = []byte{} // nil is the beginning of all keys, below the empty one
	}
	d.on = d.old.Next()
	return d.old.Err()
}

// upTo passes records of the older snapshot below a key, nil for all that follow, which are gone, and reports whether it has that key.
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

// Put is of mvcc.ChangeSink.
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

// Keep is of mvcc.ChangeSink.
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

// End is of mvcc.ChangeSink. Records at high and above are of no interval.
func (d *differenceSink) End(high []byte) error {
	if _, err := d.upTo(high); err != nil || !d.open {
		return err
	}
	d.open = false
	return d.to.End(high)
}
