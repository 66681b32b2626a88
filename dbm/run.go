package dbm

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"

	"flashdbm/mvcc"
)

// View runs fn in a read-only transaction, and returns fn's error, or the transaction's: see Tx.Err.
func (db *DB) View(fn func(*Tx) error) error { return viewContext(db, nil, fn) }

// ViewContext is View with a context: if ctx has ended, fn is not started, and iterators of the transaction end.
func (db *DB) ViewContext(ctx context.Context, fn func(*Tx) error) error {
	return viewContext(db, notNil(ctx), fn)
}

// viewContext is ViewContext; ctx is nil for none.
func viewContext(db *DB, ctx context.Context, fn func(*Tx) error) error {
	if err := ended(ctx); err != nil {
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

// view runs fn in a read-only transaction and ends the transaction.
func (tx *Tx) view(fn func(*Tx) error) error {
	_, err := tx.run(nil, fn, false)
	return err
}

// Update runs fn in a transaction and commits it. After a conflict it runs fn again in a new transaction, so fn may
// run more than once and should have no other effects. Update always ends: after three conflicts it makes the
// commits of others wait while it tries, and after eight more it returns ErrConflict. If fn returns an error,
// nothing is applied and Update returns the error. For ErrNoExpiry see Tx.PutTTL.
func (db *DB) Update(fn func(*Tx) error) error {
	return updateWithTimes(db, nil, TxOptions{}, fn)
}

// UpdateContext is Update with options and a context. The context can end the transaction until its commit is
// resolved; from then on the commit is carried through.
func (db *DB) UpdateContext(ctx context.Context, opts TxOptions, fn func(*Tx) error) error {
	return updateWithTimes(db, notNil(ctx), opts, fn)
}

// updateWithTimes is UpdateContext; ctx is nil for none.
func updateWithTimes(db *DB, ctx context.Context, opts TxOptions, fn func(*Tx) error) error {
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

// update is updateWithTimes, once. wantsTimes reports that fn tried to put a record that expires into a database
// without a stamp: see EnableExpiry.
func update(db *DB, ctx context.Context, opts TxOptions, fn func(*Tx) error) (wantsTimes bool, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	err = db.engine.Retry(ctx, mvcc.TxOptions(opts), func(inner *mvcc.Tx) (lost bool, err error) {
		tx := updateTx(db, inner, opts)
		tx.ctx = ctx
		lost, err = tx.run(ctx, fn, true)
		wantsTimes = tx.wantsTimes
		tx.cut()
		return lost, err
	})
	return wantsTimes, public(err)
}

// run calls fn and ends the transaction, even if fn panics or calls runtime.Goexit. It commits if commit is set and
// neither fn, nor the transaction, nor ctx has an error; ctx is nil for none. lost reports a conflict. A memory
// fault on the mapping, in fn or in the commit, becomes an error.
func (tx *Tx) run(ctx context.Context, fn func(*Tx) error, commit bool) (lost bool, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		r := recover() // nil if fn called runtime.Goexit
		if !tx.done {
			tx.rollback()
		}
		if r != nil {
			lost, err = false, failed(tx.db.engine, r)
		}
	}()
	if err = ended(ctx); err == nil {
		err = fn(tx)
	}
	if err == nil {
		err = tx.err
	}
	if err == nil {
		err = ended(ctx)
	}
	switch {
	case err != nil:
		tx.rollback()
	case !commit:
		err = tx.rollback()
	default:
		err = tx.commit()
		lost = err != nil && errors.Is(err, mvcc.ErrConflict)
	}
	returned = true
	return lost, err
}

// notNil returns the context that a user has passed, and panics if it is nil.
// Within this package nil means no context.
func notNil(ctx context.Context) context.Context {
	if ctx == nil {
		panic("flashdbm: nil context")
	}
	return ctx
}

// ended returns the error of a context that has ended; ctx is nil for none.
func ended(ctx context.Context) error {
	if ctx == nil {
		return nil
	}
	return ctx.Err()
}

// Begin starts a transaction, which the caller must end by Commit or Rollback. A transaction that becomes
// unreachable without having been ended is rolled back when the garbage collector finds it; until then it keeps old
// versions alive, and Close waits for it. If the file is truncated by another program, reading the mapping causes a
// memory fault. View and Update turn the fault into an error; in transactions from Begin it ends the process, or
// panics if the caller has set debug.SetPanicOnFault.
func (db *DB) Begin(opts TxOptions) (*Tx, error) {
	inner, err := db.begin(mvcc.TxOptions(opts))
	if err != nil {
		return nil, public(err)
	}
	tx := newTx(db, inner, opts, false)
	tx.onDrop()
	return tx, nil
}

// onDrop makes the garbage collector roll the transaction back if it becomes unreachable without
// having been ended.
func (tx *Tx) onDrop() {
	tx.cleanup = runtime.AddCleanup(tx, func(inner *mvcc.Tx) { inner.Rollback() }, tx.inner)
}
