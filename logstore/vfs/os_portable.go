//go:build !linux

package vfs

import "errors"

func (f *osFile) WriteVec(bufs [][]byte, off int64) error {
	for _, b := range bufs {
		if _, err := f.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

func (f *osFile) WriteOut(off, n int64, wait bool) error {
	return rangeError("write-out", f.Name(), off, n, checkRange(off, n))
}

func (f *osFile) Allocate(off, n int64) error {
	if err := checkRange(off, n); err != nil {
		return rangeError("allocate", f.Name(), off, n, err)
	}
	return f.writeZeros(off, n)
}

func (f *osFile) Free() (int64, error) {
	return 0, pathError("free space", f.Name(), errors.ErrUnsupported)
}
