package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// NextData implements Sparse. A file system that does not know its holes reports everything as data. The call
// moves the file's offset, which nothing depends on: see Size.
func (f *osFile) NextData(off int64) (next int64, err error) {
	err = f.control(func(fd uintptr) error {
		next, err = unix.Seek(int(fd), off, unix.SEEK_DATA)
		return err
	})
	switch {
	case errors.Is(err, unix.ENXIO): // no more data
		return f.Size()
	case errors.Is(err, unix.EINVAL): // a kernel without SEEK_DATA
		return off, nil
	}
	return next, rangeError("seek data", f.Name(), off, 0, err)
}
