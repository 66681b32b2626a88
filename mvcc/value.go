package mvcc

import (
	"bytes"
	"fmt"
	"io"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// cellValue returns a record's value as one slice: a slice of its page or run, except that a large value is
// assembled.
func (tx *pinned) cellValue(c btree.Cell) ([]byte, error) {
	if c.Kind() == btree.Inline {
		return c.Value(), nil
	}
	return tx.refValue(c.Key(), c.Ref())
}

// refValue returns the value that a record's ref leads to. A logged value has its key inline.
func (tx *pinned) refValue(key []byte, ref btree.Ref) ([]byte, error) {
	if ref.Kind == btree.Logged {
		return tx.snap.Logged(key, ref)
	}
	if ref.Kind == btree.Run {
		return tx.snap.Run(ref)
	}
	extents, err := tx.snap.Extents(ref)
	if err != nil {
		return nil, err
	}
	return tx.assemble(extents, ref.ValueLen)
}

// foundValue is cellValue for the result of a lookup.
func (tx *pinned) foundValue(f found) ([]byte, error) {
	switch {
	case f.op == nil:
		return tx.cellValue(f.cell)
	case f.op.Ref != nil:
		return tx.refValue(f.op.Key, *f.op.Ref)
	case f.op.Value == nil:
		return []byte{}, nil
	}
	return f.op.Value, nil
}

// ref returns where the value is; the zero Ref if it is inline.
func (f found) ref() btree.Ref {
	switch {
	case f.op == nil:
		return f.cell.Ref()
	case f.op.Ref == nil:
		return btree.Ref{}
	}
	return *f.op.Ref
}

// length returns the length of the value.
func (f found) length() int64 {
	switch {
	case f.op == nil:
		return int64(f.cell.ValueLen())
	case f.op.Ref != nil:
		return int64(f.op.Ref.ValueLen)
	}
	return int64(len(f.op.Value))
}

// value returns an inline value.
func (f found) value() []byte {
	if f.op == nil {
		return f.cell.Value()
	}
	return f.op.Value
}

// assemble reads the extents of a large value into one slice.
func (tx *pinned) assemble(extents []logstore.Extent, length uint64) ([]byte, error) {
	if uint64(int(length)) != length || length > MaxValue {
		return nil, fmt.Errorf("%w: value of %d bytes", logstore.ErrCorrupt, length)
	}
	value := make([]byte, 0, length)
	for _, x := range extents {
		b, err := tx.snap.Raw(x)
		if err != nil {
			return nil, err
		}
		value = append(value, b...)
	}
	return value, nil
}

// entryValue returns the value of a key that the transaction has written.
func (tx *Tx) entryValue(en writeset.Entry) ([]byte, bool, error) {
	switch {
	case en.Deleted:
		return nil, false, nil
	case en.Ref != nil:
		value, err := tx.assemble(en.Ref.Extents, en.Ref.Len)
		return value, err == nil, err
	case en.Value == nil:
		return []byte{}, true, nil
	}
	return en.Value, true, nil
}

// ValueReader returns a reader that reads a value piece by piece: a large value is never in memory as a whole. The
// reader is valid until the transaction ends.
func (tx *Tx) ValueReader(key []byte) (r io.Reader, length int64, ok bool, err error) {
	tx.lends = true
	if tx.set != nil {
		if en, found, err := tx.set.Find(key); err != nil {
			return nil, 0, false, err
		} else if found {
			tx.readAny = true
			r, length = tx.entryReader(en)
			return r, length, !en.Deleted, nil
		}
	}
	f, ok, err := tx.lookup(key)
	if !ok || err != nil {
		return nil, 0, false, err
	}
	r, length, err = tx.foundReader(f)
	return r, length, err == nil, err
}

// entryReader returns a reader of a value that the transaction has written.
func (tx *Tx) entryReader(en writeset.Entry) (r io.Reader, length int64) {
	if en.Ref != nil {
		if tx.lent == nil {
			tx.lent = map[logstore.Addr]int{}
		}
		start := en.Ref.Extents[0].Addr
		tx.lent[start]++
		return &extentReader{from: &tx.pinned, rest: en.Ref.Extents, lent: tx.lent, at: start}, int64(en.Ref.Len)
	}
	return bytes.NewReader(en.Value), int64(len(en.Value))
}

// foundReader returns a reader of a record's value.
func (tx *pinned) foundReader(f found) (r io.Reader, length int64, err error) {
	if ref := f.ref(); ref.Kind == btree.Extents {
		return tx.extentsReader(ref)
	}
	v, err := tx.foundValue(f)
	return bytes.NewReader(v), int64(len(v)), err
}

func (tx *pinned) extentsReader(ref btree.Ref) (r io.Reader, length int64, err error) {
	extents, err := tx.snap.Extents(ref)
	if err != nil {
		return nil, 0, err
	}
	return &extentReader{from: tx, rest: extents}, int64(ref.ValueLen), nil
}

// extentReader reads the extents of a large value one after the other.
type extentReader struct {
	from *pinned
	now  []byte
	rest []logstore.Extent
	lent map[logstore.Addr]int // of the transaction, if it has written the value, until the reader is at the end; else nil
	at   logstore.Addr         // first page of the value
}

func (r *extentReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.now) == 0 {
		if len(r.rest) == 0 {
			return 0, io.EOF
		}
		if err := r.from.Expired(); err != nil {
			return 0, err
		}
		b, err := r.from.snap.Raw(r.rest[0])
		if err != nil {
			return 0, err
		}
		r.now, r.rest = b, r.rest[1:]
	}
	n := copy(p, r.now)
	if r.now = r.now[n:]; len(r.now) == 0 && len(r.rest) == 0 {
		r.Close()
	}
	return n, nil
}

// Close puts the reader at the end: then the value's segments may be freed if the transaction overwrites it.
func (r *extentReader) Close() error {
	if r.lent != nil {
		r.lent[r.at]--
	}
	r.now, r.rest, r.lent = nil, nil, nil
	return nil
}
