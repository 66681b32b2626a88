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

// Records that expire. EnableExpiry, or the first DB.PutTTL, makes a database one that can have them. From then on
// the tree stores the value of a record as
//
//	a record that expires                        stamp, time, value
//	another one whose value begins with stamp    stamp, zeros, value
//	all others                                   value
//
// The stamp is 8 random bytes drawn once for each database, and is in the value of the mark of keyspaces. Values
// written before need not be read or changed: the probability that one of n such values begins with the stamp is n
// in 2^64. The time is 6 bytes: milliseconds since 1970, UTC.
//
// An index in the catalog has an entry for each time, with the record's key in the tree:
//
//	FF FF t, time, key                           empty
//
// Invariants:
//
//  1. A handle knows the stamp before any of its snapshots contains a value with it. The stamp is set before the
//     mark is committed, and only transactions that began after that write times.
//  2. In each snapshot, every record that expires has its entry in the index. An entry may have no record, or one
//     with another time: entries left by puts and deletes stay until their time.
//  3. An entry is deleted only by a transaction that has read the record of its key, or that writes this record
//     itself. A record is deleted because of its time only by a transaction that has read the time. So a concurrent
//     put of the record conflicts with the expirer's transaction, and the put stays.
//
// A transaction does not see a record whose time is not after the transaction's beginning, by the clock of this
// process. So the time at which expired records are deleted makes no difference to transactions.
const (
	stampBytes   = 8
	timeBytes    = 6
	stampedBytes = stampBytes + timeBytes

	// mostTimedKey is the longest key in the tree, in bytes, of a record that expires. The index stores it after a
	// prefix and a time.
	mostTimedKey = maxKey + 8 - 3 - timeBytes

	mostTime = 1<<(8*timeBytes) - 1 // in the year 10889
)

const catalogTimes = 't'

// stampedForm is the first byte of the mark's value in a database with a stamp. The stamp follows.
const stampedForm = keyspace.Stamped

// ErrNoExpiry: the database has no stamp yet. Call DB.EnableExpiry once.
var ErrNoExpiry = errors.New("flashdbm: expiry is not enabled in this database: call DB.EnableExpiry once")

// stamp is the stamp of a database; 0 is none.
type stamp uint64

// timeOf splits a stored value into the user's value and the expiry time; the time is 0 if the record does not
// expire.
func (s stamp) timeOf(stored []byte) (value []byte, at int64) {
	if s == 0 || len(stored) < stampedBytes || stamp(binary.BigEndian.Uint64(stored)) != s {
		return stored, 0
	}
	return stored[stampedBytes:], readTime(stored[stampBytes:])
}

// begins reports whether a user's value begins with the stamp.
func (s stamp) begins(value []byte) bool {
	return s != 0 && len(value) >= stampBytes && stamp(binary.BigEndian.Uint64(value)) == s
}

// head appends the stamp and a time to b.
func (s stamp) head(b []byte, at int64) []byte {
	return appendTime(binary.BigEndian.AppendUint64(b, uint64(s)), at)
}

func appendTime(b []byte, at int64) []byte {
	return append(b, byte(at>>40), byte(at>>32), byte(at>>24), byte(at>>16), byte(at>>8), byte(at))
}

func readTime(b []byte) int64 {
	return int64(binary.BigEndian.Uint16(b))<<32 | int64(binary.BigEndian.Uint32(b[2:]))
}

// timeKey returns the index key for an expiry time and a record's key in the tree.
func timeKey(at int64, key []byte) []byte {
	b := make([]byte, 0, 3+timeBytes+len(key))
	return append(appendTime(append(b, spaceByte, catalog, catalogTimes), at), key...)
}

// splitTimeKey is the inverse of timeKey. ok is false if the index key is too short.
func splitTimeKey(indexed []byte) (at int64, key []byte, ok bool) {
	if len(indexed) < 3+timeBytes {
		return 0, nil, false
	}
	return readTime(indexed[3:]), indexed[3+timeBytes:], true
}

