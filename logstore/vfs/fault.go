package vfs

import (
	"errors"
	"os"
	"sync/atomic"
)

// Faulty returns an FS that shows every operation of [Kind] to fail and then passes it on to fs. If fail
// returns an error, the operation is not passed on, except for the part of a write that a *[ShortWrite] lets
// through. The goroutine of the operation calls fail, so several goroutines may call it at once.
//
// A Datasync that fails in this way leaves the data of fs dirty, not lost. To lose data use [Mem] with its own
// hook.
func Faulty(fs FS, fail func(Op) error) FS {
	return &faultyFS{fs: fs, fail: fail}
}

type faultyFS struct {
	fs   FS
	fail func(Op) error
	ops  atomic.Int64 // number of calls seen: numbers them, and orders nothing
}

func (f *faultyFS) check(op Op) error {
	op.Index = int(f.ops.Add(1)) - 1
	return f.fail(op)
}

// Open cannot know whether the file exists without trying. So the call is an OpCreate only if opening without
// O_CREATE has failed.
func (f *faultyFS) Open(name string, flag int, perm os.FileMode) (File, error) {
	if flag&os.O_CREATE != 0 && flag&os.O_EXCL == 0 {
		file, err := f.fs.Open(name, flag&^os.O_CREATE, perm)
		if err == nil {
			return &faultyFile{File: file, fs: f}, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	if flag&os.O_CREATE != 0 {
		if err := f.check(Op{Kind: OpCreate, Name: name}); err != nil {
			return nil, pathError("open", name, err)
		}
	}
	file, err := f.fs.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, fs: f}, nil
}

func (f *faultyFS) Remove(name string) error {
	if err := f.check(Op{Kind: OpRemove, Name: name}); err != nil {
		return pathError("remove", name, err)
	}
	return f.fs.Remove(name)
}

func (f *faultyFS) SyncDir(name string) error {
	if err := f.check(Op{Kind: OpSyncDir, Name: name}); err != nil {
		return pathError("sync directory of", name, err)
	}
	return f.fs.SyncDir(name)
}

// faultyFile passes methods that are not overridden on to File.
type faultyFile struct {
	File
	fs *faultyFS
}

func (f *faultyFile) check(kind Kind, off, n int64) error {
	return f.fs.check(Op{Kind: kind, Name: f.Name(), Off: off, Len: n})
}

func (f *faultyFile) WriteAt(p []byte, off int64) (n int, err error) {
	fault := f.check(OpWrite, off, int64(len(p)))
	if fault == nil {
		return f.File.WriteAt(p, off)
	}
	n, err = f.shortWrite(fault, p, off)
	return n, rangeError("write", f.Name(), off, int64(len(p)), err)
}

func (f *faultyFile) WriteVec(bufs [][]byte, off int64) error {
	fault := f.check(OpWriteVec, off, vecLen(bufs))
	if fault == nil {
		return f.File.WriteVec(bufs, off)
	}
	_, err := f.shortWrite(fault, joinVec(bufs), off)
	return rangeError("write", f.Name(), off, vecLen(bufs), err)
}

// shortWrite writes the part of p that the fault lets through.
func (f *faultyFile) shortWrite(fault error, p []byte, off int64) (int, error) {
	p = shortened(fault, p)
	if len(p) == 0 {
		return 0, fault
	}
	n, err := f.File.WriteAt(p, off)
	if err != nil {
		return n, err
	}
	return n, fault
}

func (f *faultyFile) Datasync() error {
	if err := f.check(OpDatasync, 0, 0); err != nil {
		return pathError("datasync", f.Name(), err)
	}
	return f.File.Datasync()
}

func (f *faultyFile) WriteOut(off, n int64, wait bool) error {
	if err := f.check(OpWriteOut, off, n); err != nil {
		return rangeError("write-out", f.Name(), off, n, err)
	}
	return f.File.WriteOut(off, n, wait)
}

func (f *faultyFile) Allocate(off, n int64) error {
	if err := f.check(OpAllocate, off, n); err != nil {
		return rangeError("allocate", f.Name(), off, n, err)
	}
	return f.File.Allocate(off, n)
}

func (f *faultyFile) Punch(off, n int64) error {
	if err := f.check(OpPunch, off, n); err != nil {
		return rangeError("punch", f.Name(), off, n, err)
	}
	return f.File.Punch(off, n)
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.check(OpTruncate, size, 0); err != nil {
		return rangeError("truncate", f.Name(), size, 0, err)
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Map(off, n int64) ([]byte, error) {
	if err := f.check(OpMap, off, n); err != nil {
		return nil, rangeError("map", f.Name(), off, n, err)
	}
	return f.File.Map(off, n)
}

// Advise is passed on without a check, because it is not an operation that can fail.
func (f *faultyFile) Advise(off, n int64, a Advice) error {
	if d, ok := f.File.(Advised); ok {
		return d.Advise(off, n, a)
	}
	return errors.ErrUnsupported
}

// NextData implements Sparse.
func (f *faultyFile) NextData(off int64) (int64, error) { return NextData(f.File, off) }

// Window maps a window of the file, if File is Windowed. A store that is refused changes nothing.
func (f *faultyFile) Window(off, n int64) (Window, error) {
	if err := f.check(OpWindow, off, n); err != nil {
		return nil, rangeError("map", f.Name(), off, n, err)
	}
	w, err := OpenWindow(f.File, off, n)
	if err != nil {
		return nil, err
	}
	return &faultyWindow{w, f}, nil
}

type faultyWindow struct {
	Window
	f *faultyFile
}

func (w *faultyWindow) Store(p []byte, off int64, word uint64, at int64) error {
	if err := w.f.check(OpStore, off, int64(len(p))); err != nil {
		return rangeError("store", w.f.Name(), off, int64(len(p)), err)
	}
	return w.Window.Store(p, off, word, at)
}
