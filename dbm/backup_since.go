package dbm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"flashdbm/internal/backup"
	"flashdbm/mvcc"
)

// BackupSince writes an increment to w: the changes between the moment that the token since names and the moment
// of the call. since is a result of Backup or BackupSince. BackupSince returns the token of the moment of the
// call. Restore applies the increment to the backup that since belongs to, or to any later state of the same
// database up to the new token.
//
// After its first backup, the handle that writes keeps the keys of its commits in memory, at most a 16th of MemoryLimit,
// unless its mode is WriteThrough. If the kept keys reach back to since, the increment contains only the changed
// records. Otherwise, for example after an open or a load, BackupSince finds changes by the pages of the tree and reads
// all leaves. The increment then contains, with each changed record, the other records of its leaf, at most 4 KiB of
// them. A value of 256 bytes or more is written only if it changed or if the database moved it to make room. In all
// other respects BackupSince is like Backup.
//
// ErrToken: since belongs to another database, or names a moment that the database has not reached, for example
// because the file was replaced by an older copy.
func (db *DB) BackupSince(ctx context.Context, since Token, w io.Writer) (token Token, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if err := ctx.Err(); err != nil { // where nothing has changed, nobody looks at it again
		return Token{}, err
	}
	flushMuch(db, false)
	defer db.beginBackup()()
	tx, token, err := db.readAt()
	if err != nil {
		return Token{}, public(err)
	}
	defer tx.Rollback()
	if err := writeChanges(ctx, nil, tx, since, token, w); err != nil {
		return Token{}, public(err)
	}
	return token, nil
}

// mayFollow returns an error unless the changes between the tokens since and now
// can be determined.
func mayFollow(since, now Token) error {
	switch {
	case since.is.Source != now.is.Source:
		return fmt.Errorf("%w: it is of another database than this one: take a full backup", ErrToken)
	case since.is.Group > now.is.Group:
		return fmt.Errorf("%w: it is of a later moment than this database has: was the file replaced by an older copy? Take a full backup", ErrToken)
	}
	return nil
}

// ApplyBackup applies an increment to a copy of the database, in one transaction, all or nothing, and returns the
// token of the state that the copy then has. The increment comes from BackupSince or Follow. have is the token of
// the copy's present state: the token of the backup that the copy was restored from, or the one that the last
// ApplyBackup returned. Nothing else may write to a copy: after any other write increments no longer fit it.
//
// ErrToken: the increment is of another database, begins after have, or is older than have; or it is an increment
// of Follow that fits only its own two moments, and have is neither. ErrBackup: the increment is not whole, or does
// not fit the copy. r is read on the calling goroutine.
func (db *DB) ApplyBackup(ctx context.Context, have Token, r io.Reader) (token Token, err error) {
	tx, err := db.Begin(TxOptions{})
	if err != nil {
		return have, err
	}
	defer tx.Rollback()
	tx.quiet = true
	a := &applying{tx: tx.whole(), have: have}
	mark, err := a.all(ctx, r)
	if err != nil {
		return have, err
	}
	token = Token{mark.Token}
	if mark.Kind == backup.Difference && a.base != have.is && mark.Token != have.is {
		return have, fmt.Errorf("%w: the increment does not begin at the state of this database: apply the increments of a Follow one after the other", ErrToken)
	}
	if token.is.Source != have.is.Source || token.is.Group < have.is.Group {
		return have, fmt.Errorf("%w: the increment is older than the state of this database", ErrToken)
	}
	s, known := stampOf(a.form)
	switch {
	case a.form == nil:
	case !known:
		return have, fmt.Errorf("%w: keyspaces of form %x: use a newer flashdbm", ErrFormat, a.form)
	default: // the mark is written before the records, in the order in which the source became a file with keyspaces
		if err := db.maintain(mvcc.SetKeyspaces); err != nil {
			return have, err
		}
		if s != 0 {
			db.expiry.stamp.Store(uint64(s))
		}
	}
	if err := tx.Commit(); err != nil {
		return have, err
	}
	db.expiry.marked(s)
	return token, nil
}

// applying is the backup.ChangeTarget that applies an increment to a copy. The cursor c walks over the records of
// the interval that is being replaced.
type applying struct {
	tx   *Tx
	have Token
	base backup.Token // the moment at which the increment begins
	c    *Cursor
	on   bool // c is at a record
	buf  bytes.Buffer

	form []byte // value of the mark of keyspaces in the increment; nil if the increment has none
}