// stampOf returns the stamp in the mark's value, 0 if it has none. ok is false if this program does not know the
// form of the value.
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

// expiry is the part of a DB for records that expire.
type expiry struct {
	of    *DB
	stamp atomic.Uint64 // see invariant 1; 0: none
	on    atomic.Bool   // the mark with the stamp is committed
	mu    sync.Mutex    // held by EnableExpiry
	now   func() int64  // the clock, in milliseconds since 1970
	expirer
}

func wallClock() int64 { return time.Now().UnixMilli() }

// EnableExpiry makes it possible for records of the database to expire (see Tx.PutTTL); a second call does nothing.
// It takes as long as a commit. DB.PutTTL and Update call it when needed. The file becomes one with keyspaces if it
// is not one yet (see EnableKeyspaces), and programs that do not know of expiry refuse it.
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
		rand.Read(b[:]) // never fails
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

// begins reports whether a user's value begins with the database's stamp.
func (x *expiry) begins(value []byte) bool { return stamp(x.stamp.Load()).begins(value) }

// shown returns what a transaction that begins now sees of a stored value; ok is false if the record has expired.
func (x *expiry) shown(stored []byte) (value []byte, ok bool) {
	value, at := stamp(x.stamp.Load()).timeOf(stored)
	return value, at == 0 || at > x.now()
}

