//go:build unix

package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/edsrzf/mmap-go"
)

// maxLinks is the largest number of symlinks through which one name may lead, as in the kernel.
const maxLinks = 40

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func (osFS) SyncDir(name string) error {
	dir, err := holdingDir(name)
	if err != nil {
		return pathError("sync directory of", name, err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return pathError("sync directory of", name, err)
	}
	defer d.Close()
	return pathError("sync directory of", name, d.Sync())
}

// holdingDir returns the directory that holds the file to which name leads; neither need exist. Paths are
// joined as text, because cleaning "link/.." would name another directory.
func holdingDir(name string) (string, error) {
	for range maxLinks {
		dir, _ := filepath.Split(name)
		target, err := os.Readlink(name)
		switch {
		case err != nil && dir == "": // no symlink, or no such name (any more)
			return ".", nil
		case err != nil:
			return dir, nil
		case filepath.IsAbs(target):
			name = target
		default:
			name = dir + target
		}
	}
	return "", syscall.ELOOP
}

func (f *osFile) Blocks() (int64, error) {
	fi, err := f.f.Stat()
	if err != nil {
		return 0, pathError("stat", f.Name(), err)
	}
	// POSIX does not define the unit; it is 512 bytes on every system that this file is built for.
	return fi.Sys().(*syscall.Stat_t).Blocks * 512, nil
}

func (f *osFile) Map(off, n int64) ([]byte, error) {
	err := checkRange(off, n)
	if n <= 0 || n != int64(int(n)) {
		err = errRange
	}
	if err != nil {
		return nil, rangeError("map", f.Name(), off, n, err)
	}
	b, err := mmap.MapRegion(f.f, int(n), mmap.RDONLY, 0, off)
	if err != nil {
		return nil, rangeError("map", f.Name(), off, n, err)
	}
	return b, nil
}

func (f *osFile) Unmap(b []byte) error {
	m := mmap.MMap(b)
	return pathError("unmap", f.Name(), m.Unmap())
}
