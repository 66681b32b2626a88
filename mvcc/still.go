package mvcc

import (
	"flashdbm/logstore"
	"flashdbm/override"
)

// Still is the tree of an engine that only reads, for callers that look records up without calling the engine.
type Still struct {
	Root   logstore.PageID
	Moved  []MovedPage // a hash table whose size is a power of two: see Place
	Mapped []logstore.Mapped
	Shift  uint // each of Mapped has 1 << Shift pages
}

// MovedPage says where the page with a name is. It is zero in a free place: no page has the name 0.
type MovedPage struct {
	Name logstore.PageID
	Addr logstore.Addr
}

const (
	mostMoved = 1 << 16 // most entries of the table; with more, Still returns false. 2 MiB, some milliseconds at Open
	minMoved  = 16      // least size of the table
)

// Place returns the place in Moved where the search for a name begins; it goes on at the next places, and after the
// last at the first.
func (s *Still) Place(name logstore.PageID) int {
	return int(name * movedHash >> 32 & uint64(len(s.Moved)-1))
}

const movedHash = 0x9E3779B97F4A7C15

// IsStill reports whether nothing of the tree will change before Close, except that more of its pages get verified:
// the engine only reads a file that nobody writes, and the tree has everything that was to be redone.
func (e *Engine) IsStill() bool {
	o := &e.opts.Store
	return o.ReadOnly && !o.Beside && e.tree.tables.redo.Load() == nil && !e.tree.lags() && e.Failed() == nil
}

// Still returns the tree if IsStill, and if not too many of its pages are elsewhere than their names say. A page that
// Mapped calls overridden, or whose name is not an address, is where Moved says and bears its name, or is in memory.
// A page that is not verified yet may be damaged. For a page that is neither verified nor found, ask the engine.
func (e *Engine) Still() (s Still, ok bool) {
	if !e.IsStill() {
		return Still{}, false
	}
	seq := e.marks.applied.Load()
	var moved []MovedPage
	if !e.pages.Moved(seq, mostMoved, func(name logstore.PageID, a logstore.Addr) { moved = append(moved, MovedPage{name, a}) }) {
		return Still{}, false
	}
	s.Root = override.Root
	places := minMoved
	for places < 2*len(moved) {
		places *= 2
	}
	s.Moved = make([]MovedPage, places)
	for _, m := range moved {
		i := s.Place(m.Name)
		for s.Moved[i].Name != 0 {
			i = (i + 1) & (places - 1)
		}
		s.Moved[i] = m
	}
	s.Mapped, s.Shift = e.store.Mapped()
	return s, true
}