// all applies the whole increment that r reads, and returns the end mark. The caller's goroutine reads r, so
// that a panic of r reaches the caller. A second goroutine changes the transaction; it has ended when all
// returns or panics.
func (a *applying) all(ctx context.Context, r io.Reader) (end backup.End, err error) {
	pr, pw := io.Pipe()
	applied := make(chan error, 1)
	go func() {
		err := a.changes(pr)
		pr.CloseWithError(err)
		applied <- err
	}()
	failed := errUnread // unless r returns
	defer func() {
		pw.CloseWithError(failed)
		if aerr := <-applied; aerr != nil {
			err = aerr
		}
	}()
	end, failed = backup.Copy(ctx, pw, r)
	if failed == nil && end.Kind == backup.Full {
		failed = fmt.Errorf("%w: it is a full backup, not an increment", ErrBackup)
	}
	return end, failed
}

var errUnread = errors.New("flashdbm: the reader of an increment panicked or called runtime.Goexit")

// changes applies the increment that r reads. A memory fault on the mapping
// becomes an error.
func (a *applying) changes(r io.Reader) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(a.tx.db.engine, &err)
	return backup.ReadChanges(r, a)
}

// Base compares the moment at which the increment begins with the moment that the copy has. The increment may begin
// earlier: it then also replaces records whose newer state the copy has already.
func (a *applying) Base(base backup.Token) error {
	a.base = base
	switch {
	case base.Source != a.have.is.Source:
		return fmt.Errorf("%w: the increment is of another database", ErrToken)
	case base.Group > a.have.is.Group:
		return fmt.Errorf("%w: the increment begins after the state of this database: apply the one before it first", ErrToken)
	}
	return nil
}

// Begin moves the cursor to the first record of an interval, the first one above low.
func (a *applying) Begin(low []byte) error {
	a.c = a.tx.Cursor()
	if low == nil {
		a.on = a.c.First()
	} else if a.on = a.c.Seek(low); a.on && bytes.Equal(a.c.Key(), low) {
		a.on = a.c.Next()
	}
	return a.c.Err()
}

// upTo deletes the copy's records from the cursor's position up to, but not including, key; up to the end if key
// is nil. It reports whether the copy has a record with that key.
func (a *applying) upTo(key []byte) (there bool, err error) {
	for a.on {
		o := -1
		if key != nil {
			o = bytes.Compare(a.c.Key(), key)
		}
		if o >= 0 {
			return o == 0, nil
		}
		if err := a.tx.Delete(a.c.Key()); err != nil {
			return false, err
		}
		a.on = a.c.Next()
	}
	return false, a.c.Err()
}

// Put implements backup.ChangeTarget.
func (a *applying) Put(key []byte, r io.Reader, length int64) error {
	there, err := a.upTo(key)
	if err != nil {
		return err
	}
	if length > 1<<20 {
		err = a.tx.PutReader(key, r, length)
	} else {
		a.buf.Reset()
		if _, err := a.buf.ReadFrom(r); err != nil {
			return err
		}
		if int64(a.buf.Len()) != length {
			return nil // cut short: the reader of the increment returns the error
		}
		if bytes.Equal(key, spaceMark) {
			a.form = bytes.Clone(a.buf.Bytes())
		}
		same := false
		if there {
			old := a.c.Value()
			if err := a.c.Err(); err != nil {
				return err
			}
			same = bytes.Equal(old, a.buf.Bytes())
		}
		if !same {
			err = a.tx.Put(key, a.buf.Bytes())
		}
	}
	if err == nil && there {
		a.on = a.c.Next()
		err = a.c.Err()
	}
	return err
}

// Keep implements backup.ChangeTarget: the record is in the copy already and stays.
func (a *applying) Keep(key []byte) error {
	there, err := a.upTo(key)
	if err == nil && !there {
		err = fmt.Errorf("%w: the database lacks a record that the increment says has not changed: it is not the copy that the increment is for", ErrBackup)
	}
	if err == nil {
		a.on = a.c.Next()
		err = a.c.Err()
	}
	return err
}

// End implements backup.ChangeTarget: the copy's other records below high are deleted.
func (a *applying) End(high []byte) error {
	_, err := a.upTo(high)
	return err
}
