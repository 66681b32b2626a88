package store

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace renames a file to path, replacing the file there. After it returns, a crash does not undo the renaming.
func Replace(file, path string) error {
	if err := os.Rename(file, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// WriteFile writes a file atomically and durably: after a crash it is there whole or not at all.
func WriteFile(path string, b []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return Replace(path+".new", path)
}
