package dbm

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"

	"flashdbm/mvcc"
)

// View runs fn in a read-only transaction.
func (db *DB) View(fn func(*Tx) error) error { return db.ViewContext(context.Background(), fn) }

// ViewContext is View; a context that has ended keeps fn from starting, and ends the iterators of its transaction.
func (db *DB) ViewContext(ctx context.Context, fn func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	o := TxOptions{ReadOnly: true}
	inner, err := db.begin(mvcc.TxOptions(o))
	if err != nil {
		return public(err)
	}
	tx := newTx(db, inner, o, true)
	tx.ctx = ctx
	return tx.view(fn)
}

// view runs fn in a read-only transaction and ends it.
func (tx *Tx) view(fn func(*Tx) error) error {
	_, err := tx.run(context.Background(), fn, false)
	return err
}

// Update runs fn in a transaction and commits it, again after a conflict: fn may run more than once and should have no other effects.
// It always ends; after losing many times, mostly alone, it returns ErrConflict. If fn returns an error, nothing is applied. For ErrNoExpiry see
// Tx.PutTTL.
func (db *DB) Update(fn func(*Tx) error) error {
	return db.UpdateContext(context.Background(), TxOptions{}, fn)
}

// UpdateContext is Update with options. The context counts until the commit is resolved: from then on it is carried through.
func (db *DB) UpdateContext(ctx context.Context, opts TxOptions, fn func(*Tx) error) error {
	if db.beside != nil {
		return ErrReadOnly
	}
	wantsTimes, err := update(db, ctx, opts, fn)
	if wantsTimes && errors.Is(err, ErrNoExpiry) {
		if err := db.EnableExpiry(); err != nil {
			return err
		}
		_, err = update(db, ctx, opts, fn)
	}
	return err
}

// update is UpdateContext. wantsTimes is true if fn would have put records that expire into a database that has none.
func update(db *DB, ctx context.Context, opts TxOptions, fn func(*Tx) error) (wantsTimes bool, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	err = db.engine.Retry(ctx, mvcc.TxOptions(opts), func(inner *mvcc.Tx) (lost bool, err error) {
		tx := newTx(db, inner, opts, true)
		tx.ctx = ctx
		lost, err = tx.run(ctx, fn, true)
		wantsTimes = tx.wantsTimes
		return lost, err
	})
	return wantsTimes, public(err)
}

// run calls fn and ends the transaction, whatever fn does: it is committed, if that is wanted, unless fn or the context say otherwise.
func (tx *Tx) run(ctx context.Context, fn func(*Tx) error, commit bool) (lost bool, err error) {
	ended := false
	defer func() {
		if !ended { // fn panicked, or left by runtime.Goexit
			tx.rollback()
		}
	}()
	if err = ctx.Err(); err == nil {
		err = tx.call(fn)
	}
	if err == nil {
		err = tx.err
	}
	if err == nil {
		err = ctx.Err()
	}
	ended = true
	switch {
	case err != nil:
		tx.rollback()
		return false, err
	case !commit:
		return false, tx.rollback()
	}
	err = tx.commit()
	return errors.Is(err, mvcc.ErrConflict), err
}

// call runs fn; a fault on the mapping under it becomes an error.
func (tx *Tx) call(fn func(*Tx) error) (err error) {
	defer guard(tx.db.engine, &err)
	return fn(tx)
}

// Begin starts a transaction, which the caller ends by Commit or Rollback. One that is dropped is rolled back when the collector finds
// it; until then it keeps old versions alive, and Close waits for it. A fault on the mapping (the file was cut short by somebody)
// panics in transactions from Begin, unless the caller has set debug.SetPanicOnFault and recovers; View and Update turn it into an error.
func (db *DB) Begin(opts TxOptions) (*Tx, error) {
	inner, err := db.begin(mvcc.TxOptions(opts))
	if err != nil {
		return nil, public(err)
	}
	tx := newTx(db, inner, opts, false)
	tx.onDrop()
	return tx, nil
}

// onDrop has the transaction rolled back if it is dropped and never ended.
func (tx *Tx) onDrop() {
	tx.cleanup = runtime.AddCleanup(tx, func(inner *mvcc.Tx) { inner.Rollback() }, tx.inner)
}
