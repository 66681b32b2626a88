package logstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"flashdbm/logstore/vfs"
)

// guardFS calls a check before the bytes of a page change.
type guardFS struct {
	vfs.FS
	change   func(a Addr, before, after []byte) error
	wrote    func(p []byte, off int64)
	syncing  func()                  // before each sync; may be nil
	reserved func(off, n int64) bool // may be nil
}

func (g *guardFS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := g.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &guardFile{File: f, fs: g}, nil
}

type guardFile struct {
	vfs.File
	fs *guardFS
}

func (f *guardFile) Datasync() error {
	if f.fs.syncing != nil {
		f.fs.syncing()
	}
	return f.File.Datasync()
}

func (f *guardFile) check(p []byte, off int64) error {
	defer f.fs.wrote(p, off)
	before := make([]byte, PageSize)
	for ; len(p) > 0; p, off = p[PageSize:], off+PageSize {
		clear(before)
		f.File.ReadAt(before, off)
		if after := p[:PageSize]; !bytes.Equal(before, after) {
			if err := f.fs.change(uint64(off)/PageSize, before, after); err != nil {
				return err
			}
		}
	}
	return nil
}

// write is the check for a write: it must be in allocated space, except for the first page of a file that is being
// created.
func (f *guardFile) write(p []byte, off int64) error {
	if f.fs.reserved != nil && off >= 3*PageSize && !f.fs.reserved(off, int64(len(p))) {
		return fmt.Errorf("%w: page %d is written and its space is not sure", errToy, off/PageSize)
	}
	return f.check(p, off)
}

func (f *guardFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.write(p, off); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *guardFile) WriteVec(bufs [][]byte, off int64) error {
	if err := f.write(bytes.Join(bufs, nil), off); err != nil {
		return err
	}
	return f.File.WriteVec(bufs, off)
}

func (f *guardFile) Window(off, n int64) (vfs.Window, error) {
	w, err := vfs.OpenWindow(f.File, off, n)
	if err != nil {
		return nil, err
	}
	return &guardWindow{w, f}, nil
}

type guardWindow struct {
	vfs.Window
	f *guardFile
}

func (w *guardWindow) Store(p []byte, off int64, word uint64, at int64) error {
	page, first := make([]byte, PageSize), off/PageSize*PageSize
	w.f.File.ReadAt(page, first)
	copy(page[off-first:], p)
	binary.LittleEndian.PutUint64(page[at-first:], word)
	if err := w.f.write(page, first); err != nil {
		return err
	}
	return w.Window.Store(p, off, word, at)
}

// Punch and Truncate must not remove what must not be overwritten.
func (f *guardFile) Punch(off, n int64) error {
	if err := f.vanish(off, off+n); err != nil {
		return err
	}
	return f.File.Punch(off, n)
}

func (f *guardFile) Truncate(size int64) error {
	end, err := f.File.Size()
	if err == nil {
		err = f.vanish(size, end)
	}
	if err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *guardFile) vanish(off, end int64) error {
	for ; off < end; off += PageSize {
		if err := f.check(make([]byte, PageSize), off); err != nil {
			return err
		}
	}
	return nil
}

// completesHeader reports whether the change restores the missing copy in a segment's header.
func completesHeader(before, after []byte) bool {
	h, ok := getHeaderCopy(before[:headerSize])
	if !ok {
		h, ok = getHeaderCopy(before[headerCopyAt:])
	}
	whole := make([]byte, PageSize)
	h.put(whole)
	return ok && bytes.Equal(after, whole)
}

// changesLineage reports whether the change gives a superblock another lineage and changes nothing else in it.
func changesLineage(before, after []byte) bool {
	was, err := getSuperblock(before)
	if err != nil {
		return false
	}
	is, err := getSuperblock(after)
	was.lineage, is.lineage = 0, 0
	return err == nil && was == is && isZero(after[superblockSize:])
}

// invalidated is what recovery may write over a page of an interrupted group, or over the header of a segment that
// such a group has entered. predecessor is the salt that the header names.
func invalidated(before []byte, isHeader bool, predecessor uint64) []byte {
	after := make([]byte, PageSize)
	if !isHeader {
		m := mux{group: getMux(before).group}
		m.put(after)
		return after
	}
	for _, at := range []int{headerCopyAt, 0} {
		if h, ok := getHeaderCopy(before[at:]); ok && h.predecessor == predecessor {
			h.group = invalidGroup
			h.put(after)
		}
	}
	return after
}

// predecessorOf returns the predecessor that a page names, if the page is a header.
func predecessorOf(p []byte) uint64 {
	h, _ := getHeaderCopy(p)
	return h.predecessor
}

// mayInvalidate returns an error unless recovery was right to invalidate the page at a, which the given group had
// written last. Either the page lies in the segment of the log's end, after that end, and no recovered group
// has written it in the segment's present life; or it is the header of the successor and names this segment as
// predecessor.
func (d *toy) mayInvalidate(a Addr, predecessor, group uint64) error {
	t := &d.s.tail
	n := t.header.successor
	switch {
	case a == d.s.firstPage(n)+headerPage(n) && predecessor == t.header.salt:
		return nil
	case d.s.segmentOf(a) != t.header.segment || a < d.s.firstPage(t.header.segment)+t.page:
		return fmt.Errorf("%w: recovery invalidated page %d, which is not behind the end of the log", errToy, a)
	case group >= t.header.group && group < t.group:
		return fmt.Errorf("%w: recovery invalidated page %d of group %d", errToy, a, group)
	}
	return nil
}

// mayChange returns an error unless the page at a may be changed. Neither the page nor, if it is a header, its segment
// may contain anything that is live, that a reader uses, or that a recovery from either superblock would read.
func (d *toy) mayChange(a Addr, before, after []byte) error {
	s := d.s
	if d.log.mayRewrite(a, before, after) {
		return nil
	}
	if a < 2 {
		sb, err := getSuperblock(after)
		if err != nil || sb.number != s.newestNumber()+1 {
			return fmt.Errorf("%w: superblock in page %d: %v", errToy, a, err)
		}
		return nil
	}
	n := s.segmentOf(a)
	if a != s.firstPage(n)+headerPage(n) {
		return d.needed(a)
	}
	for p := s.firstPage(n); p < s.firstPage(n+1); p++ {
		if err := d.needed(p); err != nil {
			return fmt.Errorf("header of segment %d: %w", n, err)
		}
	}
	return nil
}

func (d *toy) needed(a Addr) error {
	s := d.s
	if s.IsLive(a) {
		return fmt.Errorf("%w: page %d is live and was overwritten", errToy, a)
	}
	if group := d.log.owner[a]; group != 0 {
		for _, sb := range s.supers {
			if sb != nil && (group >= sb.start.Group || group >= sb.runFirst && group <= sb.runLast) {
				return fmt.Errorf("%w: page %d of group %d, which checkpoint %d needs, was overwritten", errToy, a, group, sb.number)
			}
		}
	}
	for _, r := range d.readers {
		for _, seen := range r.seen {
			if a == seen.page || seen.run != 0 && a == seen.run {
				return fmt.Errorf("%w: page %d, which a reader looks at, was overwritten", errToy, a)
			}
		}
	}
	return nil
}
