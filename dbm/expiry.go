package dbm

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/internal/keyspace"
	"flashdbm/mvcc"
)

// Records that expire. A database gets them with EnableExpiry, or with the first DB.PutTTL. From then on the value that the tree has of a record is
//
//	of a record that expires                     stamp, time, value
//	of another one that begins with the stamp    stamp, zeros, value
//	of all others                                the value
//
// The stamp is 8 bytes that are drawn at random for each database. So what was there before need not be read or changed: that one of n values begins
// with it has a probability of n in 2^64. The time is in milliseconds since 1970, UTC, in 6 bytes. The mark of keyspaces has the stamp.
//
// An index, in the catalog, has for each time the key in the tree of the record:
//
//	FF FF t, time, key                           empty
//
// Invariants:
//
//  1. A handle knows the stamp before any snapshot of its has a value with it: the stamp is set before the mark is committed, and times are written by
//     transactions only that began behind that.
//  2. A record that expires has its entry in the index in each snapshot that it is in. An entry may have no record, or one with another time: what
//     puts and deletes leave behind stays until its time.
//  3. An entry is deleted by a transaction that has read the record of its key, or by one that writes that record itself. A record is deleted for its time only by one that
//     has read its time. So whoever puts the record beside conflicts with the first kind, and his put stays.
//
// A record whose time is not after the beginning of a transaction, by the clock of this process, is not there for that transaction. So it does not matter
// when the records are deleted.
const (
	stampBytes   = 8
	timeBytes    = 6
	stampedBytes = stampBytes + timeBytes

	// mostTimedKey is the longest key, in the tree, of a record that expires: the index has it behind a time.
	mostTimedKey = maxKey + 8 - 3 - timeBytes

	mostTime = 1<<(8*timeBytes) - 1 // in the year 10889
)

const catalogTimes = 't'

// stampedForm is the first byte of the mark's value in a database whose records may expire. The stamp follows.
const stampedForm = keyspace.Stamped

// ErrNoExpiry says that the database has no records that expire yet: DB.EnableExpiry, once, has it get some.
var ErrNoExpiry = errors.New("flashdbm: no record of this database expires yet: call DB.EnableExpiry once")

// stamp is that of a database; 0 is none.
type stamp uint64

// timeOf splits what the tree has of a value. at is 0 if the record does not expire.
func (s stamp) timeOf(stored []byte) (value []byte, at int64) {
	if s == 0 || len(stored) < stampedBytes || stamp(binary.BigEndian.Uint64(stored)) != s {
		return stored, 0
	}
	return stored[stampedBytes:], readTime(stored[stampBytes:])
}

// begins reports whether a value of the user's begins with the stamp.
func (s stamp) begins(value []byte) bool {
	return s != 0 && len(value) >= stampBytes && stamp(binary.BigEndian.Uint64(value)) == s
}

// head appends what stands before a value in the tree.
func (s stamp) head(b []byte, at int64) []byte {
	return appendTime(binary.BigEndian.AppendUint64(b, uint64(s)), at)
}

func appendTime(b []byte, at int64) []byte {
	return append(b, byte(at>>40), byte(at>>32), byte(at>>24), byte(at>>16), byte(at>>8), byte(at))
}

func readTime(b []byte) int64 {
	return int64(binary.BigEndian.Uint16(b))<<32 | int64(binary.BigEndian.Uint32(b[2:]))
}

// timeKey returns the key in the index for a time and a key in the tree.
func timeKey(at int64, key []byte) []byte {
	b := make([]byte, 0, 3+timeBytes+len(key))
	return append(appendTime(append(b, spaceByte, catalog, catalogTimes), at), key...)
}

// splitTimeKey is the inverse of timeKey, of a key that begins as those do.
func splitTimeKey(indexed []byte) (at int64, key []byte, ok bool) {
	if len(indexed) < 3+timeBytes {
		return 0, nil, false
	}
	return readTime(indexed[3:]), indexed[3+timeBytes:], true
}

