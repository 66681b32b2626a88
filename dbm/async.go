package dbm

import (
	"errors"
	"runtime/debug"

	"flashdbm/internal/keyspace"
	"flashdbm/mvcc"
)

// CommitAsync is Commit for who does not wait for the device: it returns once the transaction cannot lose to another any more, and calls
// done, from another goroutine, when the commit survives a power cut, in every durability; or has failed, with ErrFailed. The transaction is
// over. What Durability says holds for when the commit is seen: with Durable by new Updates soon, and by View once it is durable.
//
// After an error nothing was applied and done is not called: ErrConflict, ErrFull and whatever else Commit may return.
//
// The calls come one at a time and in the order of the commits; only a transaction that does not fit in memory has its call when it has
// ended, whatever others were called for before. done must not wait for anything: the calls of all other commits wait for it. It may begin
// transactions, and end them by TryCommitAsync; Commit would have the calls wait for the device, and CommitAsync for a call that comes behind this one. Close
// waits until all calls have returned, so done must not call it.
//
// 16,384 commits may be under way. With more, CommitAsync waits for the oldest.
//
// done may be nil: DB.Sync tells then whether all commits that have returned survive a power cut.
func (tx *Tx) CommitAsync(done func(error)) error { return tx.commitAsync(true, done) }

// TryCommitAsync is CommitAsync, but returns ErrBacklog where that would wait for another commit to end. The transaction is open then.
func (tx *Tx) TryCommitAsync(done func(error)) error { return tx.commitAsync(false, done) }

func (tx *Tx) commitAsync(wait bool, done func(error)) (err error) {
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
	if soonest := tx.soonest; soonest != 0 { // by then it can be found
		db, then := tx.db, done
		done = func(err error) {
			db.expires(soonest)
			if then != nil {
				then(err)
			}
		}
	}
	err = tx.inner.CommitAsync(wait, publicly(done))
	if !errors.Is(err, ErrBacklog) {
		tx.finish()
		tx.committed(err)
	}
	return public(err)
}

// publicly has done get the errors that others get. There may be no done.
func publicly(done func(error)) func(error) {
	if done == nil {
		return func(error) {}
	}
	return func(err error) { done(public(err)) }
}

// PutAsync sets the value of key in a transaction of its own, as Put does, and copies both. It returns and calls done as Tx.CommitAsync
// does.
func (db *DB) PutAsync(key, value []byte, done func(error)) error {
	if err := checkSizes(key, value); err != nil {
		return err
	}
	return db.writeAsync(key, value, false, done)
}

// DeleteAsync removes key in a transaction of its own, as Delete does. It returns and calls done as Tx.CommitAsync does.
func (db *DB) DeleteAsync(key []byte, done func(error)) error {
	if err := checkSizes(key, nil); err != nil {
		return err
	}
	return db.writeAsync(key, nil, true, done)
}

func (db *DB) writeAsync(key, value []byte, remove bool, done func(error)) (err error) {
	if db.beside != nil {
		return ErrReadOnly
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(db.engine, &err)
	if keyspace.Shifted(key) || db.expiry.begins(value) {
		return writeShifted(db, key, value, remove, done)
	}
	db.goOnDropping()
	db.expires(0)
	return public(db.engine.WriteOneAsync(key, value, remove, true, publicly(done)))
}

// writeShifted is writeAsync of a key or a value that may be another one in the tree by the time it is written: then it is tried again.
func writeShifted(db *DB, key, value []byte, remove bool, done func(error)) error {
	for {
		tx, err := db.Begin(TxOptions{})
		if err != nil {
			return err
		}
		if err = writeOne(tx, key, value, remove); err == nil {
			err = tx.CommitAsync(done)
		}
		if !errors.Is(err, ErrConflict) {
			return errors.Join(err, tx.Rollback())
		}
	}
}

// CommitAsync is Commit for who does not wait for the device: see Tx.CommitAsync for when it returns and done is called. After nil the batch is
// empty and may be filled again, before done is called too.
func (b *Batch) CommitAsync(done func(error)) error {
	if b.times {
		if err := b.db.EnableExpiry(); err != nil {
			return err
		}
	}
	tx, err := b.db.Begin(TxOptions{})
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing once it is over
	if err := b.write(tx); err != nil {
		return err
	}
	if err := tx.CommitAsync(done); err != nil {
		return err
	}
	b.Reset()
	return nil
}

// ErrBacklog is what TryCommitAsync returns while too many commits are under way.
var ErrBacklog = mvcc.ErrBacklog
