package mvcc

import (
	"bytes"
	"io"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// putLarge puts a value that is longer than a run. It writes the value to private segments at once, so that memory
// has it only once.
func (tx *Tx) putLarge(key, value []byte) error {
	v := newLarge(tx)
	defer v.drop()
	if err := v.write(value); err != nil {
		return err
	}
	return v.put(key)
}

// largeValue is a value that is being written to private segments. The transaction's goroutine uses it. Until put,
// the transaction does not have it, and drop gives its segments back.
type largeValue struct {
	tx      *Tx
	private *logstore.Private // nil once the transaction owns it
	length  uint64
}

func newLarge(tx *Tx) *largeValue { return &largeValue{tx: tx, private: tx.e.store.NewPrivate()} }

// write appends to the value. Close does not wait for a writer between two calls: see toFile.
func (v *largeValue) write(b []byte) error {
	if err := v.tx.toFile(); err != nil {
		return err
	}
	defer v.tx.e.readers.unpinned.leave()
	v.length += uint64(len(b))
	return v.tx.e.writeValue(v.private, b)
}

// put makes the value that of key.
func (v *largeValue) put(key []byte) error {
	tx := v.tx
	if err := tx.toFile(); err != nil {
		return err
	}
	defer tx.e.readers.unpinned.leave()
	extents, err := v.private.Finish()
	if err != nil {
		return err
	}
	list := int64(btree.RunKeyLen(key)) + logstore.ListBytes(len(extents))
	if list > tx.e.store.MaxRun() {
		return logstore.ErrSmallSegments
	}
	tx.large = append(tx.large, v.private)
	v.private = nil
	tx.set.PutRef(key, writeset.ValueRef{Len: v.length, Extents: extents})
	return tx.changed()
}

// drop gives the segments back unless put has taken them.
func (v *largeValue) drop() {
	if v.private != nil {
		v.private.Discard()
	}
}

const (
	firstReadBytes = 4 << 10   // first read of a value of unknown length: most are short
	readBytes      = 256 << 10 // unit in which a long value is read and written: 64 pages, the most that a write of others waits for
)

// PutReader sets the value of key to what r yields until io.EOF: at most MaxValue bytes, which the caller has to
// ensure. likely is the probable length of the value, or 0; it only decides how memory is allocated. Memory never has
// more of the value than fits into a run.
//
// The write set changes only after the end of r: after an error the transaction is as it was. r may use the
// transaction; if it ends the transaction it must return an error.
func (tx *Tx) PutReader(key []byte, r io.Reader, likely int64) error {
	key = bytes.Clone(key) // r may change it
	run := max(tx.e.store.MaxRun()-int64(btree.RunKeyLen(key)), 0)
	buf := make([]byte, min(max(likely, firstReadBytes), run)+1) // one more, to see the end
	n := 0
	for {
		m, end, err := readPiece(r, buf[n:])
		n += m
		switch {
		case err != nil:
			return err
		case end:
			return tx.Put(key, buf[:n])
		}
		more := min(int64(n), run+1-int64(n))
		if more == 0 {
			break
		}
		buf = append(buf, make([]byte, more)...)
	}
	v := newLarge(tx)
	defer v.drop() // also if r panics
	for end := false; ; {
		if err := v.write(buf[:n]); err != nil {
			return err
		}
		if end {
			break
		}
		var err error
		if n, end, err = readPiece(r, buf[:min(len(buf), readBytes)]); err != nil {
			return err
		}
	}
	tx.writes()
	tx.puts++
	return v.put(key)
}

// readPiece reads until b is full or r ends. io.ReadFull will not do: it takes an io.ErrUnexpectedEOF that r itself
// returns for an end.
func readPiece(r io.Reader, b []byte) (n int, end bool, err error) {
	for n < len(b) {
		m, err := r.Read(b[n:])
		n += m
		switch err {
		case nil:
		case io.EOF:
			return n, true, nil
		default:
			return n, false, err
		}
	}
	return n, false, nil
}
