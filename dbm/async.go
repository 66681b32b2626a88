package dbm

import (
	"errors"
	"runtime/debug"

	"flashdbm/internal/keyspace"
	"flashdbm/mvcc"
)

// CommitAsync commits without waiting for the device. It returns nil as soon as the transaction can no longer lose
// a conflict. Later it calls done, from another goroutine: with nil once the commit survives a power cut, whatever
// the Durability, or with an error that wraps ErrFailed. In both cases the transaction has ended when CommitAsync
// returns. Durability decides when other transactions see the commit: with Durable, new Updates see it soon, and a
// View sees it once it is durable.
//
// If CommitAsync returns an error (ErrConflict, ErrFull, or any other error of Commit), nothing was applied and
// done is not called.
//
// Calls of done come one at a time, in the order of the commits. The exception is a transaction too large for
// memory: its call comes when its commit has ended, out of order. done must not block, because the calls of all
// other commits wait for it to return. done may begin transactions and end them by TryCommitAsync. It should not
// use Commit, which makes all calls wait for the device, and must not use CommitAsync, which can wait for a call
// of done that itself waits for this one. Close waits until all calls have returned, so done must not call
// Close.
//
// At most 16,384 commits may be under way, that is, with their done not called yet. Beyond that number
// CommitAsync waits until done has been called for the oldest.
//
// done may be nil; DB.Sync then tells whether all commits that have returned survive a power cut.
func (tx *Tx) CommitAsync(done func(error)) error { return tx.commitAsync(true, done) }

// TryCommitAsync is CommitAsync, except that it never waits for another commit: where CommitAsync would,
// TryCommitAsync returns ErrBacklog and leaves the transaction open.
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
	if soonest := tx.soonest; soonest != 0 { // from here on a search of the index finds the record
		db, then := tx.db, done
		done = func(err error) {
			db.expires(soonest)
			if then != nil {
				then(err)
			}
		}
	}
	err = tx.inner.CommitAsync(wait, orNothing(done))
	if !errors.Is(err, ErrBacklog) {
		tx.finish()
		tx.committed(err)
	}
	return public(err)
}

// orNothing returns done, or, for nil, a function that does nothing.
func orNothing(done func(error)) func(error) {
	if done == nil {
		return func(error) {}
	}
	return done
}

// PutAsync sets the value of key in a transaction of its own. It copies key and value. When it returns, and when it
// calls done, is described at Tx.CommitAsync.
func (db *DB) PutAsync(key, value []byte, done func(error)) error {
	if err := checkSizes(key, value); err != nil {
		return err
	}
	return db.writeAsync(key, value, false, done)
}

// DeleteAsync removes key in a transaction of its own. When it returns, and when it calls done, is described at
// Tx.CommitAsync.
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
	return public(db.engine.WriteOneAsync(key, value, remove, true, orNothing(done)))
}

// writeShifted is writeAsync for a key or a value whose stored form depends on the snapshot: the key begins with
// FF, or the value begins with the stamp. If EnableKeyspaces or EnableExpiry changes that form before the commit,
// the commit conflicts, and writeShifted tries again.
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

// CommitAsync applies the batch in one transaction without waiting for the device. When it returns, and when it
// calls done, is described at Tx.CommitAsync. If it returns nil, the batch is empty and may be filled again, even
// before done is called.
func (b *Batch) CommitAsync(done func(error)) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(b.db.engine, &err) // a range is read
	if b.times {
		if err := b.db.EnableExpiry(); err != nil {
			return err
		}
	}
	tx, err := b.db.Begin(TxOptions{})
	if err != nil {
		return err
	}
	defer tx.Rollback() // a no-op after CommitAsync has ended the transaction
	if err := b.write(tx); err != nil {
		return err
	}
	if err := tx.CommitAsync(done); err != nil {
		return err
	}
	b.Reset()
	return nil
}

// ErrBacklog is returned by TryCommitAsync while 16,384 commits are under way.
var ErrBacklog = mvcc.ErrBacklog
