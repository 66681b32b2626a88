package mvcc

import (
	"flashdbm/logstore"
	"flashdbm/override"
)

// Still is the tree of an engine that only reads, for who looks a record up without calling the engine.
type Still struct {
	Root   logstore.PageID
	Moved  []MovedPage // a hash table of a power of two places: see Place
	Mapped []logstore.Mapped
	Shift  uint // each of Mapped has 1 << Shift pages
}

// MovedPage says where the page with a name lies. In a free place it is zero: no page has the name 0.
type MovedPage struct {
	Name logstore.PageID
	Addr logstore.Addr
}

const (
	mostMoved = 1 << 16 // entries of the table, above which a tree is not shown: 2 MiB, some milliseconds at Open
	minMoved  = 16      // places
)

// Place returns where in the table of moved pages a name is looked for first, and then in the places behind it, round and round.
func (s *Still) Place(name logstore.PageID) int {
	return int(name * movedHash >> 32 & uint64(len(s.Moved)-1))
}

const movedHash = 0x9E3779B97F4A7C15

// IsStill reports whether nothing of the tree will change before Close, but that more of its pages are verified: the engine only reads a
// file that nobody writes, and what there was to redo is in the tree.
func (e *Engine) IsStill() bool {
	o := &e.opts.Store
	return o.ReadOnly && !o.Beside && e.tree.tables.redo.Load() == nil && !e.tree.lags() && e.Failed() == nil
}

// Still returns the tree if it is still and not too much of it lies elsewhere than its names say. A page that Mapped calls overridden, or
// whose name is not an address, lies where Moved says, and bears its name, or is in memory; one that is not yet checked may be damaged. For
// what is neither checked nor found, ask the engine.
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
