package dbm

import (
	"context"
	"errors"
	"io"
	"time"

	"flashdbm/internal/backup"
	"flashdbm/mvcc"
)

// Follow tells apply of what is committed from the moment of a token on: as increments, each from where the one before ended, and as soon as there
// is more, but not sooner than every after the last. It returns when ctx ends, or with the first error of apply or of reading.
//
// Each increment brings a copy from one moment between two commits to a later one, in the order of commits, and holds the records that differ between
// the two. The first one is as BackupSince writes it: it fits a copy of any moment between its ends. Those that follow fit a copy of their first or
// their last moment, so they are applied one after the other.
//
// The next one is not begun before apply has returned, so a slow apply makes increments larger, not more. What is held back for it is one snapshot, that of
// the moment that the copy has, for ten seconds at most: after a longer pause an increment is one as BackupSince writes it again. Who follows again from the
// last token that was applied misses nothing, and may get some of it twice, which changes nothing.
//
// apply reads the increment to its end, or returns an error, and keeps the token once what it has read is safe: for example by ApplyBackup.
func (db *DB) Follow(ctx context.Context, since Token, every time.Duration, apply func(token Token, increment io.Reader) error) error {
	f := &following{db: db, since: since, apply: apply}
	defer f.forget()
	for again := false; ; {
		begun := time.Now()
		err := f.round(ctx)
		if errors.Is(err, ErrSnapshotTooOld) && ctx.Err() == nil {
			err = nil // again, from the same token and without a snapshot of that: the writer was too fast for a reader beside it
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

// following is what Follow has come to.
type following struct {
	db    *DB
	since Token // of the last increment that was applied, or where it began
	apply func(Token, io.Reader) error

	moment mvcc.Moment // of the last increment, beside a writer

	base *mvcc.Tx    // has what the copy has: of since; nil if that is not known, or was held for too long
	held *time.Timer // ends base
}

// followHeld is for how long a snapshot is held for the next increment.
const followHeld = 10 * time.Second

// keep has the snapshot of a transaction be that of the copy, and ends it if it is not taken in time.
func (f *following) keep(tx *mvcc.Tx) {
	f.base = tx
	f.held = time.AfterFunc(followHeld, func() { tx.Rollback() })
}

// take returns the transaction with what the copy has, nil if there is none.
func (f *following) take() (base *mvcc.Tx) {
	if f.base != nil && f.held.Stop() {
		base = f.base
	}
	f.base = nil
	return base
}

func (f *following) forget() { end(f.take()) }

// end ends a transaction; nil is none.
func end(tx *mvcc.Tx) {
	if tx != nil {
		tx.Rollback()
	}
}

// round hands one increment to apply if anything was committed.
func (f *following) round(ctx context.Context) error {
	tx, now, err := f.db.readAt()
	if err != nil {
		return public(err)
	}
	moment := tx.Moment()
	if now == f.since && (f.db.beside == nil || moment == f.moment) {
		return public(tx.Rollback())
	}
	base := f.take()
	defer end(base)
	against := base
	if base != nil && base.Expired() != nil { // what it sees could not be kept
		against = nil
	}
	if err := f.increment(ctx, against, tx, now); err != nil {
		tx.Rollback()
		return err
	}
	f.since, f.moment = now, moment
	if f.db.beside == nil {
		f.keep(tx)
		return nil
	}
	return public(tx.Rollback()) // beside a writer the log tells what changes: see mvcc/feed.go
}

// increment has apply read the increment that ends with the snapshot of a transaction, whose token is now.
func (f *following) increment(ctx context.Context, base, tx *mvcc.Tx, now Token) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := public(writeChanges(ctx, base, tx, f.since, now, w))
		w.CloseWithError(err)
		written <- err
	}()
	err := f.apply(f.since, r)
	r.CloseWithError(errFollowEnded)
	werr := <-written
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

// writeChanges writes what has changed since a token up to the snapshot of a transaction, whose token is now: of base, a transaction with the snapshot
// that the copy has, only what differs from that; without one, nil, all that pages tell.
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
