package logstore

// NewUsedPages returns an empty set of pages of the file.
func (s *disk) NewUsedPages() *UsedPages { return NewPageSet(s.segmentPages) }

// UseOnce adds the pages that a reference leads to, which lie in one segment. It is damage if they are not in the
// file, or if one of them is in use already.
func (s *disk) UseOnce(p *UsedPages, a Addr, pages int64) error {
	if !s.InFile(a, pages) {
		return s.pageError(a, "a reference leads to %d pages here, which are not in the file", pages)
	}
	if !p.Add(a, pages) {
		return s.pageError(a, "a second reference leads here")
	}
	return nil
}

// UseListOnce adds the run at a and what it lists: the pages of a large value or of a write set. It returns the
// extents, nil if the run holds a value.
func (s *reader) UseListOnce(p *UsedPages, a Addr) ([]Extent, error) {
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
