package dbm

import (
	"context"
	"io"
	"runtime/debug"

	"flashdbm/internal/backup"
	"flashdbm/mvcc"
)

// ErrBackup says that what Restore was to read is not a whole backup: it was cut short or changed, or is something else. What it was to
// make is not there.
var ErrBackup = backup.ErrDamaged

// Backup writes a backup of the database to w: all records as of the moment of the call, in a database file of its own that is as compact as
// one into which they were loaded in key order, and behind that an end mark with a checksum of all. It is written from the first byte to
// the last, so w may be a pipe. Restore verifies it and makes a database of it; as it is it is one that Open accepts.
//
// Readers and writers go on meanwhile. It reads the tree twice, the first time without values; and like any open transaction it keeps what
// it sees: the file grows by what is overwritten meanwhile, MaxSnapshotAge and a full file end it with ErrSnapshotTooOld. Large values are
// read once more.
//
// It returns a token of its moment, for BackupSince. What the backup has is durable in the database when it returns.
//
// If w has a method Expect(bytes int64), it is called with the length of the backup before the first Write. What was written to w before
// an error is of no use, and Restore refuses it. Errors: those of ctx and w as they are, ErrClosed, ErrSnapshotTooOld, ErrCorrupt.
func (db *DB) Backup(ctx context.Context, w io.Writer) (token Token, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	tx, token, err := db.readBy(mvcc.ReadNow)
	if err != nil {
		return Token{}, public(err)
	}
	defer tx.Rollback()
	out := backup.NewWriter(w)
	expect := func(bytes int64) {
		if e, ok := w.(interface{ Expect(bytes int64) }); ok {
			e.Expect(bytes + backup.MarkSize)
		}
	}
	if err := tx.WriteImage(ctx, out, expect); err != nil {
		return Token{}, public(err)
	}
	if err := out.End(backup.End{Kind: backup.Full, Token: token.is}); err != nil {
		return Token{}, err
	}
	return token, nil
}

// readAt begins a transaction for an increment.
func (db *DB) readAt() (tx *mvcc.Tx, token Token, err error) { return db.readBy((*mvcc.Engine).ReadAt) }

// readBy begins a transaction for a backup, of an engine that writes by a method of it.
func (db *DB) readBy(begin func(*mvcc.Engine) (*mvcc.Tx, uint64, error)) (tx *mvcc.Tx, token Token, err error) {
	group := uint64(0)
	if db.beside != nil || db.engine.ReadOnly() {
		if tx, err = db.begin(mvcc.TxOptions{ReadOnly: true}); err == nil {
			group = tx.GroupRead()
		}
	} else {
		tx, group, err = begin(db.engine)
	}
	if err != nil {
		return nil, Token{}, err
	}
	return tx, Token{backup.Token{Source: tx.UUID(), Group: group}}, nil
}
