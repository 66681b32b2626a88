package logstore

import (
	"hash/crc32"
	"sync"

	"flashdbm/logstore/vfs"
)

// Small commits that are not synced share a page: the last page of the log grows as records are appended to it.
// Such a commit is a copy into a window (a writable mapping) of the file and one store of a word, without a system
// call. Where there is no window, or where the file's modification time has to advance, the commit is one pwrite of
// the page. About thirty commits of 100 bytes fill a page.
//
//  1. The group is a record group of one growing page, written by this process with KeepOpen, and it is the newest
//     group of the log. It has no runs, and what it lists stays. A group that recovery accepted is never extended.
//  2. The group keeps its number, its place and the digest before it. Only later groups depend on its own checksum,
//     and there are none yet: the next group closes this one before it takes a digest from here (Group.place).
//  3. Once any sync of the file by this process has begun, the page does not change any more: it may be on the
//     device, and a caller may be told so. datasync closes the group first, under mu, which is held during each
//     change of the page; so no sync begins during a change. This process does not know of syncs by a reader in
//     another process: a power cut may take what that reader has shown of the last page. Package dbm documents
//     that.
//  4. Code that states that a group contains everything up to now, as the base of a flush does, closes the group
//     first: CloseGroup.
//  5. A page that is whole with some word stays whole with that word, because the bytes up to the word's end stay
//     as they are: records are added after that end, and nothing of the head changes but the word (growing.go). So
//     the page is whole at every moment and holds every commit that has returned, whatever has been copied after
//     its end.
//
// Events:
//
//   - A kill during the copy or before the store: the word is the old one (5). After the store it is the new one;
//     the store is one aligned word, and every processor sees it after the copy. A pwrite of the whole page has the
//     same bytes up to the old end, and the system takes it into its cache page by page, so the page is as before
//     or as after.
//   - A reader in another process copies the page meanwhile. It sees a word and, because records precede the word,
//     the word's records. If the system copied in another order, or tore the word, the checksum fails and the
//     reader tries again: awaitWhole.
//   - A power cut, before or during a sync, or while the system writes the page back by itself: of each sector, or
//     smaller piece, the device has one of its contents. The piece with the word says how far the others count. If
//     these are as new as the word, or newer (5), the commits up to there are recovered; a group after the page was
//     chained to the longer one and is cut off. If a piece is older, the checksum fails and the group is cut off
//     with all its commits. None of them was synced.
//   - The window faults, because the file was cut short or its device failed: the word is not stored. pwrite then
//     returns the reason.
//   - The process forks: the child has no window (vfs.Window).
//   - The disk is full: the page's space was taken when pwrite first wrote it. File systems that do not promise
//     this get no window.
//
// After a failed write the page is restored, so that what had returned still survives the process; the store is
// poisoned.
type lastPage struct {
	mu     sync.Mutex // held during each change of the page; a leaf lock
	open   bool       // the page may grow; guarded by mu
	buf    []byte     // the page. This and the following fields belong to the log's appender
	end    int        // offset in the page after its last record
	at     Addr
	group  uint64
	count  int    // number of records
	before uint32 // digest before the page
	sum    uint32 // growingSum of the page

	window  vfs.Window // window on the page's segment; nil if there is none
	segment uint32     // segment for which the window was requested, plus 1
}

// KeepOpen lets Extend add to this group, if it becomes a record group of one page and the file may have growing pages.
func (g *Group) KeepOpen() { g.keep = g.s.mayGrow() }

// extendable reports whether the buffered pages are a whole group that Extend may add to.
func (g *Group) extendable() bool {
	return g.kind == RecordGroup && g.before == 0 && len(g.pages) == 1 && g.pages[0].kind == KindRecord
}

