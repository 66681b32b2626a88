package vfs

import "errors"

// Dropping is a File whose system can be asked to forget what it has cached.
type Dropping interface {
	// Drop asks the system to forget the clean pages of a range, so that the
	// next read shows what the device has. Behind a Datasync that has
	// succeeded, while nobody writes, all pages are clean. Pages that somebody
	// has mapped and looked at may stay.
	Drop(off, n int64) error
}

// Drop is Dropping's, errors.ErrUnsupported where the system has no such call.
func Drop(f File, off, n int64) error {
	if d, ok := f.(Dropping); ok {
		return d.Drop(off, n)
	}
	return errors.ErrUnsupported
}