// expiryTime returns the time at which a record expires that is put now.
func (x *expiry) expiryTime(ttl time.Duration) (int64, error) {
	if ttl <= 0 {
		return 0, fmt.Errorf("flashdbm: a record cannot expire in %v: the time must be above 0; use Put for a record that does not expire", ttl)
	}
	now := x.now()
	ms := ttl.Milliseconds()
	if ttl%time.Millisecond > 0 {
		ms++
	}
	if now < 0 || now > mostTime-ms {
		return 0, fmt.Errorf("flashdbm: a record cannot expire in %v: the clock shows %v", ttl, time.UnixMilli(now).UTC())
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

// PutTTL sets the value of key to one that expires after ttl, counted from this call. Transactions that begin later
// than that do not see the record, and within some seconds it is deleted in the background, so that its space can
// be reused. ttl is rounded up to whole milliseconds.
//
// All operations treat an expired record as absent: Insert puts one, Increment starts at 0. Put, CompareAndSwap and
// GetAndPut write records that do not expire; Increment and Append keep the time of the record.
//
// The time is that of the system's clock, which a transaction reads when it begins. If the clock is set forward,
// records expire sooner, and records deleted in that time do not come back. If it is set back, records stay
// longer, and records that had expired but are not deleted yet reappear. Another process, or another machine that
// reads a copy, uses its own clock.
//
// A record that expires takes 14 bytes more than one that does not. Its entry in the index is 9 bytes longer
// than the key, and may stay until its time even if the record is deleted or overwritten before. A key may have
// 65,530 bytes. On a full file PutTTL may get ErrFull even if the record that it replaces is as long, because
// the entry in the index moves.
//
// If the database cannot have such records yet, PutTTL returns ErrNoExpiry. In Update the function has to return
// this error; Update then calls DB.EnableExpiry and runs the function again.
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

// TTL returns for how long the record will be there, counted from the beginning of the transaction. expires is
// false if the record does not expire. ErrNotFound.
func (tx *Tx) TTL(key []byte) (left time.Duration, expires bool, err error) {
	r, _, at, err := timedReader(tx, key)
	if err != nil {
		return 0, false, err
	}
	r.Close()
	return tx.left(at), at != 0, nil
}

// TTL is Tx.TTL for the current record of the cursor.
func (c *Cursor) TTL() (left time.Duration, expires bool, err error) {
	r, _, at, err := cursorReader(c)
	if err != nil {
		return 0, false, err
	}
	r.Close()
	return c.tx.left(at), at != 0, nil
}

// left returns the time from the beginning of the transaction to at; 0 if at is 0.
func (tx *txShared) left(at int64) time.Duration {
	if at == 0 {
		return 0
	}
	return time.Duration(min(at-tx.now, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// putUntil puts a record that expires at a time, or that does not expire if at is 0.
func putUntil(tx *Tx, key, value []byte, at int64) error {
	if at == 0 {
		return tx.Put(key, value)
	}
	if len(value) > maxValue-stampedBytes {
		return ErrValueTooLarge
	}
	return timed(tx, key, at, func(inTree []byte) error { return tx.note(putStamped(tx, inTree, value, at)) })
}

// timed maintains the index around put. put is given the record's key in the tree and writes the record, which
// expires at the time at. Invariant 2 holds after an error, too.
//
// timed deletes the index entry of the record's previous time, if a read outside of the transaction finds that
// time. Otherwise a record that is put again and again before it expires would leave an entry for each put. The
// delete is right even if the record has changed since that read, because this commit overwrites the record. The
// read does not count as a read of the transaction.
func timed(tx *Tx, key []byte, at int64, put func(inTree []byte) error) error {
	if !tx.times {
		tx.wantsTimes = true
		return ErrNoExpiry
	}
	inTree := tx.space.in(nil, key)
	if len(inTree) > mostTimedKey {
		return fmt.Errorf("%w: the key of a record that expires may have at most %d bytes", ErrKeyTooLarge, mostTimedKey-len(inTree)+len(key))
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

// putStamped puts a value after the stamp and a time.
func putStamped(tx *Tx, inTree, value []byte, at int64) error {
	head := tx.stamp.head(make([]byte, 0, stampedBytes+min(len(value), appendInMemory)), at)
	if len(value) > appendInMemory {
		return tx.inner.PutReader(inTree, io.MultiReader(bytes.NewReader(head), bytes.NewReader(value)), int64(stampedBytes+len(value)))
	}
	return tx.inner.Put(inTree, append(head, value...))
}

// putValue puts a value that does not expire, in its stored form.
func putValue(tx *Tx, key, value []byte) error {
	s := stamp(tx.db.expiry.stamp.Load())
	switch {
	case !s.begins(value) || tx.space.all:
		return tx.inner.Put(treeKey(tx, key), value)
	case tx.stamp == 0: // in this snapshot such a value is stored as it is
		guardForm(tx)
		return tx.inner.Put(treeKey(tx, key), value)
	case len(value) > maxValue-stampedBytes:
		return ErrValueTooLarge
	}
	return putStamped(tx, treeKey(tx, key), value, 0)
}

// guardForm makes the transaction conflict if another one commits the stamp before it: in this transaction's
// snapshot values have no stamps.
func guardForm(tx *Tx) {
	if tx.spaced {
		tx.inner.Guard(spaceMark, spaceForm)
	} else {
		tx.inner.Guard(spaceMark, nil)
	}
}

// there returns the user's value for a stored value; ok is false if the record has
// expired.
func there(tx *Tx, stored []byte) (value []byte, ok bool) {
	if tx.stamp == 0 || tx.space.all {
		return stored, true
	}
	value, at := tx.stamp.timeOf(stored)
	return value, at == 0 || at > tx.now
}

// stillHas reports whether there is a record with the given key in the tree that has not expired.
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

// behindHead reads the stamp and the time of a stored value, if they are there, and returns a reader of the user's
// value, and its length.
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

// headedReader returns head, the bytes already read from r, and then the rest of
// r.
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

// stampedSource returns a reader of the stored form of a value, and likely, the approximate length of that form in
// bytes; 0 if unknown. at is the expiry time of the record, 0 if it does not expire.
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
		case err != nil: // the value is shorter than a stamp
			return bytes.NewReader(first[:n]), int64(n), nil
		case !s.begins(first):
			return &headedReader{first, source}, likely, nil
		case tx.stamp == 0:
			guardForm(tx)
			return &headedReader{first, source}, likely, nil
		}
	}
	source.head = stampedBytes
	if likely > maxValue-stampedBytes {
		return nil, 0, ErrValueTooLarge
	}
	return &headedReader{append(s.head(nil, at), first...), source}, likely + stampedBytes, nil
}