// writeOpen is write for a group that stays open.
func (g *Group) writeOpen() error {
	l := &g.s.last
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := g.write(); err != nil {
		return err
	}
	p := &g.pages[0]
	m := getMux(p.buf)
	if l.buf == nil {
		l.buf = make([]byte, PageSize)
	}
	copy(l.buf, p.buf)
	l.end, l.at, l.group, l.count, l.before = int(m.end), p.addr, m.group, int(m.count), m.digest
	l.sum = growingSum(g.s.tail.header.salt, l.at, l.buf[:l.end])
	l.open = true
	l.follow(g.s)
	return nil
}

// follow makes l.window a window on the page's segment.
func (l *lastPage) follow(s *appender) {
	n := s.segmentOf(l.at)
	if l.segment == n+1 {
		return
	}
	l.unmap()
	l.segment = n + 1
	size := int64(s.segmentPages) * PageSize
	if w, err := vfs.OpenWindow(s.file, int64(s.firstPage(n))*PageSize, size); err == nil {
		l.window = w
	}
}

// unmap closes the window. No window is opened before the log enters another segment.
func (l *lastPage) unmap() {
	if l.window != nil {
		l.window.Close()
		l.window = nil
	}
}

// close makes the newest group final: it grows no more.
func (l *lastPage) close() {
	l.mu.Lock()
	l.open = false
	l.mu.Unlock()
}

// CloseGroup makes the newest group final and returns its number. Called by the log's appender.
func (s *appender) CloseGroup() uint64 {
	s.last.close()
	return s.lastWritten.Load()
}

// Extend adds records to the newest group, if that is open and has room, and returns its number. p is a stream of
// count records. An error has poisoned the store. Called by the log's appender, with no pages in the group begun
// last.
func (s *appender) Extend(p []byte, count uint64) (group uint64, ok bool, err error) {
	l := &s.last
	if len(p) > PageSize-l.end {
		return 0, false, nil
	}
	if err := s.Failed(); err != nil {
		return 0, false, err
	}
	if l.window != nil && !l.window.Due() {
		if ok, err := l.store(s, p, int(count)); err == nil {
			return l.group, ok, nil
		}
		l.unmap()
	}
	if err := s.notShortened(); err != nil { // a write would make the file longer again; a store cannot
		return 0, false, s.fail(err)
	}
	ok, err = l.write(s, p, int(count))
	return l.group, ok, err
}

// store adds records through the window. After an error the page is whole with its old word.
func (l *lastPage) store(s *appender, p []byte, count int) (ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return false, nil
	}
	sum := crc32.Update(l.sum, castagnoli, p)
	crc, word := growingEnd(sum, l.end+len(p), l.count+count)
	at := int64(l.at) * PageSize
	if err := l.window.Store(p, at+int64(l.end), word, at+growingAt); err != nil {
		return false, err
	}
	l.add(s, p, count, sum, crc, word)
	return true, nil
}

// write adds records by writing the page. After an error the store is poisoned before a sync that waits for mu proceeds.
func (l *lastPage) write(s *appender, p []byte, count int) (ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return false, nil
	}
	before := [MuxSize]byte(l.buf)
	sum := crc32.Update(l.sum, castagnoli, p)
	crc, word := growingEnd(sum, l.end+len(p), l.count+count)
	copy(l.buf[l.end:], p)
	putWord(l.buf, word)
	if _, err := s.file.WriteAt(l.buf, int64(l.at)*PageSize); err != nil {
		copy(l.buf, before[:])
		clear(l.buf[l.end:])
		_, _ = s.file.WriteAt(l.buf, int64(l.at)*PageSize)
		l.open = false
		return false, s.fail(err)
	}
	l.add(s, p, count, sum, crc, word)
	return true, nil
}

// add records what was added to the page.
func (l *lastPage) add(s *appender, p []byte, count int, sum, crc uint32, word uint64) {
	copy(l.buf[l.end:], p)
	putWord(l.buf, word)
	l.end += len(p)
	l.count += count
	l.sum = sum
	s.tail.digest = chain(l.before, crc)
}
