package dbm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"runtime/debug"

	"flashdbm/internal/keyspace"
	"flashdbm/mvcc"
)

// TxOptions say what kind of transaction to begin.
type TxOptions struct {
	ReadOnly     bool // cannot write; sees what View sees
	Serializable bool // commits only if nothing that it read has changed since its snapshot; ranges, absent keys and Len count as read
	// CheckWrites: the commit gets ErrConflict if, since this transaction began, another one wrote a key that this
	// one writes, even if this one has read nothing. Without it, a transaction that has read nothing never
	// conflicts, as if it had begun when it commits.
	CheckWrites bool
}

// Tx is a transaction. It must be used by one goroutine. Slices that it returns are valid until it ends.
type Tx struct {
	*txLink
	space *space // its contents never change
}

// txShared is the state of a transaction, which its Tx for each keyspace share.
type txShared struct {
	inner      *mvcc.Tx
	db         *DB
	room       []byte          // memory for treeKey; its length is always 0
	dropped    [][]byte        // prefixes of keyspaces that the transaction has dropped
	stamp      stamp           // of the database; 0 if no value visible to the transaction has a stamp
	now        int64           // its beginning, in milliseconds since 1970; 0 without a stamp
	soonest    int64           // the earliest expiry time that the transaction has put; 0 for none
	err        error           // first error of the media or the system
	ctx        context.Context // ends iterations; nil for none
	cleanup    runtime.Cleanup
	spaced     bool // the file has keyspaces at the snapshot
	quiet      bool // its commit starts no background work
	times      bool // PutTTL may be used
	readOnly   bool
	managed    bool // View or Update ends it
	done       bool
	aging      bool // the snapshot must be held around reads: see during
	answered   bool // a result of a read has been returned, so the snapshot must stay
	wantsTimes bool // PutTTL has failed because EnableExpiry was not called
}

var errManaged = errors.New("flashdbm: View and Update end their transaction themselves: return nil or an error from the function")

// note adds the public sentinel to an error, posts damage as an event, and keeps the first error of the media or
// the system for Err.
func (tx *Tx) note(err error) error {
	if err == nil {
		return nil
	}
	err = public(err)
	tx.inner.Met(err)
	if tx.err == nil && lasting(err) {
		tx.err = err
	}
	return err
}

// Err returns the first error of the media or the system that the transaction met. View, Update and Commit return
// it if nothing else fails. An iteration that begins or continues after the transaction has ended sets the error
// to ErrTxDone if it was nil.
func (tx *Tx) Err() error { return tx.err }

func (tx *Tx) canRead(key []byte) error {
	if tx.done {
		return ErrTxDone
	}
	if tx.dropped != nil && isDropped(tx) {
		return errDropped
	}
	return tx.space.checkKey(key, nil)
}

func (tx *Tx) canWrite(key, value []byte) error {
	switch {
	case tx.done:
		return ErrTxDone
	case tx.readOnly:
		return ErrTxReadOnly
	case tx.dropped != nil && isDropped(tx):
		return errDropped
	}
	return tx.space.checkKey(key, value)
}

// Get returns the value of key, never nil, or ErrNotFound. It takes no lock, and allocates only for values larger
// than about 1 MiB.
func (tx *Tx) Get(key []byte) ([]byte, error) {
	if err := tx.canRead(key); err != nil {
		return nil, err
	}
	if tx.aging {
		return tx.getAging(key)
	}
	value, ok, err := tx.inner.Get(treeKey(tx, key))
	switch {
	case err != nil && tx.again(err):
		return tx.Get(key)
	case err != nil:
		return nil, tx.note(err)
	}
	tx.answered = true
	if ok && tx.stamp != 0 {
		value, ok = there(tx, value)
	}
	if !ok {
		return nil, ErrNotFound
	}
	return value, nil
}

// getGuarded is Get of a record of the whole tree that must not change before the transaction commits: see
// mvcc.GuardedGet.
func getGuarded(tx *Tx, key []byte) (value []byte, err error) {
	if err := tx.canRead(key); err != nil {
		return nil, err
	}
	if tx.aging {
		if lost := tx.during(func() {
			value, err = getGuarded(tx, key)
			value = bytes.Clone(value)
		}); lost != nil {
			return nil, lost
		}
		return value, err
	}
	value, ok, err := mvcc.GuardedGet(tx.inner, key)
	switch {
	case err != nil:
		return nil, tx.note(err)
	case !ok:
		return nil, ErrNotFound
	}
	return value, nil
}

