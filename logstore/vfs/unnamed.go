package vfs

import (
	"errors"
	"os"
)

// Unnamed returns a file system whose files have no name that others could
// open, and are gone once they are closed: each Open makes a new one, which is
// empty, whatever the name. On Linux they are in memory, or in swap, and
// nowhere else; elsewhere they are temporary files.
func Unnamed() FS { return unnamed{} }

type unnamed struct{}

func (unnamed) Open(name string, flag int, _ os.FileMode) (File, error) {
	if err := checkFlag(flag); err != nil {
		return nil, pathError("open", name, err)
	}
	f, err := inMemory(name)
	if errors.Is(err, errors.ErrUnsupported) {
		return temporary()
	}
	return f, err
}

func (unnamed) Remove(string) error  { return nil }
func (unnamed) SyncDir(string) error { return nil }

// temporary returns a file in the directory for temporary files.
func temporary() (File, error) {
	f, err := os.CreateTemp("", "flashdbm-*")
	if err != nil {
		return nil, err
	}
	name := f.Name()
	f.Close()
	file, err := OS().Open(name, os.O_RDWR, 0)
	if os.Remove(name) == nil || err != nil { // at once where the system can
		return file, err
	}
	return removedAtClose{file}, nil
}

// removedAtClose is a file that has to keep its name until it is closed.
type removedAtClose struct{ File }

func (f removedAtClose) Close() error { return errors.Join(f.File.Close(), os.Remove(f.Name())) }
