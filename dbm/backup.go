package dbm

import (
	"context"
	"io"
	"os"
	"runtime/debug"

	"flashdbm/internal/backup"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// ErrBackup: the input of Restore or ApplyBackup is not a whole backup. It was cut short, it was changed, or it is
// something else. Nothing was created or applied.
var ErrBackup = backup.ErrDamaged

// Backup writes a full backup to w: all records as of the moment of the call. The backup is a database file of its
// own, as compact as one into which the records were loaded in key order, followed by an end mark with a checksum
// over everything. It is written strictly from the first byte to the last, so w may be a pipe. Restore verifies a
// backup and makes a database of it; Open also accepts the backup as it is.
//
// Readers and writers continue during the backup. Backup reads the tree twice, the first time without values; it
// reads large values a third time. Like any open transaction, Backup holds its snapshot: the file grows by what is
// overwritten in the meantime, and MaxSnapshotAge or a full file ends the backup with ErrSnapshotTooOld.
//
// Backup returns a token that names the moment of the snapshot; pass it to BackupSince. Everything in the backup
// is durable in the database when Backup returns.
//
// If w has a method Expect(bytes int64), it is called with the length of the backup before the first Write. After
// an error, what was written to w is useless, and Restore refuses it. Errors: those of ctx and w, unchanged;
// ErrClosed, ErrSnapshotTooOld, ErrCorrupt.
func (db *DB) Backup(ctx context.Context, w io.Writer) (token Token, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if err := ctx.Err(); err != nil { // in an empty database nobody looks at it again
		return Token{}, err
	}
	flushMuch(db, true)
	defer db.beginBackup()()
	tx, token, err := db.readBy(mvcc.ReadNow)
	if err != nil {
		return Token{}, public(err)
	}
	defer tx.Rollback()
	out := backup.NewWriter(inSteps(w))
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

// inSteps returns a writer that hands a backup to the device in steps if w is a file, and w
// itself otherwise: see vfs.InSteps.
func inSteps(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok {
		return vfs.InSteps(f)
	}
	return w
}

// flushMuch checkpoints the database if more than half of it is dirty. Without this, the first increment after a load
// contained the whole database again, 55 MB for 100 changes: where increments are found by the pages of the tree, a page
// that is flushed after a token counts as changed since the token. Increments are always found so in some modes, and in
// the others after the database has been opened again. In those other modes flushMuch acts only for a full backup,
// because increments may be taken several times a second, and only if no commit is under way, because commits would wait
// for the checkpoint. The error of the checkpoint is ignored: the backup does not need it, and a failed handle reports
// its own error.
func flushMuch(db *DB, full bool) {
	if db.beside != nil || db.engine.ReadOnly() || mvcc.KeepsChangedKeys(db.engine) && (!full || mvcc.Commits(db.engine)) {
		return
	}
	if s := db.Stats(); 2*max(s.DirtyBytes, s.RedoBytes) > s.LiveBytes {
		_ = db.Checkpoint()
	}
}

// beginBackup tells the writing engine, if there is one, that a backup runs until end is called: see
// mvcc.BeginBackup.
func (db *DB) beginBackup() (end func()) {
	if db.beside != nil {
		return func() {}
	}
	return mvcc.BeginBackup(db.engine)
}

// readAt begins a transaction for an incremental backup.
func (db *DB) readAt() (tx *mvcc.Tx, token Token, err error) { return db.readBy((*mvcc.Engine).ReadAt) }

// readBy begins a read-only transaction for a backup, and returns the token of its snapshot. An engine that writes
// begins it by the given method; beside a writer, and in a read-only database, it is an ordinary read-only
// transaction.
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
