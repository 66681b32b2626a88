package logstore

import (
	"hash/crc32"
	"sync"

	"flashdbm/logstore/vfs"
)

// Small commits that are not synced share a page: the last page of the log gets longer, its records behind those that it has. Each such
// commit is a copy into a window of the file and one store of a word behind it, without a call of the system; where there is no window, or
// the file's time of modification is to move, it is one pwrite of the page. About thirty of 100 bytes fill one.
//
//  1. The group is a record group of one growing page that this process has written by KeepOpen, and the newest of the log. It has no runs,
//     and what it lists stays. A group that recovery accepted is never extended.
//  2. It keeps its number, its place and the digest before it. Only what comes behind it depends on its own checksum, and there is nothing
//     yet: the next group ends it, before it takes a digest from here (Group.place).
//  3. Once a sync of the file has begun, whoever in this process asked for it, the page is not changed any more: it may be on the device, and
//     somebody be told so. datasync closes the group first, under mu, which is held while the page is changed: no sync begins in between.
//     Of the syncs of a reader in another process nobody here knows: what it has shown of the last page, a power cut may take. Package
//     dbm says so.
//  4. Who says of a group that it holds all up to now, as the base of a flush does, closes it first: CloseGroup.
//  5. A page that counts with a word counts with it as long as the bytes up to the word's end stay as they are, and they do: records come
//     behind that end, and the head has nothing that changes but the word (growing.go). So at each moment the page is whole, with all that
//     had returned, whatever has been copied behind its end.
//
// What may happen to it:
//
//   - A kill between two stores, or in the midst of the copy: the word is the one before (5). Behind the word's store it is the new one; that
//     is one store, in one aligned piece, and comes after the copy for every processor. A pwrite of the whole page has the same bytes up to
//     the end before, and the system takes it into its cache page by page: the page is as it was or as it shall be.
//   - A reader in another process copies the page meanwhile. It sees a word and, since those came first, its records. Should the system copy
//     in another order, or tear the word, the checksum is wrong, and it looks again: awaitWhole.
//   - A power cut, before or in the midst of a sync, or while the system writes the page back of its own accord: the device has of each
//     sector, or of smaller pieces, one of the contents that it had. The piece with the word says up to where the others count. If they are
//     as new as that, or newer (5), the commits up to there are recovered; a group behind the page was chained to the longer one and is cut
//     off. If one is older, the checksum fails, and the group is cut off with all that it held. None of that was synced.
//   - The window faults: the file was cut short, or its device failed. The word is not stored. pwrite tells what it is.
//   - The process forks: the child has no window (vfs.Window).
//   - The disk is full: the page's space was taken when it was first written, by pwrite; file systems of which that is not known have no
//     windows.
//
// After a failed write the page is put back as it was, so that what had returned still survives the process; the store is poisoned.
type lastPage struct {
	mu     sync.Mutex // held during each change of the page; nothing else is locked under it
	open   bool       // guarded by mu: the page may get longer
	buf    []byte     // the page. This and the rest belong to the baton holder
	end    int        // where its records end
	at     Addr
	group  uint64
	count  int    // of records
	before uint32 // digest
	sum    uint32 // growingSum

	window  vfs.Window // of the page's segment; nil: none could be had
	segment uint32     // that it was asked for, plus 1
}

// KeepOpen lets Extend add to this group, if it turns out to be a record group of one page, and the file may have such.
func (g *Group) KeepOpen() { g.keep = g.s.mayGrow() }

// extendable reports whether the pages at hand are such a group, whole.
func (g *Group) extendable() bool {
	return g.kind == RecordGroup && g.before == 0 && len(g.pages) == 1 && g.pages[0].kind == KindRecord
}

// writeOpen is write for a group that is kept open.
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

// follow moves the window to the page's segment.
func (l *lastPage) follow(s *Store) {
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

// unmap gives up the window; there is none until the log comes to another segment.
func (l *lastPage) unmap() {
	if l.window != nil {
		l.window.Close()
		l.window = nil
	}
}

// close ends the group as it is.
func (l *lastPage) close() {
	l.mu.Lock()
	l.open = false
	l.mu.Unlock()
}

// CloseGroup returns the number of the newest group, which nothing is added to any more. Baton holder.
func (s *Store) CloseGroup() uint64 {
	s.last.close()
	return s.lastWritten.Load()
}

// Extend adds records to the newest group, if it is open and has room for them, and returns its number. p is a stream of count records.
// An error has poisoned the store. Baton holder; the group begun last, if any, has no pages.
func (s *Store) Extend(p []byte, count uint64) (group uint64, ok bool, err error) {
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
	if err := s.notShortened(); err != nil { // a write would make it longer again, a store cannot
		return 0, false, s.fail(err)
	}
	ok, err = l.write(s, p, int(count))
	return l.group, ok, err
}

// store adds records through the window. After an error the page counts as it did.
func (l *lastPage) store(s *Store, p []byte, count int) (ok bool, err error) {
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

// write adds records by writing the page. An error has poisoned the store before a sync that waits for mu goes on.
func (l *lastPage) write(s *Store, p []byte, count int) (ok bool, err error) {
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

// add notes what was added to the page.
func (l *lastPage) add(s *Store, p []byte, count int, sum, crc uint32, word uint64) {
	copy(l.buf[l.end:], p)
	putWord(l.buf, word)
	l.end += len(p)
	l.count += count
	l.sum = sum
	s.tail.digest = chain(l.before, crc)
}
