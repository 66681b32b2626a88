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
// Readers and writers go on meanwhile. Backup reads the tree twice, the first time without values; large values are
// read once more. Like any open transaction it keeps its snapshot: the file grows by what is overwritten meanwhile,
// and MaxSnapshotAge or a full file ends the backup with ErrSnapshotTooOld.
//
// Backup returns a token for the moment of the snapshot, to be passed to BackupSince. All that the backup contains
// is durable in the database when Backup returns.
//
// If w has a method Expect(bytes int64), it is called with the length of the backup before the first Write. After
// an error, what was written to w is useless, and Restore refuses it. Errors: those of ctx and w, unchanged;
// ErrClosed, ErrSnapshotTooOld, ErrCorrupt.
func (db *DB) Backup(ctx context.Context, w io.Writer) (token Token, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
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

// inSteps has the device take a backup in steps if it goes straight to a file: see vfs.InSteps.
func inSteps(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok {
		return vfs.InSteps(f)
	}
	return w
}

// flushMuch flushes if that writes more than half of the database. A page that is flushed behind a token counts as
// changed since, where increments are found by the pages: always in some modes, else once the database was opened anew.
// Then it is done for full backups only, as increments may come several a second, and not while commits are under way,
// which would wait for it. Without this the first increment behind a load had the whole database once more: 55 MB for 100
// changes. An error does not matter here: the backup can do without, and a failed handle returns its own error.
func flushMuch(db *DB, full bool) {
	if db.beside != nil || db.engine.ReadOnly() || mvcc.KeepsChangedKeys(db.engine) && (!full || mvcc.Commits(db.engine)) {
		return
	}
	if s := db.Stats(); 2*max(s.DirtyBytes, s.RedoBytes) > s.LiveBytes {
		_ = db.Checkpoint()
	}
}

// beginBackup has the engine that writes, if there is one, make way for a backup until end is called.
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
