package vfs

import (
	"errors"
	"os"
)

// Unnamed returns a file system whose files have no name by which another process could open them, and
// disappear when they are closed. Each Open makes a new, empty file, whatever the name. On Linux the files are
// in memory or swap only; on other systems they are temporary files.
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
	if os.Remove(name) == nil || err != nil { // removed at once, if the system allows that for an open file
		return file, err
	}
	return removedAtClose{file}, nil
}

// removedAtClose is a file that keeps its name until it is closed, because the system cannot remove an open
// file.
type removedAtClose struct{ File }

func (f removedAtClose) Close() error { return errors.Join(f.File.Close(), os.Remove(f.Name())) }
