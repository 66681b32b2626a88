package logstore

import (
	"sync"
	"sync/atomic"
)

// The system may replace a page that was written and not synced at any time: its write-back fails, the page is
// marked clean and dropped, and the next read returns what the device has, which is an older page. Only a later
// sync reports that, if anybody syncs. So no page is read in place before a sync has covered it:
//
//  1. A page of a group is *unsynced* from its write until the success of a sync that began after the group's
//     Commit. From then on it is *checked*, as this process wrote it. Both states are bits of the mapping. The
//     unsynced bit is set before anybody else knows the page's address; at the sync the checked bit is set before
//     the unsynced bit is cleared. So a page with neither bit may be verified in place.
//  2. An unsynced page or run is read as a copy, which is verified each time. The checksum covers the page's
//     address and the salt of the segment's life, and within one life a place is written once. (The last page of
//     the log is the exception, and it is no page of a tree.) So a copy that passes is what was written, and a copy
//     that fails is an error: ErrFailed once the store has failed.
//  3. Private pages are synced before they are first read. That costs no extra sync, because they have to be synced
//     before the group that lists them, and their readers keep slices of them for long.
//  4. After a failed sync no sync succeeds, so unsynced pages stay unsynced.
//
// Hence a durable record is never answered from a page that is not durable: package override keeps a version in
// memory until the page that replaces it is synced.
type unsynced struct {
	mu      sync.Mutex // guards pages; a leaf lock
	pages   []unsyncedPage
	records atomic.Int64 // number of pages with logged values that are in memory
}

// unsyncedPage is a page of a tree, or the first page of a run.
type unsyncedPage struct {
	c     *chunk
	o     uint64 // index in the chunk
	group uint64
	span  uint8 // for records with logged values: number of pages that are in memory; else 0
}

// add records the pages of a group that has just been written. Called by the log's appender.
func (u *unsynced) add(g *Group, group uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range g.pages {
		if p := &g.pages[i]; p.kind == KindTree || p.kind == KindRun || p.values > 0 {
			if c, o := g.s.chunkOf(p.addr); c != nil {
				c.sets().unsynced.set(o)
				n := unsyncedPage{c, o, group, 0}
				if p.values > 0 {
					n.span = uint8(p.span())
					u.records.Add(int64(n.span))
				}
				u.pages = append(u.pages, n)
			}
		}
	}
}

// synced records that a sync has covered all groups up to the given one.
func (u *unsynced) synced(group uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for n < len(u.pages) && u.pages[n].group <= group {
		p := &u.pages[n]
		bits := p.c.sets()
		bits.checked.set(p.o)
		bits.unsynced.unset(p.o)
		if p.span > 0 {
			bits.record.setAll(p.o, int(p.span))
			u.records.Add(-int64(p.span))
			t := bits.tail[p.o>>8].Load()
			t.pages[p.o&255].Store(nil)
			if t.kept--; t.kept == 0 {
				bits.tail[p.o>>8].Store(nil)
			}
		}
		n++
	}
	u.pages = append(u.pages[:0], u.pages[n:]...)
	if cap(u.pages) > maxUnsyncedKept && len(u.pages) < maxUnsyncedKept/2 {
		u.pages = append([]unsyncedPage(nil), u.pages...)
	}
}

const maxUnsyncedKept = 1 << 14 // entries for which the list keeps its memory when it has become short: 400 KiB

// copyUnsynced is verifyPage for a page or run that no sync has covered.
func (s *reader) copyUnsynced(a Addr, kind Kind, salt uint64) ([]byte, error) {
	p, err := s.copyChecked(a, kind, salt)
	if err != nil {
		if failed := s.Failed(); failed != nil { // the page may be whole after the next Open, or may never have been durable
			return nil, &lostError{failed, err}
		}
	}
	return p, err
}

// lostError is the error for a page that was not synced before the store failed, and that fails verification now.
type lostError struct{ failed, page error }

func (e *lostError) Error() string {
	return e.failed.Error() + "; not synced before that: " + e.page.Error()
}
func (e *lostError) Unwrap() error { return e.failed }

// privateSyncs records which private pages a sync has covered.
type privateSyncs struct {
	written atomic.Uint64 // number of writes of private pages
	synced  atomic.Uint64 // writes up to this number are durable; changed under syncing
}

// syncBeforeRead makes the content of the private segment at a durable, unless it is, before the segment is
// read in place.
func (s *syncer) syncBeforeRead(a Addr) error {
	if s.opts.ReadOnly {
		return nil
	}
	if s.space.PrivateWrite(a) <= s.private.synced.Load() {
		return nil
	}
	return s.SyncPrivate()
}
