package logstore

import (
	"sync"
	"sync/atomic"
)

// Of a page that was written and not synced the system may show something else at any time: its write-back fails, the page is marked clean
// and dropped, and who reads it next gets what the device has, which is an older page. Whoever syncs is told of that later, or never, if
// nobody does. So nothing is read in place that no sync has covered:
//
//  1. A page of a group is unsynced from its write until a sync that began behind its group's Commit has succeeded, and checked, as this
//     process has written it, from then on. Both are bits of the mapping. The first is set before the page's address is known to others;
//     at the sync the second is set before the first is cleared. So who finds neither bit may verify the page in place.
//  2. An unsynced page or run is read as a copy, which is checked each time. The checksum covers the place of the page and the salt of the
//     segment's life, and in one life a place is written once, but for the last page of the log, which is no page of a tree. So what
//     passes is what was written, and what does not is an error: ErrFailed once the store has failed.
//  3. Private pages are synced before they are read for the first time. That costs no more writes, since they have to be synced before
//     the group that lists them, and their readers keep slices of them for long.
//  4. After a failed sync no sync succeeds, so what was unsynced stays that.
//
// What was durable is so never answered from a page that is not: package override keeps a version in memory until the page that takes its
// place is synced.
type unsynced struct {
	mu      sync.Mutex // guards pages; nothing else is locked under it
	pages   []unsyncedPage
	records atomic.Int64 // of pages, those with logged values, which are in memory
}

// unsyncedPage is a page of a tree, or the first one of a run.
type unsyncedPage struct {
	c     *chunk
	o     uint64 // in the chunk
	group uint64
	span  uint8 // pages that are in memory, of records with logged values; 0: none is
}

// add takes in the pages that a group has just written. Baton holder.
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

// synced notes that a sync has covered all groups up to one.
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

const maxUnsyncedKept = 1 << 14 // entries that the list keeps room for when it has become short: 400 KiB

// copyUnsynced is verifyPage for a page, or run, that no sync has covered.
func (s *Store) copyUnsynced(a Addr, kind Kind, salt uint64) ([]byte, error) {
	p, err := s.copyChecked(a, kind, salt)
	if err != nil {
		if failed := s.Failed(); failed != nil { // it may be whole when the file is opened again, or was never durable
			return nil, &lostError{failed, err}
		}
	}
	return p, err
}

// lostError is what reading a page answers that was not synced before the store failed, and is not whole any more.
type lostError struct{ failed, page error }

func (e *lostError) Error() string {
	return e.failed.Error() + "; not synced before that: " + e.page.Error()
}
func (e *lostError) Unwrap() error { return e.failed }

// privateSyncs tells which private pages a sync has covered.
type privateSyncs struct {
	written atomic.Uint64 // counts writes of private pages
	synced  atomic.Uint64 // those up to this one are durable; changed under syncing
}

// wrotePrivate notes the newest write in a private segment.
func (sp *space) wrotePrivate(n uint32, write uint64) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.segments[n].wrote = write
}

// settlePrivate makes sure that what a private segment holds at a is durable, before it is read in place.
func (s *Store) settlePrivate(a Addr) error {
	if s.opts.ReadOnly {
		return nil
	}
	sp := s.space
	sp.mu.Lock()
	wrote := uint64(0)
	if n := s.segmentOf(a); n < uint32(len(sp.segments)) && sp.segments[n].state == segmentPrivate {
		wrote = sp.segments[n].wrote
	}
	sp.mu.Unlock()
	if wrote <= s.private.synced.Load() {
		return nil
	}
	return s.SyncPrivate()
}
