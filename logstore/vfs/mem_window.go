package vfs

import "encoding/binary"

// memWindow makes each store two operations, so that a crash may come between them. A ShortWrite in the first
// one models a kill in the middle of the copy.
type memWindow struct {
	f      *memFile
	off, n int64
	stores int
}

// dueEvery is the number of stores after which Due is true: few, so that tests take both ways, and not by a
// clock, so that a script always does the same.
const dueEvery = 3

func (f *memFile) Window(off, n int64) (Window, error) {
	if _, err := f.mapped(OpWindow, off, n); err != nil {
		return nil, err
	}
	return &memWindow{f: f, off: off, n: n}, nil
}

func (w *memWindow) Store(p []byte, off int64, word uint64, at int64) error {
	if off < w.off || off+int64(len(p)) > w.off+w.n || at < w.off || at+8 > w.off+w.n || at%8 != 0 {
		panic("vfs: a store outside of its window")
	}
	if err := w.inside(off, int64(len(p))); err != nil {
		return err
	}
	if _, err := w.f.write(OpStore, p, off); err != nil {
		return rangeError("store", w.f.name, off, int64(len(p)), err)
	}
	if err := w.inside(at, 8); err != nil {
		return err
	}
	_, err := w.f.write(OpStore, binary.LittleEndian.AppendUint64(nil, word), at)
	return rangeError("store", w.f.name, at, 8, err)
}

// inside refuses a store that would fault, because its memory page is beyond the end of the file.
func (w *memWindow) inside(off, n int64) (err error) {
	size, err := w.f.Size()
	if err == nil && off+n > (size+blockSize-1)/blockSize*blockSize {
		err = rangeError("store", w.f.name, off, n, errRange)
	}
	return err
}

func (w *memWindow) Due() bool {
	w.stores++
	return w.stores%dueEvery == 0
}

func (w *memWindow) Close() error { return nil }
