package dbm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"flashdbm/internal/backup"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// Restore makes a new database file at path of a backup that DB.Backup has written, and of any number of increments that DB.BackupSince has
// written since, in their order: each from the token of the one before, or of an earlier one. The file is there, whole and synced, exactly if Restore
// returns no error. It never takes the place of another file: fs.ErrExist. Before that it is a file beside path, whose name begins with
// that of path and ".restore-", which Open refuses and which is removed at an error; only a kill leaves it behind, and it may be removed then.
//
// It returns the token of the state that the database has: see ApplyBackup.
//
// ErrBackup: what was read is not a whole backup, or is of the other kind. ErrToken: an increment does not fit what is before it. Other errors
// are those of ctx, of the readers and of the system.
func Restore(ctx context.Context, path string, full io.Reader, increments ...io.Reader) (token Token, err error) {
	if _, err := os.Lstat(path); err == nil {
		return Token{}, existsError(path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".restore-*")
	if err != nil {
		return Token{}, fmt.Errorf("flashdbm: restore: %w", err)
	}
	defer func() { // also of a name that was given up for that of path
		f.Close()
		os.Remove(f.Name())
	}()
	w := &restoreWriter{f: f}
	end, err := backup.Copy(ctx, w, full)
	if err != nil {
		return Token{}, err
	}
	if end.Kind != backup.Full {
		return Token{}, fmt.Errorf("%w: it is an increment: give the full backup that it is based on before it", ErrBackup)
	}
	if err := w.finish(); err != nil {
		return Token{}, fmt.Errorf("flashdbm: restore: %w", err)
	}
	if token, err = applyAll(ctx, f.Name(), Token{end.Token}, increments); err != nil {
		return Token{}, err
	}
	return token, publishFile(f.Name(), path)
}

// applyAll opens what was restored, which finds what a checksum cannot: that it never was a database; and applies increments to it.
func applyAll(ctx context.Context, path string, token Token, increments []io.Reader) (Token, error) {
	db, err := Open(path, &Options{ReadOnly: len(increments) == 0})
	if err != nil {
		return token, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	for i, r := range increments {
		if token, err = db.ApplyBackup(ctx, token, r); err != nil {
			err = fmt.Errorf("increment %d: %w", i+1, err)
			break
		}
	}
	return token, errors.Join(err, db.Close())
}

func existsError(path string) error {
	return fmt.Errorf("flashdbm: restore: %w", &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist})
}

// heldBack is how many bytes at the beginning of the file are written last: the superblocks, without which nothing opens.
const heldBack = 2 * 4096

// unfinished stands there before.
const unfinished = "flashdbm: an unfinished restore. It may be removed.\n"

// restoreWriter writes a file whose beginning comes last.
type restoreWriter struct {
	f    *os.File
	head []byte
}

func (w *restoreWriter) Write(b []byte) (int, error) {
	n := 0
	if missing := heldBack - len(w.head); missing > 0 && len(b) > 0 {
		n = min(missing, len(b))
		w.head = append(w.head, b[:n]...)
		if len(w.head) == heldBack {
			if _, err := w.f.Write(append([]byte(unfinished), make([]byte, heldBack-len(unfinished))...)); err != nil {
				return 0, err
			}
		}
	}
	m, err := w.f.Write(b[n:])
	return n + m, err
}

// finish writes the beginning, once all else is on the disk.
func (w *restoreWriter) finish() error {
	if !logstore.HasMagic(w.head) {
		return fmt.Errorf("%w: it holds no database", ErrBackup)
	}
	err := w.f.Sync()
	if err == nil {
		_, err = w.f.WriteAt(w.head, 0)
	}
	if err == nil {
		err = w.f.Sync()
	}
	return err
}

// publishFile gives a file the name path, if nothing has it.
func publishFile(temporary, path string) error {
	err := os.Link(temporary, path)
	if errors.Is(err, fs.ErrExist) {
		return existsError(path)
	}
	if err != nil { // a file system without links
		if _, serr := os.Lstat(path); serr == nil {
			return existsError(path)
		}
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("flashdbm: restore: %w", err)
	}
	if err := vfs.OS().SyncDir(path); err != nil && !vfs.IsUnsyncable(err) {
		os.Remove(path)
		return fmt.Errorf("flashdbm: restore: %w", err)
	}
	return nil
}
