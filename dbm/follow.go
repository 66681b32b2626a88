package dbm

import (
	"cmp"
	"context"
	"errors"
	"io"
	"runtime/debug"
	"time"

	"flashdbm/internal/backup"
	"flashdbm/mvcc"
)

// Follow passes on all commits after the moment of a token, as increments. It looks for new commits at intervals
// of every. If there are any, it calls apply with one increment, which begins where the previous one ended. Follow
// returns when ctx ends, or with the first error of apply or of reading.
//
// apply gets the token of the moment at which the increment begins, for the argument have of ApplyBackup. It must
// read the increment to its end, or return an error. Once the applied increment is durable, apply should store the
// token that ApplyBackup returned: a later Follow from that token misses nothing. A Follow from an older token
// delivers some commits twice, which is harmless.
//
// An increment takes a copy from one moment between two commits to a later such moment, and contains the records
// that differ between the two. The first increment is like one of BackupSince: it fits a copy of any moment
// between its two ends. A later one may fit only copies of exactly its first or its last moment, so increments
// must be applied one after the other.
//
// The next increment is not begun before apply has returned, so a slow apply makes increments larger, not more
// numerous. Between two increments Follow holds one snapshot, that of the copy's moment, for at most ten seconds;
// after a longer pause the next increment is like one of BackupSince again.
func (db *DB) Follow(ctx context.Context, since Token, every time.Duration, apply func(token Token, increment io.Reader) error) error {
	f := &following{db: db, since: since, apply: apply}
	defer f.forget()
	for again := false; ; {
		begun := time.Now()
		err := f.round(ctx)
		if errors.Is(err, ErrSnapshotTooOld) && ctx.Err() == nil {
			err = nil // try again without the held snapshot: the writer has reused the pages that this reader needed
			if again = !again; again {
				continue
			}
		} else {
			again = false
		}
		if err == nil {
			err = pause(ctx, every-time.Since(begun))
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(d, time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// following is the state of a Follow.
type following struct {
	db    *DB
	since Token // the moment whose state the copy has
	apply func(Token, io.Reader) error

	moment mvcc.Moment // the snapshot of the last increment; used beside a writer only

	base *mvcc.Tx    // a transaction at the moment since; nil if there is none, or if it was held for too long
	held *time.Timer // ends base after followHeld
}

// followHeld is how long a snapshot is held for the next increment. A larger value keeps space from being reused
// for longer; a smaller one makes more increments come from the pages of the tree, which are larger.
const followHeld = 10 * time.Second

// keep holds the snapshot of tx, which the copy now has, for the next increment, and ends it after followHeld.
func (f *following) keep(tx *mvcc.Tx) {
	f.base = tx
	f.held = time.AfterFunc(followHeld, func() { tx.Rollback() })
}

// take returns the held transaction, nil if there is none.
func (f *following) take() (base *mvcc.Tx) {
	if f.base != nil && f.held.Stop() {
		base = f.base
	}
	f.base = nil
	return base
}

func (f *following) forget() { end(f.take()) }

// end rolls a transaction back; nil is none.
func end(tx *mvcc.Tx) {
	if tx != nil {
		tx.Rollback()
	}
}

// round calls apply with one increment if anything was committed.
func (f *following) round(ctx context.Context) (err error) {
	tx, now, err := f.db.readAt()
	if err != nil {
		return public(err)
	}
	defer func() {
		if tx != nil { // tx was not kept, perhaps because apply panicked
			err = cmp.Or(err, public(tx.Rollback()))
		}
	}()
	moment := tx.Moment()
	if now == f.since && (f.db.beside == nil || moment == f.moment) {
		return nil
	}
	base := f.take()
	defer end(base)
	against := base
	if base != nil && base.Expired() != nil { // its snapshot is lost
		against = nil
	}
	if err := f.increment(ctx, against, tx, now); err != nil {
		return err
	}
	f.since, f.moment = now, moment
	if f.db.beside == nil { // beside a writer the log tells what has changed: see mvcc/feed.go
		f.keep(tx)
		tx = nil
	}
	return nil
}

// increment writes the increment from since to the snapshot of tx, whose token is now, and makes apply read it. The
// goroutine that writes it has ended when increment returns, or apply panics: nobody uses base and tx any more.
func (f *following) increment(ctx context.Context, base, tx *mvcc.Tx, now Token) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // writeChanges turns a fault on the mapping into an error
		err := public(writeChanges(ctx, base, tx, f.since, now, w))
		w.CloseWithError(err)
		written <- err
	}()
	err, werr := error(nil), error(nil)
	func() {
		defer func() {
			r.CloseWithError(errFollowEnded)
			werr = <-written
		}()
		err = f.apply(f.since, r)
	}()
	switch {
	case werr != nil && !errors.Is(werr, errFollowEnded):
		return werr
	case err != nil:
		return err
	case werr != nil:
		return errors.New("flashdbm: Follow: an increment was not read to its end")
	}
	return nil
}

// writeChanges writes the changes from since to the snapshot of tx, whose token is now. If base is not nil, it is a
// transaction at the moment since, and only records that differ between the two are written; otherwise all records
// that the changed pages contain.
func writeChanges(ctx context.Context, base, tx *mvcc.Tx, since, now Token, w io.Writer) error {
	if err := mayFollow(since, now); err != nil {
		return err
	}
	out := backup.NewChanges(w, since.is)
	var sink mvcc.ChangeSink = out
	kind := backup.Increment
	if base != nil {
		old := base.Cursor()
		defer old.Release()
		sink, kind = &differenceSink{to: out, old: old}, backup.Difference
	}
	if err := tx.Changes(ctx, since.is.Group, base, sink); err != nil {
		return err
	}
	return out.Finish(kind, now.is)
}

var errFollowEnded = errors.New("flashdbm: nobody reads the increment any more")
