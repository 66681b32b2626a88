package dbm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"runtime/debug"

	"flashdbm/mvcc"
)

// TxOptions say what kind of transaction is begun.
type TxOptions struct {
	ReadOnly     bool // cannot write; sees what View sees
	Serializable bool // commits only if nothing that it read has changed since its snapshot; ranges, absent keys and Len are reads too
	// CheckWrites: ErrConflict if a key that it writes was written by another since it began, also if it has read nothing. Without it a
	// transaction that has read nothing cannot conflict: it is as if it had begun when it commits.
	CheckWrites bool
}

// Tx is a transaction. It belongs to one goroutine. Slices that it returns are valid until it ends.
type Tx struct {
	*txShared
	spaceKeys
}

// txShared is what the transaction is for all keyspaces.
type txShared struct {
	inner      *mvcc.Tx
	db         *DB
	dropped    [][]byte        // prefixes of the keyspaces that the transaction has dropped
	stamp      stamp           // of the database; 0 if no value that the transaction can see may have one
	now        int64           // when it began, in the unit of times; 0 without a stamp
	soonest    int64           // time of a record that was put with one; 0 for none
	err        error           // first error of the media or the system
	ctx        context.Context // that ends iterations; nil for none
	cleanup    runtime.Cleanup
	spaced     bool // the file has keyspaces
	quiet      bool // nothing is done in the background behind its commit
	times      bool // PutTTL may be used
	readOnly   bool
	managed    bool // ended by View or Update
	done       bool
	aging      bool // see during
	answered   bool // something that was read has been returned
	wantsTimes bool // PutTTL has failed for want of EnableExpiry
}

var errManaged = errors.New("flashdbm: View and Update end their transaction themselves: return nil or an error from the function")

func newTx(db *DB, inner *mvcc.Tx, o TxOptions, managed bool) *Tx {
	both := &struct { // one allocation: of 192 bytes it is a tenth of an Update of one record
		tx     Tx
		shared txShared
	}{Tx{spaceKeys: spaceKeys{space: allKeys}}, txShared{inner: inner, db: db, readOnly: o.ReadOnly, managed: managed, aging: inner.Aging()}}
	tx := &both.tx
	tx.txShared = &both.shared
	if mvcc.KeyspacesOf(inner) {
		findSpaces(tx)
	}
	findStamp(tx)
	return tx
}

// note remembers an error of the media or the system.
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

// Err returns the first error of the media or the system that the transaction met. View, Update and Commit return it when nothing else
// fails. Once the transaction has ended, an iteration that was begun or went on after that makes it ErrTxDone if it was nil.
func (tx *Tx) Err() error { return tx.err }

func (tx *Tx) canRead(key []byte) error {
	if tx.done {
		return ErrTxDone
	}
	if tx.dropped != nil && isDropped(tx) {
		return errDropped
	}
	return tx.checkKey(key, nil)
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
	return tx.checkKey(key, value)
}

// Get returns the value of key, never nil, or ErrNotFound. It takes no lock and allocates nothing unless the value is larger than about
// 1 MiB.
func (tx *Tx) Get(key []byte) ([]byte, error) {
	if err := tx.canRead(key); err != nil {
		return nil, err
	}
	if tx.aging {
		return tx.getAging(key)
	}
	value, ok, err := tx.inner.Get(tx.at(key))
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

// again reports whether what failed may be tried again: beside a writer, as long as nothing was returned, on a newer snapshot.
func (tx *Tx) again(err error) bool {
	if tx.answered || !tx.inner.Renew(err) {
		return false
	}
	if mvcc.KeyspacesOf(tx.inner) && !tx.spaced && !tx.space.all { // else findSpaces is at it
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
	ok, err := stillHas(tx, tx.at(key))
	if err != nil && tx.again(err) {
		return tx.Has(key)
	}
	tx.answered = true
	return ok, tx.note(err)
}

// Put sets the value of key. It copies both. ErrTxReadOnly, ErrKeyTooLarge, ErrValueTooLarge, ErrFull. A value of more than about 1 MiB in
// memory that cannot be read, as of a mapping of a file that was cut short, is an error of this call; with a shorter one, or a key, the
// runtime panics or ends the process as it does wherever such memory is read.
func (tx *Tx) Put(key, value []byte) error {
	if err := tx.canWrite(key, value); err != nil {
		return err
	}
	guardMark(tx, key)
	return tx.note(putValue(tx, key, value))
}

// Insert sets the value of key if it has none, else ErrExists.
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

// Delete removes key; it is no error if there is none.
func (tx *Tx) Delete(key []byte) error {
	if err := tx.canWrite(key, nil); err != nil {
		return err
	}
	guardMark(tx, key)
	return tx.note(tx.inner.Delete(tx.at(key)))
}

// DeleteRange removes the records with from <= key < to; nil is an open end. It is no error if there are none.
//
// A range of up to 4,096 records is deleted key by key, from the transaction's snapshot; an error in between leaves a part
// of them deleted in the transaction. One of more, or for which a full file has no room, takes the same memory and the same few bytes in the log for any number: the
// commit cuts whole subtrees out of the tree, while others wait for it as for any large commit, and looks once at each page between the two ends, for
// its number of records and for values that lie elsewhere, as DeleteRange itself and Len within the transaction do. A flush of all that is dirty follows. So
// a full file can be emptied by one call. The first such range has a checkpoint written, behind which programs of before refuse the file.
//
// It conflicts as a range: with ErrConflict the transaction has lost to one that put or deleted something in the range since its snapshot,
// and one that puts something there, from a snapshot before the commit, loses to it.
func (tx *Tx) DeleteRange(from, to []byte) (err error) {
	_, err = tx.deletePart(from, to, math.MaxInt64)
	return err
}

// deletePart is DeleteRange of about the given number of records, the first ones, and reports whether there are more.
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

// countOf returns the number of records of the space.
func countOf(tx *Tx) (int64, error) {
	n, err := countStored(tx)
	if err != nil || tx.stamp == 0 || tx.space.all {
		return n, err
	}
	over, err := countOver(tx)
	return n - over, err
}

// countStored returns the number of records that the tree has of the space.
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

// Len returns the number of records that the transaction sees, of its keyspace. In a database without keyspaces it looks at a number that is
// kept. In one with keyspaces it looks at the pages that the keyspace has in the tree, and for the default one at those of all others: a
// thousand pages in a millisecond.
func (tx *Tx) Len() (n int64, err error) {
	if tx.done {
		return 0, ErrTxDone
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

// ValueReader reads the value of key piece by piece and returns its length in bytes; a value of gigabytes is never in memory whole. The
// reader is valid until the transaction ends. ErrNotFound.
func (tx *Tx) ValueReader(key []byte) (reader io.ReadCloser, length int64, err error) {
	reader, length, _, err = timedReader(tx, key)
	return reader, length, err
}

// timedReader is Tx.ValueReader that returns the time of the record too, 0 if it does not expire.
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
func (tx *Tx) Commit() error {
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
	return tx.commit()
}

func (tx *Tx) commit() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	tx.finish()
	defer guard(tx.db.engine, &err)
	err = public(tx.inner.Commit())
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
	tx.cleanup.Stop()
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
