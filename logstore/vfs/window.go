package vfs

import "errors"

// A Window is a stretch of a file that changes by stores to memory, without a
// call of the system. What was stored is with the system at once: it survives
// the process, and other processes and WriteAt's mappings see it. A Datasync
// makes it durable. One goroutine uses a window at a time.
type Window interface {
	// Store copies p to the offset off of the file, and then stores word at
	// the offset at, a multiple of 8, in one piece and little endian. Who sees
	// the word, in another process or after this one was killed, sees all of p
	// too. A process killed before that may leave any part of p.
	//
	// After an error the word is not stored; of p there may be any part. Unlike
	// WriteAt it never makes the file longer: what lies beyond its end is an
	// error.
	Store(p []byte, off int64, word uint64, at int64) error

	// Due reports whether WriteAt should be used next instead: stores alone
	// do not move the file's time of modification. It is so about as often
	// as the system's clock for such times ticks, counted from the last time
	// that it was so.
	Due() bool

	// Close unmaps it.
	Close() error
}

// Windowed is a File that may have windows.
type Windowed interface {
	// Window maps a range for stores; the rules for off and n are those of
	// Map. The pages that are stored to were written before, so that they have
	// their space. The error is errors.ErrUnsupported on file systems that are
	// not known to keep it then.
	Window(off, n int64) (Window, error)
}

// OpenWindow maps a range of f for stores, where that can be.
func OpenWindow(f File, off, n int64) (Window, error) {
	if w, ok := f.(Windowed); ok {
		return w.Window(off, n)
	}
	return nil, errors.ErrUnsupported
}
