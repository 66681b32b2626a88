package cdb

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Reader reads a database. Of a file that is damaged every call returns ErrDamaged or some bytes of the file; none takes memory beyond the
// file's size, or forever. Any goroutine may use it.
type Reader struct {
	from   io.ReaderAt
	size   int64
	header [tables]table
	end    int64 // of the records
}

type table struct{ place, slots uint32 }

// NewReader reads the header of a database of size bytes.
func NewReader(from io.ReaderAt, size int64) (*Reader, error) {
	r := &Reader{from: from, size: size, end: size}
	if size < headerSize || size > maxSize {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrDamaged, size)
	}
	var b [headerSize]byte
	if err := r.read(b[:], 0); err != nil {
		return nil, err
	}
	for i := range r.header {
		t := table{binary.LittleEndian.Uint32(b[8*i:]), binary.LittleEndian.Uint32(b[8*i+4:])}
		if int64(t.place) < headerSize || int64(t.place)+8*int64(t.slots) > size {
			return nil, fmt.Errorf("%w: table %d is said to be at %d, with %d slots, in %d bytes", ErrDamaged, i, t.place, t.slots, size)
		}
		r.header[i] = t
		r.end = min(r.end, int64(t.place)) // an empty one lies somewhere between the others
	}
	return r, nil
}

func (r *Reader) read(b []byte, at int64) error {
	n, err := r.from.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == io.EOF {
		return fmt.Errorf("%w: it ends at %d", ErrDamaged, at+int64(n))
	}
	return err
}

// Each calls fn with every record, in the order in which they were added, until it returns an error. The slices are valid until it returns.
func (r *Reader) Each(fn func(key, value []byte) error) error {
	in := bufio.NewReaderSize(io.NewSectionReader(r.from, headerSize, r.end-headerSize), 1<<16)
	var lengths [8]byte
	var b []byte
	for at := int64(headerSize); at < r.end; {
		if r.end-at < 8 {
			return fmt.Errorf("%w: the record at %d is cut short", ErrDamaged, at)
		}
		if _, err := io.ReadFull(in, lengths[:]); err != nil {
			return damagedAt(err, at)
		}
		key, value := int64(binary.LittleEndian.Uint32(lengths[:])), int64(binary.LittleEndian.Uint32(lengths[4:]))
		if key+value > r.end-at-8 {
			return fmt.Errorf("%w: the record at %d is said to have %d and %d bytes, and the records end at %d", ErrDamaged, at, key, value, r.end)
		}
		if int64(cap(b)) < key+value {
			b = make([]byte, key+value)
		}
		b = b[:key+value]
		if _, err := io.ReadFull(in, b); err != nil {
			return damagedAt(err, at)
		}
		if err := fn(b[:key:key], b[key:]); err != nil {
			return err
		}
		at += 8 + key + value
	}
	return nil
}

func damagedAt(err error, at int64) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: the record at %d is cut short", ErrDamaged, at)
	}
	return err
}

// Get returns the value of the first record with a key; ok is false if there is none.
func (r *Reader) Get(key []byte) (value []byte, ok bool, err error) {
	h := Hash(key)
	t := r.header[h%tables]
	for i := range t.slots {
		slot := int64((h/tables%t.slots + i) % t.slots)
		var b [8]byte
		if err := r.read(b[:], int64(t.place)+8*slot); err != nil {
			return nil, false, err
		}
		hash, place := binary.LittleEndian.Uint32(b[:]), int64(binary.LittleEndian.Uint32(b[4:]))
		if place == 0 {
			return nil, false, nil
		}
		if hash != h {
			continue
		}
		if err := r.read(b[:], place); err != nil {
			return nil, false, err
		}
		keyLen, valueLen := int64(binary.LittleEndian.Uint32(b[:])), int64(binary.LittleEndian.Uint32(b[4:]))
		if keyLen != int64(len(key)) {
			continue
		}
		if place+8+keyLen+valueLen > r.size {
			return nil, false, fmt.Errorf("%w: the record at %d is cut short", ErrDamaged, place)
		}
		record := make([]byte, keyLen+valueLen)
		if err := r.read(record, place+8); err != nil {
			return nil, false, err
		}
		if bytes.Equal(record[:keyLen], key) {
			return record[keyLen:], true, nil
		}
	}
	return nil, false, nil
}