// again reports whether a failed read may be tried again: only beside a writer, only while the transaction
// has returned nothing, and only if again could replace the snapshot by a newer one.
func (tx *Tx) again(err error) bool {
	if tx.answered || !tx.inner.Renew(err) {
		return false
	}
	if mvcc.KeyspacesOf(tx.inner) && !tx.spaced && !tx.space.all { // if spaced or all is set, findSpaces is the caller or has run
		findSpaces(tx)
		findStamp(tx)
	}
	return true
}

// Has reports whether key has a value.
func (tx *Tx) Has(key []byte) (found bool, err error) {
	if err := tx.canRead(key); err != nil {
		return false, err
	}
	if tx.aging {
		if lost := tx.during(func() { found, err = tx.Has(key) }); lost != nil {
			return false, lost
		}
		return found, err
	}
	ok, err := stillHas(tx, treeKey(tx, key))
	if err != nil && tx.again(err) {
		return tx.Has(key)
	}
	tx.answered = true
	return ok, tx.note(err)
}

// Put sets the value of key. It copies key and value. ErrTxReadOnly, ErrKeyTooLarge, ErrValueTooLarge, ErrFull. If
// a value above about 1 MiB lies in memory that cannot be read, as in a mapping of a truncated file, Put returns an
// error; for a shorter value or a key the runtime panics or ends the process, as it does wherever such memory is
// read.
func (tx *Tx) Put(key, value []byte) error {
	if err := tx.canWrite(key, value); err != nil {
		return err
	}
	if keyspace.Shifted(key) {
		guardMark(tx, key)
	}
	err := putValue(tx, key, value)
	if err == nil {
		return nil
	}
	return tx.note(err)
}

// Insert sets the value of key if it has none; otherwise ErrExists.
func (tx *Tx) Insert(key, value []byte) error {
	if err := tx.canWrite(key, value); err != nil {
		return err
	}
	switch ok, err := tx.Has(key); {
	case err != nil:
		return err
	case ok:
		return ErrExists
	}
	guardMark(tx, key)
	return tx.note(putValue(tx, key, value))
}

// Delete removes key; an absent key is no error. On a full file, a transaction that deletes thousands of keys from all
// parts of the tree may find no room for the pages that it changes, and gets ErrFull. A transaction with fewer
// deletes, or with a DeleteRange, finds room.
func (tx *Tx) Delete(key []byte) error {
	if err := tx.canWrite(key, nil); err != nil {
		return err
	}
	guardMark(tx, key)
	return tx.note(tx.inner.Delete(treeKey(tx, key)))
}

// DeleteRange removes the records with from <= key < to; nil is an open end. An empty range is no error. A bound may
// not be longer than a key: ErrKeyTooLarge.
//
// A range of up to 4,096 records is deleted key by key, from the transaction's snapshot; an error in between leaves
// a part of them deleted in the transaction. A larger range, or one for which a full file has no room, takes the
// same memory and the same few bytes of log for any number of records: the commit cuts whole subtrees out of the
// tree. Other commits wait during the cut, as for any large commit. The cut reads each page between the two ends
// once, to count its records and to find values that are stored outside of the leaves; DeleteRange itself, and Len
// within the transaction, also read these pages. A flush of all dirty pages follows the cut. So one call can empty
// a full file. The first such range of a file writes a checkpoint, after which programs that do not know such
// ranges refuse the file.
//
// DeleteRange conflicts as a range: the transaction gets ErrConflict if another one put or deleted a record in the
// range since its snapshot. A transaction that puts a record there, and whose snapshot is older than this commit,
// gets ErrConflict itself.
func (tx *Tx) DeleteRange(from, to []byte) (err error) {
	if err := cmp.Or(checkSizes(from, nil), checkSizes(to, nil)); err != nil {
		return err
	}
	_, err = tx.deletePart(from, to, math.MaxInt64)
	return err
}

// deletePart deletes about the first most records of the range, and reports whether the range
// has more.
func (tx *Tx) deletePart(from, to []byte, most int64) (more bool, err error) {
	if err := tx.canWrite(nil, nil); err != nil {
		return false, err
	}
	if tx.aging {
		if lost := tx.during(func() { more, err = tx.deletePart(from, to, most) }); lost != nil {
			return false, lost
		}
		return more, err
	}
	rest, err := mvcc.DeletePart(tx.inner, tx.space.in(nil, from), tx.space.to(to), most)
	if tx.ctx != nil && err != nil && err == tx.ctx.Err() {
		return false, err
	}
	return rest != nil, tx.note(err)
}

// countOf returns the number of records of the space that have not expired.
func countOf(tx *Tx) (int64, error) {
	n, err := countStored(tx)
	if err != nil || tx.stamp == 0 || tx.space.all {
		return n, err
	}
	over, err := countOver(tx)
	return n - over, err
}

