package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// dumpReader reads the database of a dump, or all databases if several is set, record
// by record.
//
// However long the lines of a dump are, a dumpReader holds only the current key, the previous key, heldBytes of
// the value and a buffer of inputBufferBytes: it decodes an item while reading it, and returns an error at the
// item's limit.
type dumpReader struct {
	in     *bufio.Reader
	header dumpHeader
	line   int64 // number of the line being read, counted from 1

	key, value []byte // the current record
	before     []byte // the key before it
	begun      bool   // key holds a record's key

	decoder   itemDecoder // of the item being read
	open      bool        // the item has more bytes to be decoded
	itemBytes int64       // bytes of the item so far
	pending   []byte      // decoded bytes of the value that Read has not returned yet; valid until the next piece is decoded
	piece     []byte      // memory for pending

	end error // result of next once the end mark was read

	several bool // the dumps that follow are read, too; each has its own header
}

const inputBufferBytes = 1 << 16

// errDataEnd: the line is the end mark and not an item.
var errDataEnd = errors.New("end of data")

// newDumpReader reads the header of a dump from r. Its errors, and those of next, are a *dumpError if the dump
// cannot be loaded, and otherwise errors of r, unchanged.
func newDumpReader(r io.Reader) (*dumpReader, error) {
	d := &dumpReader{in: bufio.NewReaderSize(r, inputBufferBytes)}
	if err := d.readHeader(); err != nil {
		return nil, err
	}
	return d, nil
}

// next returns the next record, valid until the following call. After the last record it returns io.EOF, if the
// dump is complete and nothing follows it. Of a value longer than heldBytes it returns the beginning; long then
// reports that there is more, which Read returns.
func (d *dumpReader) next() (key, value []byte, err error) {
	if d.long() {
		if _, err := io.Copy(io.Discard, d); err != nil {
			return nil, nil, err
		}
	}
	if d.end != nil {
		return nil, nil, d.end
	}
	d.before, d.key = d.key, d.before
	if d.key, err = d.item(d.key[:0], "key", maxKeyBytes); err == errDataEnd {
		if d.end = d.readEnd(); d.end == nil { // another dump
			return d.next()
		}
		return nil, nil, d.end
	}
	if err != nil {
		return nil, nil, err
	}
	// In every dump, several values of a key follow each other. Storing the last of them would lose the others
	// silently.
	if d.begun && bytes.Equal(d.key, d.before) {
		return nil, nil, d.problem("%s", repeated(d.key))
	}
	d.begun = true
	if d.value, err = d.item(d.value[:0], "value", maxValueBytes); err == errDataEnd {
		return nil, nil, d.problem("the last key has no value: the dump is damaged, make it again")
	}
	return d.key, d.value, err
}

// until returns the zero time: records of a dump do not expire.
func (d *dumpReader) until() time.Time { return time.Time{} }

// long reports whether the value has more bytes than next returned.
func (d *dumpReader) long() bool { return d.open || len(d.pending) > 0 }

// Read reads the rest of the value.
func (d *dumpReader) Read(p []byte) (n int, err error) {
	for len(d.pending) == 0 {
		if !d.open {
			return 0, io.EOF
		}
		if d.piece, err = d.more(d.piece[:0], "value", maxValueBytes); err != nil {
			return 0, err
		}
		d.pending = d.piece
	}
	n = copy(p, d.pending)
	d.pending = d.pending[n:]
	return n, nil
}

func (d *dumpReader) readHeader() error {
	first, err := d.text()
	if err != nil {
		return err
	}
	if first != dumpVersionLine {
		return d.problem("a dump begins with %q, not with %q: give the output of flashdbm dump, db_dump or mdb_dump",
			dumpVersionLine, first)
	}
	return d.readSettings()
}

