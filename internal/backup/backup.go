// Package backup is the stream format of backups: a database file or an increment, followed by an end mark with
// a checksum of all its bytes.
//
//	database file: whole pages | end mark: 512 bytes
//
// The end mark is shorter than a page, so a full backup opens as a database as it is. A backup that was cut short
// has no end mark, and a backup that was changed has another SHA-256.
package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// ErrDamaged: the input is not a backup as it was written. It was cut short, it was changed, or it is
// something else.
var ErrDamaged = errors.New("flashdbm: damaged backup")

// MarkSize is the length of the end mark in bytes.
const MarkSize = 512

// Layout of the end mark, offsets in bytes: magic 0 to 7, version u32 at 8, kind u32 at 12, length of everything
// before the mark u64 at 16, SHA-256 of that at 24 to 55, token at 56 to 79, zeros, and at 508 the CRC32C of the
// mark's bytes before it. Integers are little endian.
const (
	markVersion = 1
	versionAt   = 8
	kindAt      = 12
	lengthAt    = 16
	sumAt       = 24
	tokenAt     = 56
	crcAt       = MarkSize - 4
)

// Kind says what the backup contains.
type Kind uint32

const (
	Full       Kind = iota // a database file
	Increment              // changes since a token, for a copy of that moment or of any later one up to the moment of the increment
	Difference             // changes since a token, for a copy of exactly that moment or of the moment of the increment
)

// End is the content of the end mark.
type End struct {
	Kind  Kind
	Token Token // of the moment that the backup shows
}

var markMagic = [8]byte{'F', 'D', 'B', 'M', 'B', 'A', 'C', 'K'}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Writer passes a database file or an increment on to another writer, and ends it with an end mark.
type Writer struct {
	w      io.Writer
	sum    hash.Hash
	length uint64
}

// NewWriter returns a Writer that writes a backup to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, sum: sha256.New()} }

// Write writes the next piece.
func (w *Writer) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	w.sum.Write(b[:n])
	w.length += uint64(n)
	return n, err
}

// End writes the end mark.
func (w *Writer) End(end End) error {
	mark := make([]byte, MarkSize)
	copy(mark, markMagic[:])
	le := binary.LittleEndian
	le.PutUint32(mark[versionAt:], markVersion)
	le.PutUint64(mark[lengthAt:], w.length)
	w.sum.Sum(mark[:sumAt])
	le.PutUint32(mark[kindAt:], uint32(end.Kind))
	end.Token.put(mark[tokenAt:])
	le.PutUint32(mark[crcAt:], crc32.Checksum(mark[:crcAt], castagnoli))
	n, err := w.w.Write(mark)
	if err == nil && n < MarkSize {
		err = io.ErrShortWrite
	}
	return err
}

// copyBuffer is how many bytes Copy reads at a time.
const copyBuffer = 256 << 10

// Copy copies the backup that src reads, without its end mark, to dst, and verifies all of it. The bytes written
// to dst are valid only if Copy returns no error. Errors: ErrDamaged, and errors of ctx, src and dst, unchanged.
func Copy(ctx context.Context, dst io.Writer, src io.Reader) (end End, err error) {
	sum, length := sha256.New(), uint64(0)
	buf := make([]byte, copyBuffer+MarkSize)
	have := 0 // bytes in buf; the last MarkSize of them may be the end mark
	for {
		if err := ctx.Err(); err != nil {
			return end, err
		}
		n, err := io.ReadFull(src, buf[have:])
		have += n
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return end, err
		}
		pass := have - MarkSize
		if pass < 0 {
			return end, fmt.Errorf("%w: %d bytes are too few", ErrDamaged, have)
		}
		sum.Write(buf[:pass])
		if _, err := dst.Write(buf[:pass]); err != nil {
			return end, err
		}
		length += uint64(pass)
		have = copy(buf, buf[pass:have])
		if last {
			mark := buf[:have]
			end = End{Kind(binary.LittleEndian.Uint32(mark[kindAt:])), getToken(mark[tokenAt:])}
			return end, checkMark(mark, length, sum.Sum(nil))
		}
	}
}

// IsMark reports whether p begins with the end mark of a full backup that has the given number of bytes before it.
func IsMark(p []byte, length uint64) bool {
	le := binary.LittleEndian
	return len(p) >= MarkSize && [8]byte(p[:8]) == markMagic && le.Uint32(p[crcAt:]) == crc32.Checksum(p[:crcAt], castagnoli) &&
		Kind(le.Uint32(p[kindAt:])) == Full && le.Uint64(p[lengthAt:]) == length
}

func checkMark(mark []byte, length uint64, sum []byte) error {
	le := binary.LittleEndian
	switch {
	case [8]byte(mark[:8]) != markMagic:
		return fmt.Errorf("%w: it has no end mark: it was cut short, or is not a backup", ErrDamaged)
	case le.Uint32(mark[crcAt:]) != crc32.Checksum(mark[:crcAt], castagnoli):
		return fmt.Errorf("%w: checksum of its end mark", ErrDamaged)
	case le.Uint32(mark[versionAt:]) != markVersion:
		return fmt.Errorf("flashdbm: a backup of version %d: this program reads version %d, use a newer flashdbm", le.Uint32(mark[versionAt:]), markVersion)
	case le.Uint64(mark[lengthAt:]) != length:
		return fmt.Errorf("%w: it has %d bytes before its end mark, and should have %d", ErrDamaged, length, le.Uint64(mark[lengthAt:]))
	case !bytes.Equal(mark[sumAt:sumAt+sha256.Size], sum):
		return fmt.Errorf("%w: the checksum of its %d bytes is wrong", ErrDamaged, length)
	}
	return nil
}
