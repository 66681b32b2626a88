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

// Restore makes a new database file at path from a backup of DB.Backup and any number of increments of
// DB.BackupSince, in their order: each begins at the token of the one before, or earlier. The file exists, complete
// and synced, if and only if Restore returns no error. Restore never replaces a file: fs.ErrExist. Until the
// database is complete, its data is in a temporary file in the same directory, whose name is that of path followed
// by ".restore-" and a suffix. Open refuses the temporary file, and Restore removes it after an error. Only a kill
// leaves it behind; it may then be removed.
//
// Restore returns the token of the database's state: see ApplyBackup.
//
// ErrBackup: an input is not a whole backup, or an increment was passed in place of the full backup, or the
// reverse. ErrToken: an increment does not fit the state before it. Other errors are those of ctx, of the readers
// and of the system.
func Restore(ctx context.Context, path string, full io.Reader, increments ...io.Reader) (token Token, err error) {
	if _, err := os.Lstat(path); err == nil {
		return Token{}, existsError(path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".restore-*")
	if err != nil {
		return Token{}, fmt.Errorf("flashdbm: restore: %w", err)
	}
	defer func() { // after success this removes the second name of the same file
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

// applyAll opens the restored file and applies the increments to it. The open finds what no checksum can: that the
// backup is not of a database.
func applyAll(ctx context.Context, path string, token Token, increments []io.Reader) (_ Token, err error) {
	db, err := Open(path, &Options{ReadOnly: len(increments) == 0})
	if err != nil {
		return token, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }() // also if the reader of an increment panics
	for i, r := range increments {
		if token, err = db.ApplyBackup(ctx, token, r); err != nil {
			return token, fmt.Errorf("increment %d: %w", i+1, err)
		}
	}
	return token, nil
}

func existsError(path string) error {
	return fmt.Errorf("flashdbm: restore: %w", &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist})
}

// heldBack is how many bytes at the beginning of the file are written last: the superblocks, without which Open
// refuses the file.
const heldBack = 2 * 4096

// unfinished is the beginning of the file until the superblocks are written.
const unfinished = "flashdbm: an unfinished restore. It may be removed.\n"

// restoreWriter writes a file sequentially, but its first heldBack bytes last.
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

// finish writes the beginning, after everything else is synced.
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

// publishFile gives the file the name path, unless a file of that name exists.
func publishFile(temporary, path string) error {
	err := os.Link(temporary, path)
	if errors.Is(err, fs.ErrExist) {
		return existsError(path)
	}
	if err != nil { // the file system has no hard links
		if _, serr := os.Lstat(path); serr == nil {
			return existsError(path)
		}
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("flashdbm: restore: %w", err)
	}
	if err := syncDirectory(vfs.OS(), path); err != nil {
		os.Remove(path)
		return fmt.Errorf("flashdbm: restore: %w", err)
	}
	return nil
}
