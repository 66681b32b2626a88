package vfs

import (
	"io"
	"os"
	"sync/atomic"
	"syscall"
)

// OS returns the operating system's file system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Open(name string, flag int, perm os.FileMode) (File, error) {
	if err := checkFlag(flag); err != nil {
		return nil, pathError("open", name, err)
	}
	// Opening a pipe would wait for its other end.
	if fi, err := os.Stat(name); err == nil && !fi.Mode().IsRegular() {
		return nil, pathError("open", name, errRegular)
	}
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, pathError("open", name, err)
	}
	return &osFile{f: f, conn: conn}, nil
}

// FromDescriptor returns a File for an open descriptor of a regular file. The descriptor must not be in append
// mode, which would break WriteAt. It belongs to the File from then on: Close closes it, and so does
// FromDescriptor if it returns an error. The name is for messages only.
func FromDescriptor(fd uintptr, name string) (File, error) {
	f := os.NewFile(fd, name)
	if f == nil {
		return nil, pathError("open", name, os.ErrInvalid)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errRegular
	}
	conn, cerr := f.SyscallConn()
	if err == nil {
		err = cerr
	}
	if err != nil {
		f.Close()
		return nil, pathError("open", name, err)
	}
	return &osFile{f: f, conn: conn}, nil
}

func (osFS) Remove(name string) error {
	return pathError("remove", name, os.Remove(name))
}

// osFile is a File of the operating system. The parts that differ between systems are in os_*.go and lock_*.go.
type osFile struct {
	f    *os.File
	conn syscall.RawConn // of f; keeps the descriptor open during a call

	// locked reports whether this handle holds the lock or is taking it.
	locked atomic.Bool

	// holder is the process that held the lock when this handle last failed to get it. It belongs to whoever has set
	// locked.
	holder lockHolder

	// lost is the first error of WriteOut, nil if there was none. The system reports a failed write-back once
	// per handle, so a later Datasync would not get it and would report success.
	lost atomic.Pointer[error]
}

func (f *osFile) Name() string { return f.f.Name() }

// control runs fn with the descriptor, which cannot be closed during the call.
func (f *osFile) control(fn func(fd uintptr) error) error {
	var err error
	if f.conn.Control(func(fd uintptr) { err = fn(fd) }) != nil {
		return os.ErrClosed // the only possible reason
	}
	return err
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.f.ReadAt(p, off)
	if err == nil || err == io.EOF {
		return n, err
	}
	return n, rangeError("read", f.Name(), off, int64(len(p)), err)
}

// WriteAt relies on os.File, which continues after short and interrupted writes.
func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	return n, rangeError("write", f.Name(), off, int64(len(p)), err)
}

// writeZeros is Allocate on systems that cannot reserve space: it writes zeros to the part of the range that
// lies beyond the end of the file.
func (f *osFile) writeZeros(off, n int64) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	zeros := make([]byte, min(max(off+n-size, 0), 1<<20))
	for at := max(off, size); at < off+n; {
		wrote, err := f.WriteAt(zeros[:min(int64(len(zeros)), off+n-at)], at)
		if err != nil {
			return err
		}
		at += int64(wrote)
	}
	return nil
}

func (f *osFile) Truncate(size int64) error {
	return rangeError("truncate", f.Name(), size, 0, f.f.Truncate(size))
}

// Size does not call stat, because stat also reports times. Since version 6.13 Linux gives a file whose times
// were read a new time at the next write; before it gave one per clock tick. A write and datasync of a page
// then takes 150 µs instead of 105 µs. Nothing else uses the file's offset.
func (f *osFile) Size() (int64, error) {
	n, err := f.f.Seek(0, io.SeekEnd)
	return n, pathError("size", f.Name(), err)
}

func (f *osFile) Lock(exclusive bool) error {
	if !f.locked.CompareAndSwap(false, true) {
		return pathError("lock", f.Name(), errHoldLock)
	}
	err := f.lock(exclusive)
	if err != nil {
		f.locked.Store(false)
	}
	return err
}

func (f *osFile) Unlock() error {
	if !f.locked.Load() {
		return nil
	}
	if err := f.unlock(); err != nil {
		return pathError("unlock", f.Name(), err)
	}
	f.locked.Store(false)
	return nil
}

// Close unlocks the file before it closes it. A child process that another goroutine is starting has a copy of
// the descriptor until it executes its program, and would keep the lock until then.
func (f *osFile) Close() error {
	err := f.Unlock()
	if cerr := pathError("close", f.Name(), f.f.Close()); cerr != nil {
		err = cerr
	}
	return err
}
