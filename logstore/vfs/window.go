package vfs

import "errors"

// A Window is a range of a file that is changed by stores to memory, without a system call. The system has a
// store at once: the store survives the process, and other processes and mappings see it. A Datasync makes it
// durable. One goroutine at a time uses a window.
type Window interface {
	// Store copies p to offset off of the file, and then stores word at offset at, a multiple of 8, as one
	// little-endian word. A reader that sees the word, in another process or after this one was killed, sees
	// all of p too. If the process is killed before the word is stored, any part of p may have been stored.
	//
	// After an error the word is not stored, and any part of p may have been. Unlike WriteAt, Store never makes
	// the file longer: a store beyond the end of the file is an error.
	Store(p []byte, off int64, word uint64, at int64) error

	// Due reports whether the next change should be a WriteAt instead, because stores alone do not change the
	// file's modification time. Due is true once per tick of the system's clock for such times, counted from
	// the last time that it was true.
	Due() bool

	// Close unmaps the window.
	Close() error
}

// Windowed is a File that can have windows.
type Windowed interface {
	// Window maps a range for stores; the rules for off and n are those of Map. The caller has written the
	// pages before it stores to them, so that they have their space. The error is errors.ErrUnsupported on a
	// file system that is not known to keep that space.
	Window(off, n int64) (Window, error)
}

// OpenWindow maps a range of f for stores. The error is errors.ErrUnsupported if f cannot have windows.
func OpenWindow(f File, off, n int64) (Window, error) {
	if w, ok := f.(Windowed); ok {
		return w.Window(off, n)
	}
	return nil, errors.ErrUnsupported
}
