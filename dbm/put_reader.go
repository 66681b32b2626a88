package dbm

import (
	"errors"
	"fmt"
	"io"
)

// UnknownSize stands for the size of a value that is known only when the value has been read: see Tx.PutReader.
const UnknownSize = -1

// PutReader sets the value of key to what r returns, piece by piece. However long the value is, little more than 1
// MiB of it is in memory at a time: a longer value is written to the file before the transaction commits.
// PutReader is the counterpart of ValueReader.
//
// size is the length of the value in bytes. PutReader reads exactly size bytes; io.ErrUnexpectedEOF if r ends
// before. With UnknownSize the value is everything up to io.EOF. A value of more than 4 GiB is ErrValueTooLarge: at
// once if size says so, otherwise when that much has been read.
//
// After an error the transaction goes on as if PutReader had not been called, unless Tx.Err returns an error of the
// system. Errors of r are returned unchanged. r is read on the calling goroutine and may use the transaction, for
// example to read one of its values. r must not end the transaction: PutReader then returns ErrTxDone.
//
// Update runs its function again after a conflict, when a reader that was made outside of the function has
// nothing left to read. So make r inside the function.
func (tx *Tx) PutReader(key []byte, r io.Reader, size int64) error {
	return putReaderUntil(tx, key, r, size, 0)
}

// putReaderUntil is PutReader of a record that expires at a time, or that does not expire if at is 0.
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

// valueSource reads a value from the user's reader and enforces its size.
type valueSource struct {
	tx   *Tx
	r    io.Reader
	size int64 // or UnknownSize
	head int64 // bytes before the value in its stored form; the longest value is shorter by these
	read int64 // bytes of the value so far
	idle int   // consecutive reads that returned nothing
	err  error // the error that ended the value
}

// idleReads is how many consecutive reads may return neither bytes nor an error. Without a limit such a reader
// would keep PutReader in an endless loop.
const idleReads = 100

var errReaderCount = errors.New("flashdbm: the reader of a value returned a negative count, or one above the length of its buffer")

func (s *valueSource) Read(p []byte) (n int, err error) {
	left := maxValue - s.head + 1 - s.read // one byte more than allowed, to notice a value that is too long
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
