package store

import (
	"context"
	"errors"
	"io"

	"flashdbm/dbm"
)

// Backup writes a backup of the file while it is in use: all records as of one moment, and record 0 of the same
// moment. Any goroutine may call it.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	f, ok := s.file.(*file)
	if !ok {
		return errors.New("store: this file has no backups")
	}
	_, err := f.db.Backup(ctx, w)
	return err
}

// Restore creates a file from a backup. The file exists, complete and synced, if and only if the error is nil.
func Restore(ctx context.Context, path string, backup io.Reader) error {
	_, err := dbm.Restore(ctx, path, backup)
	return err
}
