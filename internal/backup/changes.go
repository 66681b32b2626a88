package backup

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// An increment is a header, entries, and the end mark:
//
//	header    magic 8 bytes | token of the base 24 bytes
//	begin     1 | 0 or: 1, key
//	put       2 | key | length of the value uvarint | value
//	keep      3 | key
//	end       4 | 0 or: 1, key
//	last      5
//
// A key is encoded as the number of bytes that it shares with the previous key in the increment, the number of
// its other bytes, both as uvarints, and these other bytes.
var changesMagic = [8]byte{'F', 'D', 'B', 'M', 'I', 'N', 'C', 'R'}

const (
	entryBegin = 1 + iota
	entryPut
	entryKeep
	entryEnd
	entryLast
)

// Changes writes an increment. It is an mvcc.ChangeSink.
type Changes struct {
	w    *bufio.Writer
	out  *Writer
	last []byte // the key written last
	num  [binary.MaxVarintLen64]byte
}

// NewChanges begins an increment whose base is the moment of the given token.
func NewChanges(w io.Writer, base Token) *Changes {
	c := &Changes{out: NewWriter(w)}
	c.w = bufio.NewWriterSize(c.out, 64<<10)
	header := make([]byte, tokenSize)
	base.put(header)
	c.w.Write(changesMagic[:])
	c.w.Write(header)
	return c
}

func (c *Changes) number(n uint64) error {
	_, err := c.w.Write(c.num[:binary.PutUvarint(c.num[:], n)])
	return err
}

func (c *Changes) key(key []byte) error {
	shared := 0
	for shared < min(len(key), len(c.last)) && key[shared] == c.last[shared] {
		shared++
	}
	c.last = append(c.last[:shared], key[shared:]...)
	c.number(uint64(shared))
	c.number(uint64(len(key) - shared))
	_, err := c.w.Write(key[shared:])
	return err
}

func (c *Changes) bound(code byte, key []byte) error {
	c.w.WriteByte(code)
	if key == nil {
		return c.w.WriteByte(0)
	}
	c.w.WriteByte(1)
	return c.key(key)
}

// Begin begins an interval of keys above low; nil is the beginning of all keys.
func (c *Changes) Begin(low []byte) error { return c.bound(entryBegin, low) }

// End ends the interval below high; nil is the end of all keys.
func (c *Changes) End(high []byte) error { return c.bound(entryEnd, high) }

// Put adds a record whose value is the length bytes of r.
func (c *Changes) Put(key []byte, r io.Reader, length int64) error {
	c.w.WriteByte(entryPut)
	c.key(key)
	c.number(uint64(length))
	n, err := io.Copy(c.w, r)
	if err == nil && n != length {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Keep adds a record that the base has already.
func (c *Changes) Keep(key []byte) error {
	c.w.WriteByte(entryKeep)
	return c.key(key)
}

// Finish writes the end mark. kind is Increment or Difference.
func (c *Changes) Finish(kind Kind, token Token) error {
	c.w.WriteByte(entryLast)
	if err := c.w.Flush(); err != nil {
		return err
	}
	return c.out.End(End{Kind: kind, Token: token})
}

// A ChangeTarget is something to which an increment can be applied. The entries passed to it are valid only if
// ReadChanges returns no error and the end mark was verified: see Copy.
type ChangeTarget interface {
	// Base is called first, with the moment at which the increment begins.
	Base(base Token) error
	Begin(low []byte) error
	// Put gets a reader of length bytes.
	Put(key []byte, r io.Reader, length int64) error
	Keep(key []byte) error
	End(high []byte) error
}

// maxChangeKey is the largest length of a key in an increment, in bytes. Keys are those of the tree, with the same
// limit as btree.MaxKey: the user's 64 KiB after the prefix of a keyspace or of the index of expiry times.
const maxChangeKey = 64<<10 + 8

// ReadChanges reads an increment without its end mark. Errors: ErrDamaged, and errors of the target.
func ReadChanges(src io.Reader, t ChangeTarget) error {
	r := &changeReader{r: bufio.NewReaderSize(src, 64<<10)}
	var header [8 + tokenSize]byte
	if _, err := io.ReadFull(r.r, header[:]); err != nil || [8]byte(header[:8]) != changesMagic {
		return r.damaged(err, "it is no increment")
	}
	if err := t.Base(getToken(header[8:])); err != nil {
		return err
	}
	for inside := false; ; {
		code, err := r.r.ReadByte()
		if err != nil {
			return r.damaged(err, "an entry is missing")
		}
		switch {
		case code == entryBegin && !inside:
			err, inside = r.bound(t.Begin), true
		case code == entryEnd && inside:
			err, inside = r.bound(t.End), false
		case code == entryPut && inside:
			err = r.put(t)
		case code == entryKeep && inside:
			var key []byte
			if key, err = r.key(); err == nil {
				err = t.Keep(key)
			}
		case code == entryLast && !inside:
			if _, err := r.r.ReadByte(); err != io.EOF {
				return r.damaged(err, "something follows the last entry")
			}
			return nil
		default:
			return r.damaged(nil, fmt.Sprintf("entry of code %d", code))
		}
		if err != nil {
			return err
		}
	}
}

type changeReader struct {
	r    *bufio.Reader
	last []byte // the key read last
}

// damaged returns err, unless it is nil or the end of the input; then it returns ErrDamaged with what.
func (r *changeReader) damaged(err error, what string) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return fmt.Errorf("%w: %s", ErrDamaged, what)
}

func (r *changeReader) key() ([]byte, error) {
	shared, err := binary.ReadUvarint(r.r)
	n := uint64(0)
	if err == nil {
		n, err = binary.ReadUvarint(r.r)
	}
	if err != nil || shared > uint64(len(r.last)) || n > maxChangeKey-shared {
		return nil, r.damaged(err, "length of a key")
	}
	key := make([]byte, shared+n) // a new slice, because the target may still use the last key
	copy(key, r.last[:shared])
	if _, err := io.ReadFull(r.r, key[shared:]); err != nil {
		return nil, r.damaged(err, "a key")
	}
	r.last = key
	return key, nil
}

func (r *changeReader) bound(f func([]byte) error) error {
	some, err := r.r.ReadByte()
	if err != nil || some > 1 {
		return r.damaged(err, "the end of an interval")
	}
	if some == 0 {
		return f(nil)
	}
	key, err := r.key()
	if err != nil {
		return err
	}
	return f(key)
}

func (r *changeReader) put(t ChangeTarget) error {
	key, err := r.key()
	if err != nil {
		return err
	}
	n, err := binary.ReadUvarint(r.r)
	if err != nil || n > 4<<30 {
		return r.damaged(err, "length of a value")
	}
	value := &io.LimitedReader{R: r.r, N: int64(n)}
	if err := t.Put(key, value, int64(n)); err != nil {
		return err
	}
	if value.N > 0 {
		_, err = io.Copy(io.Discard, value)
	}
	if value.N > 0 {
		return r.damaged(err, "a value is cut short")
	}
	return nil
}
