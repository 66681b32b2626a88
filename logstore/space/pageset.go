package space

// Pages is a set of pages of the file to which a walk through the file has found references. It takes a bit for
// each page of a segment that has a page in the set, and about 64 bytes for each such segment. One goroutine
// uses it at a time.
//
// A page belongs to one node, one value, or one write set that left memory. If two references lead to a page,
// the file is damaged or hostile: a reference takes a few bytes, and following it costs time and memory each
// time. So a walk through a whole file adds the target of a reference to the set before it follows the
// reference.
type Pages struct {
	segmentPages uint64
	segments     map[uint64]bitmap
	logged       map[Addr]uint16 // for pages in the set: which of their logged values are in the set
}

// NewPages returns an empty set of pages of a file with segments of segmentPages pages.
func NewPages(segmentPages uint32) *Pages {
	return &Pages{segmentPages: uint64(segmentPages), segments: map[uint64]bitmap{}}
}

// Add adds n pages from a on, which lie in one segment, and reports whether none of them was in the set.
func (p *Pages) Add(a Addr, n int64) (all bool) {
	words := p.segments[a/p.segmentPages]
	if words == nil {
		words = make(bitmap, (p.segmentPages+63)/64)
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
func (p *Pages) Has(a Addr) bool { return p.segments[a/p.segmentPages].has(a % p.segmentPages) }

// AddLogged adds logged values of one page.
func (p *Pages) AddLogged(a Addr, mask uint16) {
	p.Add(a, 1)
	if p.logged == nil {
		p.logged = map[Addr]uint16{}
	}
	p.logged[a] |= mask
}

// Logged returns which logged values of a page are in the set.
func (p *Pages) Logged(a Addr) uint16 { return p.logged[a] }
