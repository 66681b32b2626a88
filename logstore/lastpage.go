package logstore

import (
	"encoding/binary"
	"sync"
)

// Small commits that are not synced share a page: the last page of the log is written again with a longer group, its records behind those
// that it has. Each such commit is one pwrite of a page, as if it had a page of its own, but about thirty of 100 bytes fill one.
//
//  1. The group is a record group of one page that this process has written by KeepOpen, and the newest of the log. It has no runs, and
//     what it lists stays. A group that recovery accepted is never extended.
//  2. It keeps its number, its place and the digest before it. Only what comes behind it depends on its own checksum, and there is nothing
//     yet: the next group ends it, before it takes a digest from here (Group.place).
//  3. Once a sync of the file has begun, whoever asked for it, the page is not written again: it may be on the device, and somebody be
//     told so. datasync closes the group first, under mu, which is held while the page is written: no sync begins in between.
//  4. Who says of a group that it holds all up to now, as the base of a flush does, closes it first: CloseGroup.
//  5. The page is written whole, by one pwrite. The system takes it into its cache page by page, so a kill leaves it as it was or as it
//     shall be, and all that had returned is in both.
//
// What a power cut leaves of an unsynced page is one of the contents that it had, or a mixture of their sectors. With an earlier one the
// commits that it had by then are recovered, as a shorter group; a group behind it was chained to the longer one and is cut off. A
// mixture fails its checksum, and the group is cut off with all that it held: none of that was synced.
//
// After a failed write the page is put back as it was, so that what had returned still survives the process; the store is poisoned.
type lastPage struct {
	mu     sync.Mutex // held during each write of the page; nothing else is locked under it
	open   bool       // guarded by mu: the page may be written again
	buf    []byte     // the page. This and the rest belong to the baton holder
	end    int        // where its records end
	at     Addr
	salt   uint64
	group  uint64
	count  uint64 // of records
	before uint32 // digest
}

// KeepOpen lets Extend add to this group, if it turns out to be a record group of one page.
func (g *Group) KeepOpen() { g.keep = true }

// extendable reports whether the pages at hand are such a group, whole.
func (g *Group) extendable() bool {
	return g.kind == RecordGroup && g.before == 0 && len(g.pages) == 1 && g.pages[0].kind == KindRecord
}

// writeOpen is write for a group that is kept open.
func (g *Group) writeOpen(count uint64) error {
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
	l.end, l.at, l.salt = PageSize-len(g.stream), p.addr, g.s.tail.header.salt
	l.group, l.count, l.before = m.group, count, m.digest
	l.open = true
	return nil
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
	if err := s.notShortened(); err != nil {
		return 0, false, s.fail(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return 0, false, nil
	}
	before := [MuxSize]byte(l.buf)
	copy(l.buf[l.end:], p)
	m := getMux(l.buf)
	m.count, m.lag = l.count+count, s.lagOf(l.group)
	m.put(l.buf)
	crc := pageCRC(l.salt, l.at, l.buf)
	binary.LittleEndian.PutUint32(l.buf, crc)
	if _, err := s.file.WriteAt(l.buf, int64(l.at)*PageSize); err != nil {
		copy(l.buf, before[:])
		clear(l.buf[l.end:])
		_, _ = s.file.WriteAt(l.buf, int64(l.at)*PageSize)
		l.open = false
		return 0, false, s.fail(err)
	}
	l.end += len(p)
	l.count += count
	s.tail.digest = chain(l.before, crc)
	return l.group, true, nil
}