// countStored returns the number of records of the space in the tree, expired ones included.
func countStored(tx *Tx) (int64, error) {
	if len(tx.space.prefix) > 0 {
		return mvcc.Count(tx.inner, tx.space.low, tx.space.high)
	}
	n, err := tx.inner.Len()
	if err != nil || !tx.space.shifts {
		return n, err
	}
	others, err := mvcc.Count(tx.inner, tx.space.high, nil)
	return n - others, err
}

// Len returns the number of records of the keyspace that the transaction sees. Without keyspaces it returns a
// counter that the tree maintains, in constant time. In a database with keyspaces it reads the pages of the
// keyspace, or for the default keyspace those of all others: about a thousand pages in a millisecond.
func (tx *Tx) Len() (n int64, err error) {
	if err := tx.canRead(nil); err != nil {
		return 0, err
	}
	if tx.aging {
		if lost := tx.during(func() { n, err = tx.Len() }); lost != nil {
			return 0, lost
		}
		return n, err
	}
	n, err = countOf(tx)
	tx.answered = true
	return n, tx.note(err)
}

// ValueReader returns a reader of the value of key, and the value's length in bytes. The reader reads the value
// piece by piece, so a value of gigabytes is never in memory as a whole. It is valid until the transaction ends.
// ErrNotFound.
func (tx *Tx) ValueReader(key []byte) (reader io.ReadCloser, length int64, err error) {
	reader, length, _, err = timedReader(tx, key)
	return reader, length, err
}

// timedReader is Tx.ValueReader that also returns the expiry time of the record, 0 if it does not expire.
func timedReader(tx *Tx, key []byte) (reader io.ReadCloser, length, at int64, err error) {
	if err := tx.canRead(key); err != nil {
		return nil, 0, 0, err
	}
	if tx.aging {
		if lost := tx.during(func() { reader, length, at, err = timedReader(tx, key) }); lost != nil {
			return nil, 0, 0, lost
		}
		return reader, length, at, err
	}
	r, n, ok, err := tx.inner.ValueReader(tx.space.in(nil, key))
	if ok && err == nil && !tx.space.all {
		r, n, at, err = behindHead(tx.stamp, r, n)
	}
	switch {
	case err != nil && tx.again(err):
		return timedReader(tx, key)
	case err != nil:
		return nil, 0, 0, tx.note(err)
	}
	tx.answered = true
	if !ok || at != 0 && at <= tx.now {
		return nil, 0, 0, ErrNotFound
	}
	return &valueReader{tx, r}, n, at, nil
}

type valueReader struct {
	tx *Tx
	r  io.Reader
}

func (v *valueReader) Read(p []byte) (n int, err error) {
	if v.tx.done {
		return 0, ErrTxDone
	}
	if v.tx.aging {
		if lost := v.tx.during(func() { n, err = v.Read(p) }); lost != nil {
			return 0, lost
		}
		return n, err
	}
	n, err = v.r.Read(p)
	if err != nil && err != io.EOF {
		err = v.tx.note(err)
	}
	return n, err
}

func (v *valueReader) Close() error {
	if c, ok := v.r.(io.Closer); ok && !v.tx.done {
		c.Close()
	}
	v.r = bytes.NewReader(nil)
	return nil
}

// Commit applies what the transaction wrote and ends it. ErrConflict: nothing was applied.
func (tx *Tx) Commit() (err error) {
	switch {
	case tx.managed:
		return errManaged
	case tx.done:
		return ErrTxDone
	}
	if tx.err != nil {
		err := tx.err
		tx.Rollback()
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(tx.db.engine, &err)
	return tx.commit()
}

// commit commits the transaction and ends it. A memory fault on the mapping remains a panic.
func (tx *Tx) commit() error {
	tx.finish()
	err := public(tx.inner.Commit())
	tx.committed(err)
	return err
}

// Rollback ends the transaction; nothing of it is applied. After Commit or Rollback it does nothing.
func (tx *Tx) Rollback() error {
	switch {
	case tx.managed:
		return errManaged
	case tx.done:
		return nil
	}
	return tx.rollback()
}

func (tx *Tx) rollback() error {
	tx.finish()
	return public(tx.inner.Rollback())
}

func (tx *Tx) finish() {
	tx.done = true
	if !tx.managed { // else it has none
		tx.cleanup.Stop()
	}
}

func checkSizes(key, value []byte) error { return checkSizesOf(uint64(len(key)), uint64(len(value))) }

func checkSizesOf(key, value uint64) error {
	switch {
	case key > maxKey:
		return ErrKeyTooLarge
	case value > maxValue:
		return ErrValueTooLarge
	}
	return nil
}

const (
	maxKey   = 64 << 10
	maxValue = mvcc.MaxValue
)
