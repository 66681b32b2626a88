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

// FromDescriptor returns a File for a descriptor of a regular file that is open already, not in append mode, which would break WriteAt.
// The descriptor belongs to the File from then on: Close closes it, as does an error here. The name is for messages only.
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

// osFile is a File of the operating system. What differs between systems is in
// os_*.go and lock_*.go.
type osFile struct {
	f    *os.File
	conn syscall.RawConn // of f; keeps the descriptor open during a call

	// locked is whether this handle holds the lock or is about to.
	locked atomic.Bool

	// lost is the first error that WriteOut met, nil if none. The system
	// reports a failed write-back once per handle, so Datasync would not hear
	// of it again and report success.
	lost atomic.Pointer[error]
}

func (f *osFile) Name() string { return f.f.Name() }

// control runs fn with the descriptor, which cannot be closed meanwhile.
func (f *osFile) control(fn func(fd uintptr) error) error {
	var err error
	if f.conn.Control(func(fd uintptr) { err = fn(fd) }) != nil {
		return os.ErrClosed // the only reason there is
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

// WriteAt relies on os.File, which goes on after short and interrupted writes.
func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	return n, rangeError("write", f.Name(), off, int64(len(p)), err)
}

// writeZeros is Allocate for systems that cannot reserve space: it writes the
// part of the range that lies beyond the end of the file.
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

// Size does not ask stat, which also tells times: Linux from 6.13 on gives a
// file whose times were looked at a new one with the next write, where it had
// one per clock tick before. A write and datasync of a page then takes 150 µs
// instead of 105. Nothing else uses the file's offset.
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

// Close gives the lock up before it closes: a process that is being started by another goroutine has the descriptor too until it runs
// its program, and would keep the lock until then.
func (f *osFile) Close() error {
	err := f.Unlock()
	if cerr := pathError("close", f.Name(), f.f.Close()); cerr != nil {
		err = cerr
	}
	return err
}