// readSettings reads the lines of a header after the first.
func (d *dumpReader) readSettings() error {
	formatSeen := false
	for range maxDumpHeaderLines {
		line, err := d.text()
		if err != nil {
			return err
		}
		if line == dumpHeaderEnd {
			if !formatSeen {
				return d.problem("the header has no format= line: make the dump again")
			}
			return nil
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return d.problem("%q is not a header line, which is name=value: make the dump again", line)
		}
		if problem := d.header.set(name, value); problem != "" {
			return d.problem("%s", problem)
		}
		formatSeen = formatSeen || name == "format"
	}
	return d.problem("the header does not end within %d lines: make the dump again", maxDumpHeaderLines)
}

// readEnd returns io.EOF if nothing follows the end mark, and nil if another dump follows that is to be read.
func (d *dumpReader) readEnd() error {
	_, err := d.in.Peek(1)
	if err != nil {
		return err
	}
	line, err := d.text()
	if err != nil {
		return err
	}
	if strings.HasPrefix(line, "VERSION=") {
		if d.several && line == dumpVersionLine {
			d.header, d.begun = dumpHeader{}, false
			return d.readSettings()
		}
		return d.problem("%s", d.header.several())
	}
	return d.problem("%q follows the end of the dump: remove it, or make the dump again", line)
}

// text reads one line that is not an item, without its line end.
func (d *dumpReader) text() (string, error) {
	d.line++
	line, err := d.in.ReadSlice('\n')
	switch {
	case err == nil:
		line = line[:len(line)-1]
	case err == io.EOF && len(line) == 0:
		return "", d.cutShort()
	case err == io.EOF:
		// An end mark at the end of a file may lack its line end.
	case err != bufio.ErrBufferFull:
		return "", err
	}
	if len(line) > maxDumpHeaderBytes {
		return "", d.problem("it is longer than %d bytes: this is not a dump", maxDumpHeaderBytes)
	}
	return string(line), nil
}

// item appends the item of the next line to dst. Of a longer item it appends at
// most heldBytes and a piece, and leaves the item open. what is the name of the
// item for messages, limit its greatest length in bytes. item returns
// errDataEnd at the end mark.
func (d *dumpReader) item(dst []byte, what string, limit int64) ([]byte, error) {
	first, err := d.in.Peek(1)
	if err == io.EOF {
		d.line++
		return dst, d.cutShort()
	}
	if err != nil {
		return dst, err
	}
	if first[0] != ' ' {
		return dst, d.endMark()
	}
	d.line++
	if _, err := d.in.Discard(1); err != nil {
		return dst, err
	}
	d.decoder, d.itemBytes, d.open = itemDecoder{header: &d.header}, 0, true
	for d.open && len(dst) < heldBytes {
		if dst, err = d.more(dst, what, limit); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// more decodes the next piece of the item and appends it to dst. After an error
// the item is no longer open.
func (d *dumpReader) more(dst []byte, what string, limit int64) ([]byte, error) {
	chunk, err := d.in.ReadSlice('\n')
	if err != nil && err != bufio.ErrBufferFull {
		d.open = false
		if err == io.EOF {
			err = d.cutShort()
		}
		return dst, err
	}
	last := err == nil
	if last {
		chunk = chunk[:len(chunk)-1]
	}
	before := len(dst)
	dst, problem := d.decoder.decode(dst, chunk, last)
	d.open = !last && problem == ""
	if problem != "" {
		return dst, d.problem("%s", problem)
	}
	if d.itemBytes += int64(len(dst) - before); d.itemBytes > limit {
		d.open = false
		return dst, d.problem("the %s is longer than the %s that flashdbm takes: leave this record out", what, formatBytes(limit))
	}
	return dst, nil
}

// endMark reads a line that does not begin like an item. It returns errDataEnd
// if it is the end mark.
func (d *dumpReader) endMark() error {
	line, err := d.text()
	if err != nil {
		return err
	}
	if line != dumpDataEnd {
		return d.problem("a line of data begins with a space, not as %s: the dump is damaged, make it again", quotedStart([]byte(line)))
	}
	return errDataEnd
}

func (d *dumpReader) cutShort() error {
	return d.problem("the dump ends without %s: it was cut short, make it again", dumpDataEnd)
}

func (d *dumpReader) problem(format string, args ...any) error {
	return &dumpError{d.line, fmt.Sprintf(format, args...)}
}
