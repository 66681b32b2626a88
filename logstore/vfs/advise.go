package vfs

import "errors"

// Advice says what the system's cache should do with a range of a file.
type Advice uint8

const (
	// WillNeed: begin to read the range, unless the cache has it, and do not wait. Several ranges are read at the
	// same time. What goes wrong shows itself when the range is read.
	WillNeed Advice = iota
	// DontNeed: drop the clean pages of the range, so that the next read shows what the device has. After a
	// successful Datasync, and while no process writes, all pages are clean. Pages that a process has mapped and
	// touched may stay.
	DontNeed
)

// Advised is a File whose system has a cache that takes advice.
type Advised interface {
	Advise(off, n int64, a Advice) error
}

// Drop gives the advice DontNeed. It returns errors.ErrUnsupported if f is not Advised.
func Drop(f File, off, n int64) error {
	if d, ok := f.(Advised); ok {
		return d.Advise(off, n, DontNeed)
	}
	return errors.ErrUnsupported
}

// Prefetch gives the advice WillNeed, if f is Advised.
func Prefetch(f File, off, n int64) {
	if d, ok := f.(Advised); ok {
		_ = d.Advise(off, n, WillNeed)
	}
}
