package logstore

// UsedPages are the pages of the file that a walk through it has found references to. They take a bit for each page of a segment that one of
// them lies in, and about 64 bytes for each such segment. One goroutine uses them at a time.
//
// A page belongs to one node, one value or one write set that left memory. A file in which two references lead to a page is damaged, or
// made to do harm: a reference takes a few bytes, and following it takes time and memory each time. So whoever walks through all of a
// file notes where a reference leads before it follows the reference.
type UsedPages struct {
	segmentPages uint64
	segments     map[uint64][]uint64
	logged       map[Addr]uint16 // of pages in the set, which of their logged values are
}

// NewUsedPages returns an empty set.
func (s *Store) NewUsedPages() *UsedPages {
	return &UsedPages{segmentPages: uint64(s.segmentPages), segments: map[uint64][]uint64{}}
}

// Add adds n pages from a on, which lie in one segment, and reports whether none of them was in the set.
func (p *UsedPages) Add(a Addr, n int64) (all bool) {
	words := p.segments[a/p.segmentPages]
	if words == nil {
		words = make([]uint64, (p.segmentPages+63)/64)
		p.segments[a/p.segmentPages] = words
	}
	all = true
	eachWord(a%p.segmentPages, n, func(i, mask uint64) {
		all = all && words[i]&mask == 0
		words[i] |= mask
	})
	return all
}

// Has reports whether a page is in the set.
func (p *UsedPages) Has(a Addr) bool {
	words := p.segments[a/p.segmentPages]
	o := a % p.segmentPages
	return words != nil && words[o/64]>>(o%64)&1 != 0
}

// UseOnce adds the pages that a reference leads to, which lie in one segment. It is damage if they are not in the file, or if one of them is
// in use already.
func (s *Store) UseOnce(p *UsedPages, a Addr, pages int64) error {
	if !s.InFile(a, pages) {
		return s.pageError(a, "a reference leads to %d pages here, which are not in the file", pages)
	}
	if !p.Add(a, pages) {
		return s.pageError(a, "a second reference leads here")
	}
	return nil
}

// UseListOnce adds the run at a and what it lists: the pages of a large value or of a write set. It returns the extents, nil if the run
// holds a value.
func (s *Store) UseListOnce(p *UsedPages, a Addr) ([]Extent, error) {
	if err := s.UseOnce(p, a, 1); err != nil { // before the run is read: one that many lead to is read once
		return nil, err
	}
	payload, err := s.Run(a)
	if err != nil {
		return nil, err
	}
	if rest := RunPages(int64(len(payload))) - 1; rest > 0 {
		if err := s.UseOnce(p, a+1, rest); err != nil {
			return nil, err
		}
	}
	extents, err := s.ListAt(a)
	if err != nil {
		return nil, err
	}
	for _, x := range extents {
		if err := s.UseOnce(p, x.Addr, x.Pages()); err != nil {
			return nil, err
		}
	}
	return extents, nil
}