// stampOf returns the stamp that the mark's value has, 0 if it has none. ok is false if the value is of a form that this program does not know.
func stampOf(form []byte) (s stamp, ok bool) {
	if len(form) == 1+stampBytes && form[0] == stampedForm {
		s = stamp(binary.BigEndian.Uint64(form[1:]))
		return s, s != 0
	}
	return 0, bytes.Equal(form, spaceForm)
}

func formOf(s stamp) []byte {
	return binary.BigEndian.AppendUint64([]byte{stampedForm}, uint64(s))
}

// expiry is what a database has for records that expire.
type expiry struct {
	of    *DB
	stamp atomic.Uint64 // see invariant 1; 0: none
	on    atomic.Bool   // the mark with the stamp is committed
	mu    sync.Mutex    // held by EnableExpiry
	now   func() int64  // the clock, in the unit of times
	expirer
}

func wallClock() int64 { return time.Now().UnixMilli() }

// EnableExpiry has the records of the database be able to expire, if they are not yet: Tx.PutTTL says what for. It takes the time of a commit. DB.PutTTL and Update do so by
// themselves. The file becomes one with keyspaces, if it is not one yet (see EnableKeyspaces), and programs that do not know of expiry refuse it.
func (x *expiry) EnableExpiry() error {
	db := x.of
	if db.beside != nil {
		return ErrReadOnly
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.on.Load() {
		return nil
	}
	if err := db.EnableKeyspaces(); err != nil {
		return err
	}
	for x.stamp.Load() == 0 {
		var b [stampBytes]byte
		rand.Read(b[:]) // which never fails
		x.stamp.Store(binary.BigEndian.Uint64(b[:]))
	}
	if err := db.Update(func(tx *Tx) error {
		return tx.whole().Put(spaceMark, formOf(stamp(x.stamp.Load())))
	}); err != nil {
		return err
	}
	x.on.Store(true)
	return nil
}

// begins reports whether a value begins with the stamp.
func (x *expiry) begins(value []byte) bool { return stamp(x.stamp.Load()).begins(value) }

// shown is what a transaction that begins now has of what the tree has of a value.
func (x *expiry) shown(stored []byte) (value []byte, ok bool) {
	value, at := stamp(x.stamp.Load()).timeOf(stored)
	return value, at == 0 || at > x.now()
}

// expiryTime returns the time that a record expires at which is put now.
func (x *expiry) expiryTime(ttl time.Duration) (int64, error) {
	if ttl <= 0 {
		return 0, fmt.Errorf("flashdbm: a record that expires in %v: more than 0 is wanted, and Put for one that does not expire", ttl)
	}
	now := x.now()
	ms := ttl.Milliseconds()
	if ttl%time.Millisecond > 0 {
		ms++
	}
	if now < 0 || now > mostTime-ms {
		return 0, fmt.Errorf("flashdbm: a record that expires in %v: the clock says %v", ttl, time.UnixMilli(now).UTC())
	}
	return now + ms, nil
}

// PutTTL is Tx.PutTTL in a transaction of its own. It never conflicts.
func (x *expiry) PutTTL(key, value []byte, ttl time.Duration) error {
	return x.of.Update(func(tx *Tx) error { return tx.PutTTL(key, value, ttl) })
}

// TTL is Tx.TTL in a transaction of its own.
func (x *expiry) TTL(key []byte) (left time.Duration, expires bool, err error) {
	err = x.of.View(func(tx *Tx) error {
		left, expires, err = tx.TTL(key)
		return err
	})
	return left, expires, err
}

// PutTTL sets the value of key to one that is there for the time ttl, counted from this call: every transaction that begins later than that does not have the record, and
// in the background it is deleted within some seconds, so that its space is used again. A ttl is rounded up to whole milliseconds.
//
// All that reads takes a record whose time is over for none, as does what reads and writes: Insert puts one, Increment begins at 0. Put,
// CompareAndSwap and GetAndPut put records that do not expire; Increment and Append leave the time as it is.
//
// The time is that of the system's clock, which a transaction looks at when it begins. If the clock is set forward, records expire
// sooner, for good once they were deleted; if it is set back, they stay longer, and what had expired and was not yet deleted is there again. Another
// process, or another machine that reads a copy, goes by its own clock.
//
// A record that expires takes 14 bytes more than another, and a second one in an index, 9 bytes longer than the key, which may stay until that time
// where the record itself was deleted or overwritten before. The key may have 65,530 bytes.
//
// In a database none of whose records has expired before, Update calls DB.EnableExpiry and runs its function again, for which that has to return the
// error; else, in a transaction from Begin, it is ErrNoExpiry.
func (tx *Tx) PutTTL(key, value []byte, ttl time.Duration) error {
	if err := tx.canWrite(key, value); err != nil {
		return err
	}
	at, err := tx.db.expiry.expiryTime(ttl)
	if err != nil {
		return err
	}
	return putUntil(tx, key, value, at)
}

// TTL returns how long the record with the key will be there, counted from the beginning of the transaction. If it does not expire, expires is false. ErrNotFound.
func (tx *Tx) TTL(key []byte) (left time.Duration, expires bool, err error) {
	r, _, at, err := timedReader(tx, key)
	if err != nil {
		return 0, false, err
	}
	r.Close()
	return tx.left(at), at != 0, nil
}

// TTL is Tx.TTL of the record that the cursor is on.
func (c *Cursor) TTL() (left time.Duration, expires bool, err error) {
	r, _, at, err := cursorReader(c)
	if err != nil {
		return 0, false, err
	}
	r.Close()
	return c.tx.left(at), at != 0, nil
}

// left is how long it is from the beginning of the transaction to a time; 0 for none.
func (tx *txShared) left(at int64) time.Duration {
	if at == 0 {
		return 0
	}
	return time.Duration(min(at-tx.now, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// putUntil puts a record that is there until a time, or for good if that is 0.
func putUntil(tx *Tx, key, value []byte, at int64) error {
	if at == 0 {
		return tx.Put(key, value)
	}
	if len(value) > maxValue-stampedBytes {
		return ErrValueTooLarge
	}
	return timed(tx, key, at, func(inTree []byte) error { return tx.note(putStamped(tx, inTree, value, at)) })
}

// timed calls put, which is to put a record with a time, with its key in the tree, and keeps the index: see invariant 2, which holds after an error too.
//
// The entry for the time that the record has now, as far as a look beside the transaction can tell, goes: so a record that is put again and again
// before its time leaves no entry for each. That is right whatever the record has by then, for the commit puts it; and the transaction has not read it by that.
func timed(tx *Tx, key []byte, at int64, put func(inTree []byte) error) error {
	if !tx.times {
		tx.wantsTimes = true
		return ErrNoExpiry
	}
	inTree := tx.space.in(nil, key)
	if len(inTree) > mostTimedKey {
		return fmt.Errorf("%w: the key of a record that expires may have %d bytes", ErrKeyTooLarge, mostTimedKey-len(inTree)+len(key))
	}
	old, err := mvcc.Head(tx.db.engine, inTree, stampedBytes)
	if err != nil {
		return tx.note(err)
	}
	if err := tx.note(tx.inner.Put(timeKey(at, inTree), nil)); err != nil {
		return err
	}
	if tx.soonest == 0 || at < tx.soonest {
		tx.soonest = at
	}
	if err := put(inTree); err != nil {
		return err
	}
	if _, before := tx.stamp.timeOf(old); before != 0 && before != at {
		return tx.note(tx.inner.Delete(timeKey(before, inTree)))
	}
	return nil
}

// putStamped puts a value behind the stamp.
func putStamped(tx *Tx, inTree, value []byte, at int64) error {
	head := tx.stamp.head(make([]byte, 0, stampedBytes+min(len(value), appendInMemory)), at)
	if len(value) > appendInMemory {
		return tx.inner.PutReader(inTree, io.MultiReader(bytes.NewReader(head), bytes.NewReader(value)), int64(stampedBytes+len(value)))
	}
	return tx.inner.Put(inTree, append(head, value...))
}

// putValue puts a value as the tree has it of a record that does not expire.
func putValue(tx *Tx, key, value []byte) error {
	s := stamp(tx.db.expiry.stamp.Load())
	switch {
	case !s.begins(value) || tx.space.all:
		return tx.inner.Put(tx.at(key), value)
	case tx.stamp == 0: // from a snapshot in which such a value stands for itself
		tx.inner.Guard(spaceMark)
		return tx.inner.Put(tx.at(key), value)
	case len(value) > maxValue-stampedBytes:
		return ErrValueTooLarge
	}
	return putStamped(tx, tx.at(key), value, 0)
}

// there returns the value that a record is found with, or reports that its time is over.
func there(tx *Tx, stored []byte) (value []byte, ok bool) {
	if tx.stamp == 0 || tx.space.all {
		return stored, true
	}
	value, at := tx.stamp.timeOf(stored)
	return value, at == 0 || at > tx.now
}

// stillHas reports whether there is a record with a key in the tree.
func stillHas(tx *Tx, inTree []byte) (bool, error) {
	if tx.stamp == 0 || tx.space.all {
		return tx.inner.Has(inTree)
	}
	stored, ok, err := mvcc.Beginning(tx.inner, inTree)
	if ok {
		_, ok = there(tx, stored)
	}
	return ok, err
}

// behindHead returns a reader that has what is behind the stamp and the time, if those are there, and the length of that.
func behindHead(s stamp, r io.Reader, stored int64) (value io.Reader, length, at int64, err error) {
	if s == 0 || stored < stampedBytes {
		return r, stored, 0, nil
	}
	head := make([]byte, stampedBytes)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, 0, 0, err
	}
	if s.begins(head) {
		return r, stored - stampedBytes, readTime(head[stampBytes:]), nil
	}
	return &headedReader{head, r}, stored, 0, nil
}

// headedReader reads what was read already, and then the rest.
type headedReader struct {
	head []byte
	r    io.Reader
}

func (h *headedReader) Read(p []byte) (int, error) {
	if len(h.head) == 0 {
		return h.r.Read(p)
	}
	n := copy(p, h.head)
	h.head = h.head[n:]
	return n, nil
}

func (h *headedReader) Close() error {
	if c, ok := h.r.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// stampedSource returns a reader of what the tree has of a value that a reader gives, and about how long that is; 0 if it is not known. at is the time
// of the record, 0 if it does not expire.
func stampedSource(tx *Tx, source *valueSource, at int64) (r io.Reader, likely int64, err error) {
	s := stamp(tx.db.expiry.stamp.Load())
	likely = max(source.size, 0)
	if s == 0 || tx.space.all {
		return source, likely, nil
	}
	var first []byte
	if at == 0 {
		first = make([]byte, stampBytes)
		n, err := io.ReadFull(source, first)
		switch {
		case source.err != nil:
			return nil, 0, source.err
		case err != nil: // it is at its end
			return bytes.NewReader(first[:n]), int64(n), nil
		case !s.begins(first):
			return &headedReader{first, source}, likely, nil
		case tx.stamp == 0:
			tx.inner.Guard(spaceMark)
			return &headedReader{first, source}, likely, nil
		}
	}
	source.head = stampedBytes
	if likely > maxValue-stampedBytes {
		return nil, 0, ErrValueTooLarge
	}
	return &headedReader{append(s.head(nil, at), first...), source}, likely + stampedBytes, nil
}
