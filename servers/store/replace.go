package store

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace gives a file the path of another one, which is gone then. When it returns, a crash does not undo that.
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

// WriteFile makes a file appear whole or not at all, and for good.
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
