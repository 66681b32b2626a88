package salvage

import (
	"bytes"
	"maps"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// An image is a page of the tree at an address, with the group asOf whose state it has: statements of later groups
// about its keys are newer. If that group is not known exactly, asOf is a lower bound.
type image struct {
	addr logstore.Addr
	asOf uint64
}

// A flush collects the parts of a flush found so far.
type flush struct {
	pages []entry // pages of the tree
	whole bool    // all parts so far are complete
	last  uint64
	since uint64 // group whose state the tree had before the flush: a lower bound for asOf of its pages
}

// replay reads the log after the checkpoint, installs page groups and flushes, and collects facts: step 2 of
// the package comment.
func (s *salvager) replay() error {
	s.places, s.removed = map[logstore.PageID]image{}, map[logstore.PageID]bool{}
	s.flushes = map[uint64]*flush{}
	newest, whole := s.newestGroup()
	s.result.Newest = newest
	if !whole {
		s.result.Dropped = newest
	}
	behind := uint64(0)
	if c := s.checkpoint; c != nil {
		s.entries = make(map[logstore.PageID]logstore.Addr, len(c.table.Entries))
		for _, e := range c.table.Entries {
			s.entries[e.Name] = e.Addr
		}
		behind, s.low, s.base = min(c.table.Redo, c.table.Base), c.table.Redo, c.table.Base
	}
	start := s.logStart()
	last := start - 1
	err := s.groups(behind, func(g group) error {
		if s.checkpoint != nil && g.no > last+1 {
			s.lose(last+1, g.no-1)
			s.broken = true
		}
		last = max(last, g.no)
		if g.no == newest && !whole && g.kind != logstore.FlushGroup {
			return nil
		}
		if !g.whole && s.checkpoint != nil && g.no >= start {
			s.lose(g.no, g.no)
			s.broken = s.broken || g.kind == logstore.PageGroup
		}
		return s.replayGroup(&g)
	})
	if err != nil {
		return err
	}
	if err := s.end(newest); err != nil {
		return err
	}
	if s.checkpoint == nil {
		s.installEndless(newest)
		return nil
	}
	for _, first := range slices.Sorted(maps.Keys(s.flushes)) { // of two flushes that seem to have the same base, the later one wins
		f := s.flushes[first]
		if err := s.imageFacts(s.baseOf(first, f), f.pages, false); err != nil {
			return err
		}
	}
	return nil
}

// baseOf estimates the base group of a flush whose end is lost. The base is at least that of the previous flush,
// and below the flush's first part. In between, baseOf chooses the group where the redo records agree best with the
// leaves: the leaves have the values of records up to the base, and not those of later ones. Not all records need
// to agree, because some may be missing.
func (s *salvager) baseOf(first uint64, f *flush) uint64 {
	newest := map[string]*fact{}
	for i := range s.facts {
		if x := &s.facts[i]; x.leaf == 0 && x.ref == nil && x.asOf > f.since && x.asOf < first {
			newest[x.key] = x
		}
	}
	score := map[uint64]int{}
	for _, e := range f.pages {
		if e.kind != logstore.KindTree || e.level > 0 {
			continue
		}
		s.eachCell(e.addr, func(key []byte, c btree.Cell) {
			x := newest[string(key)]
			switch {
			case x == nil || c.Kind() != btree.Inline && !x.deleted:
			case !x.deleted && bytes.Equal(x.value, c.Value()):
				score[x.asOf]++
			default:
				score[x.asOf]--
			}
		})
	}
	best, most, sum := f.since, 0, 0
	for _, no := range slices.Sorted(maps.Keys(score)) {
		if sum += score[no]; sum >= most {
			best, most = no, sum
		}
	}
	return best
}

// logStart returns the first group that must exist: the one where recovery would begin to scan. If no superblock
// names it, that is the first record or page group after the redo start.
func (s *salvager) logStart() uint64 {
	c := s.checkpoint
	if c == nil {
		return 0
	}
	for i := range s.f.Supers {
		if sb := &s.f.Supers[i]; sb.Err == nil && sb.LastGroup == c.last {
			return sb.Start.Group
		}
	}
	start := c.last + 1
	_ = s.groups(c.table.Redo, func(g group) error {
		if g.kind == logstore.RecordGroup || g.kind == logstore.PageGroup {
			start = min(start, g.no)
		}
		return nil
	})
	return start
}

// lose notes that groups, or parts of them, are missing.
func (s *salvager) lose(from, to uint64) {
	s.result.LostGroups += to - from + 1
	s.missing(Missing{Scope: Groups, FirstGroup: from, LastGroup: to})
}

func (s *salvager) replayGroup(g *group) error {
	base := uint64(0)
	if s.checkpoint != nil {
		base = s.checkpoint.table.Base
	}
	switch g.kind {
	case logstore.RecordGroup:
		if g.no > s.low {
			return s.recordFacts(g)
		}
	case logstore.PageGroup:
		switch {
		case g.no <= base:
		case s.broken:
			s.base = max(s.base, g.no)
			return s.imageFacts(g.no, g.pages, g.whole)
		default:
			s.base = g.no
			s.install(g.pages, g.no)
		}
	case logstore.FlushGroup:
		return s.replayFlush(g, base)
	}
	return nil
}

// install makes the names of tree pages lead to these pages.
func (s *salvager) install(pages []entry, asOf uint64) {
	for _, r := range pages {
		if r.kind == logstore.KindTree {
			s.places[r.name] = image{r.addr, asOf}
			delete(s.removed, r.name)
		}
	}
}

func (s *salvager) replayFlush(g *group, base uint64) error {
	if len(g.pages) == 0 {
		return nil
	}
	end := g.pages[len(g.pages)-1]
	var stream []byte
	for _, r := range g.pages {
		if r.kind != logstore.KindFlush {
			continue
		}
		if _, err := s.f.ReadSound(r.addr, s.buf); err != nil {
			return nil
		}
		stream = append(stream, s.buf[logstore.MuxSize:logstore.PageSize]...)
	}
	if stream == nil { // this part does not have the flush's end, or the end is lost
		first := g.no
		if h, err := s.f.ReadSound(end.addr, s.buf); err == nil && end.last {
			first = h.Count
		}
		f := s.flushes[first]
		if f == nil {
			f = &flush{whole: true, since: s.base}
			s.flushes[first] = f
		}
		f.pages, f.whole, f.last = append(f.pages, g.pages...), f.whole && g.whole, g.no
		return nil
	}
	x, err := override.DecodeFlushEnd(stream, g.no)
	if err != nil {
		return s.unfinished(g.no, g.pages, g.no)
	}
	pages, whole := g.pages, g.whole
	if f := s.flushes[x.First]; f != nil {
		pages, whole = append(f.pages, g.pages...), f.whole && g.whole
		delete(s.flushes, x.First)
	}
	if x.Base <= base && s.checkpoint != nil {
		return nil
	}
	s.base = max(s.base, x.Base)
	switch {
	case s.checkpoint != nil && (s.broken || !whole):
		s.broken = true
		return s.imageFacts(x.Base, pages, whole)
	}
	s.install(pages, x.Base)
	for _, r := range x.Retired {
		s.retire(r, x.Base)
	}
	for _, name := range x.Removed {
		s.remove(name)
	}
	return nil
}

// retire notes that a page has its own address as its name from now on, as the end of a flush with this base says.
// The flush may already have an image under the new name, if the page was changed after it lost the old name.
func (s *salvager) retire(r override.TableEntry, base uint64) {
	at, ok := s.places[r.Name]
	if !ok || at.addr != r.Addr {
		at = image{r.Addr, s.low}
		if s.checkpoint == nil {
			at.asOf = s.asOfPage(r.Addr)
		}
	}
	if newer, ok := s.places[r.Addr]; !ok || newer.asOf < base {
		s.places[r.Addr] = at
	}
	delete(s.places, r.Name)
	delete(s.entries, r.Name)
}

// asOfPage returns a lower bound for the group whose state the page at an address has, if there is no
// checkpoint.
func (s *salvager) asOfPage(a logstore.Addr) uint64 {
	if h, err := s.f.ReadSound(a, s.buf); err == nil && h.No > 0 {
		return h.No - 1
	}
	return 0
}

func (s *salvager) remove(name logstore.PageID) {
	delete(s.places, name)
	delete(s.entries, name)
	s.removed[name] = true
}

// unfinished adds a flush whose end is damaged.
func (s *salvager) unfinished(first uint64, pages []entry, no uint64) error {
	f := s.flushes[first]
	if f == nil {
		f = &flush{since: s.base}
		s.flushes[first] = f
	}
	f.pages, f.last = append(f.pages, pages...), no
	return nil
}

// installEndless installs, if there is no checkpoint, the flushes whose end is lost, except the one that has the
// newest group. Each page has the state of a group before the first part of its flush.
func (s *salvager) installEndless(newest uint64) {
	for first, f := range s.flushes {
		if f.last == newest {
			continue
		}
		for _, r := range f.pages {
			if r.kind != logstore.KindTree {
				continue
			}
			at, ok := s.places[r.name]
			if !ok && !s.removed[r.name] || ok && at.asOf < first-1 {
				s.places[r.name] = image{r.addr, first - 1}
			}
		}
	}
}

// place returns the image with a name, if one is known.
func (s *salvager) place(name logstore.PageID) (image, bool) {
	if at, ok := s.places[name]; ok {
		return at, true
	}
	if a, ok := s.entries[name]; ok {
		return image{a, s.low}, true
	}
	if !logstore.IsAddr(name) || name >= s.f.Pages || s.removed[name] {
		return image{}, false
	}
	if s.checkpoint == nil {
		return image{name, s.asOfPage(name)}, true
	}
	return image{name, s.low}, true
}

// node reads the page with a name into p.
func (s *salvager) node(name logstore.PageID, p []byte) (at image, n btree.Node, err error) {
	at, ok := s.place(name)
	if !ok {
		return at, n, s.f.Error(0, "no page has the name %#x", name)
	}
	h, err := s.f.ReadSound(at.addr, p)
	switch {
	case err != nil:
		return at, n, err
	case h.Kind != logstore.KindTree:
		return at, n, s.f.Error(at.addr, "kind %d where a page of the tree belongs", h.Kind)
	case h.Name != name && at.addr != name:
		return at, n, s.f.Error(at.addr, "has the name %#x instead of %#x", h.Name, name)
	}
	if err := btree.CheckPage(p); err != nil {
		return at, n, s.f.Error(at.addr, "%v", err)
	}
	return at, btree.View(p), nil
}
