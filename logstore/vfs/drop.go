package vfs

import "errors"

// Dropping is a File whose system can be asked to drop cached pages.
type Dropping interface {
	// Drop asks the system to drop the clean pages of a range from its cache, so that the next read shows what
	// the device has. After a successful Datasync, and while no process writes, all pages are clean. Pages that
	// a process has mapped and touched may stay.
	Drop(off, n int64) error
}

// Drop calls f's Drop. It returns errors.ErrUnsupported if f is not Dropping.
func Drop(f File, off, n int64) error {
	if d, ok := f.(Dropping); ok {
		return d.Drop(off, n)
	}
	return errors.ErrUnsupported
}
