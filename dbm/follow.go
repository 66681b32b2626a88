package dbm

import (
	"context"
	"errors"
	"io"
	"time"
)

// Follow tells apply of what is committed from the moment of a token on: as increments, as BackupSince writes them, each from where the
// one before ended, and as soon as there is more, but not sooner than every after the last. It returns when ctx ends, or with the first error
// of apply or of BackupSince.
//
// Each increment brings a copy from one moment between two commits to a later one, in the order of commits; what came between the two is
// in it as far as it is still so at its end. The next one is not begun before apply has returned, so a slow apply makes increments larger,
// not more: nothing is held back but the snapshot of the increment at hand. Who follows again from the last token that was applied misses nothing,
// and may get some of it twice, which changes nothing.
//
// apply reads the increment to its end, or returns an error, and keeps the token once what it has read is safe: for example by ApplyBackup.
func (db *DB) Follow(ctx context.Context, since Token, every time.Duration, apply func(token Token, increment io.Reader) error) error {
	for {
		begun := time.Now()
		now, err := db.moment()
		if err == nil && now != since {
			if since, err = db.followOnce(ctx, since, apply); errors.Is(err, ErrSnapshotTooOld) {
				err = nil // the writer was too fast for a reader beside it: again, from the same token
			}
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

// moment returns the token that a backup would return now.
func (db *DB) moment() (Token, error) {
	tx, token, err := db.readAt()
	if err != nil {
		return Token{}, public(err)
	}
	return token, public(tx.Rollback())
}

// followOnce hands one increment to apply, and returns the token of its end, or since after an error.
func (db *DB) followOnce(ctx context.Context, since Token, apply func(Token, io.Reader) error) (token Token, err error) {
	r, w := io.Pipe()
	type written struct {
		token Token
		err   error
	}
	done := make(chan written, 1)
	go func() {
		token, err := db.BackupSince(ctx, since, w)
		w.CloseWithError(err)
		done <- written{token, err}
	}()
	err = apply(since, r)
	r.CloseWithError(errFollowEnded)
	end := <-done
	switch {
	case end.err != nil && !errors.Is(end.err, errFollowEnded):
		return since, end.err
	case err != nil:
		return since, err
	case end.err != nil:
		return since, errors.New("flashdbm: Follow: an increment was not read to its end")
	}
	return end.token, nil
}

var errFollowEnded = errors.New("flashdbm: nobody reads the increment any more")
