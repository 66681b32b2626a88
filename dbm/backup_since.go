package dbm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime/debug"

	"flashdbm/internal/backup"
	"flashdbm/mvcc"
)

// BackupSince writes an increment to w: what has changed since the moment that a token of Backup or of BackupSince names. It is as of the
// moment of the call, and returns the token of that. Restore applies it behind the backup that the token is of, or one after it.
//
// What has changed is found by the pages of the tree. A record that changed brings the other records of its leaf along, 4 KiB of them at most,
// but of values of 256 bytes and more only those that changed themselves, or that the database has moved to make room. It reads all
// leaves. Otherwise it is as Backup.
//
// ErrToken: the token is of another database, or of a later moment than the database has, as after the file was replaced by an older copy.
func (db *DB) BackupSince(ctx context.Context, since Token, w io.Writer) (token Token, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
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

// mayFollow returns an error unless what has changed since a token up to another one can be told.
func mayFollow(since, now Token) error {
	switch {
	case since.is.Source != now.is.Source:
		return fmt.Errorf("%w: it is of another database than this one: take a full backup", ErrToken)
	case since.is.Group > now.is.Group:
		return fmt.Errorf("%w: it is of a later moment than this database has: was the file replaced by an older copy? Take a full backup", ErrToken)
	}
	return nil
}

// ApplyBackup applies an increment that BackupSince has written to a copy of the database that it is of, in one transaction, all or nothing,
// and returns the token of the state that the copy has then. have is the token of the state that it has: the one of the backup that it was
// restored of, or of the increment applied last. A copy that anybody else has written to is not a copy any more.
//
// ErrToken: the increment is of another database, begins after have, or is not newer; or it is one of Follow and begins before have. ErrBackup: it is not whole, or does not fit the copy.
func (db *DB) ApplyBackup(ctx context.Context, have Token, r io.Reader) (token Token, err error) {
	pr, pw := io.Pipe()
	ended := make(chan backup.End, 1)
	go func() {
		end, err := backup.Copy(ctx, pw, r)
		if err == nil && end.Kind == backup.Full {
			err = fmt.Errorf("%w: it is a full backup, not an increment", ErrBackup)
		}
		pw.CloseWithError(err)
		ended <- end
	}()
	defer pr.Close()
	tx, err := db.Begin(TxOptions{})
	if err != nil {
		return have, err
	}
	defer tx.Rollback()
	tx.quiet = true
	a := &applying{tx: tx.whole(), have: have}
	if err := backup.ReadChanges(pr, a); err != nil {
		pr.CloseWithError(err)
		<-ended
		return have, err
	}
	mark := <-ended
	token = Token{mark.Token}
	if mark.Kind == backup.Difference && a.base != have.is && mark.Token != have.is {
		return have, fmt.Errorf("%w: the increment is of another moment than what is there: those of one Follow are applied one after the other", ErrToken)
	}
	if token.is.Source != have.is.Source || token.is.Group < have.is.Group {
		return have, fmt.Errorf("%w: the increment is older than what is there", ErrToken)
	}
	s, known := stampOf(a.form)
	switch {
	case a.form == nil:
	case !known:
		return have, fmt.Errorf("%w: keyspaces of form %x: use a newer flashdbm", ErrFormat, a.form)
	default: // before it has the mark, as if it was made so
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

// applying is the target of an increment.
type applying struct {
	tx   *Tx
	have Token
	base backup.Token // that the increment begins at
	c    *Cursor
	on   bool // c is on a record
	buf  bytes.Buffer

	form []byte // value of the mark of keyspaces, nil if the increment has none
}

// Base compares the moment that the increment begins at with the one that is there. It may be an earlier one: what has changed since that is
// then replaced by what it has come to.
func (a *applying) Base(base backup.Token) error {
	a.base = base
	switch {
	case base.Source != a.have.is.Source:
		return fmt.Errorf("%w: the increment is of another database", ErrToken)
	case base.Group > a.have.is.Group:
		return fmt.Errorf("%w: the increment begins after what is there: apply the one before it first", ErrToken)
	}
	return nil
}

// Begin goes to the first record of an interval.
func (a *applying) Begin(low []byte) error {
	a.c = a.tx.Cursor()
	if low == nil {
		a.on = a.c.First()
	} else if a.on = a.c.Seek(low); a.on && bytes.Equal(a.c.Key(), low) {
		a.on = a.c.Next()
	}
	return a.c.Err()
}

// upTo deletes records below a key, nil for all that follow, and reports whether there is one with that key.
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

// Put is of backup.ChangeTarget.
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
			return nil // cut short, as the reader finds
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

// Keep is of backup.ChangeTarget.
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

// End is of backup.ChangeTarget.
func (a *applying) End(high []byte) error {
	_, err := a.upTo(high)
	return err
}
