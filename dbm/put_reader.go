package dbm

import (
	"errors"
	"fmt"
	"io"
)

// UnknownSize is the size of a value of which it is known only once it has been read: see Tx.PutReader.
const UnknownSize = -1

// PutReader sets the value of key to what r gives, piece by piece: however long the value is, little more than 1 MiB of it is in memory, and
// what is longer goes to the file before the transaction commits. It is the counterpart of ValueReader.
//
// size is the length of the value in bytes, and PutReader reads size bytes and no more; io.ErrUnexpectedEOF if r ends before. With UnknownSize
// the value is all that r gives until io.EOF. A value of more than 4 GiB is ErrValueTooLarge: with a size before anything is read, else once
// that much was.
//
// After an error the transaction goes on as if PutReader had not been called, unless Tx.Err tells an error of the system. That of r is
// returned as it is. r is called by this goroutine and may use the transaction: a reader of one of its own values, for example. It must not
// end it (ErrTxDone).
//
// In Update a conflict makes the function run again, and then r has been read already: make it within the function.
func (tx *Tx) PutReader(key []byte, r io.Reader, size int64) error {
	return putReaderUntil(tx, key, r, size, 0)
}

// putReaderUntil is PutReader of a record that is there until a time, or for good if that is 0.
func putReaderUntil(tx *Tx, key []byte, r io.Reader, size, at int64) error {
	if size < UnknownSize {
		return fmt.Errorf("flashdbm: a value cannot have %d bytes", size)
	}
	if err := tx.canWrite(key, nil); err != nil {
		return err
	}
	if err := checkSizesOf(0, uint64(max(size, 0))); err != nil {
		return err
	}
	guardMark(tx, key)
	put := func(inTree []byte) error {
		source := &valueSource{tx: tx, r: r, size: size}
		stored, likely, err := stampedSource(tx, source, at)
		if err == nil {
			err = tx.inner.PutReader(inTree, stored, likely)
		}
		if source.err != nil {
			return source.err
		}
		return tx.note(err)
	}
	if at == 0 {
		return put(tx.space.in(nil, key))
	}
	return timed(tx, key, at, put)
}

// valueSource gives what PutReader may take of its reader.
type valueSource struct {
	tx   *Tx
	r    io.Reader
	size int64 // or UnknownSize
	head int64 // bytes that stand before the value where it is stored: of what a value may have
	read int64
	idle int   // reads in a row that gave nothing
	err  error // that ended the value
}

// idleReads is how often in a row a reader may give nothing: one that goes on so would never end.
const idleReads = 100

var errReaderCount = errors.New("flashdbm: the reader of a value says that it has read more than it was asked for, or less than nothing")

func (s *valueSource) Read(p []byte) (n int, err error) {
	left := maxValue - s.head + 1 - s.read // one byte too many, to see that there is one
	if s.size != UnknownSize {
		if left = s.size - s.read; left == 0 {
			return 0, io.EOF
		}
	}
	p = p[:min(int64(len(p)), left)]
	n, err = s.r.Read(p)
	if s.idle++; n != 0 {
		s.idle = 0
	}
	s.read += int64(n)
	switch {
	case n < 0 || n > len(p):
		n, s.read, s.err = 0, s.read-int64(n), errReaderCount
	case s.tx.done:
		s.err = ErrTxDone
	case s.read > maxValue-s.head:
		s.err = ErrValueTooLarge
	case err == io.EOF && s.size != UnknownSize && s.read < s.size:
		s.err = io.ErrUnexpectedEOF
	case err == io.EOF && s.read == s.size:
		return n, nil
	case err != nil && err != io.EOF:
		s.err = err
	case s.idle >= idleReads && err == nil && len(p) > 0:
		s.err = io.ErrNoProgress
	}
	if s.err != nil {
		err = s.err
	}
	return n, err
}
