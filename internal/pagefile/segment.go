package pagefile

import (
	"slices"

	"flashdbm/internal/backup"
	"flashdbm/logstore"
)

// leastAgreeing is how many pages must imply the same seed before it counts. Of 65,536 pages of random bytes some 340
// look like pages of the log; the probability that two of those imply the same seed is 1 in 75,000.
const leastAgreeing = 2

// Segment returns what is known of segment n. The first call reads its header. If the header is lost, Recover finds
// out more.
func (x *File) Segment(n uint32) *Segment {
	g := x.segments[n]
	if g != nil {
		return g
	}
	g = &Segment{}
	p := make([]byte, logstore.PageSize)
	if x.Read(x.FirstPage(n)+logstore.HeaderPage(n), p) == nil {
		if h, ok := logstore.DecodeSegmentHeader(p); ok && h.Segment == n && h.UUID == x.UUID {
			g.Header, g.HasHeader, g.Known, g.Seed = h, true, true, logstore.SeedOf(h.Salt)
			if h.Predecessor != 0 {
				x.before = append(x.before, h.Predecessor)
			}
		}
	}
	x.segments[n] = g
	return g
}

// NoteSalt notes the salt of a segment by a checkpoint.
func (x *File) NoteSalt(n uint32, salt uint64) {
	if salt != 0 {
		x.salts[n] = append(x.salts[n], salt)
	}
}

// Recover tries to find the seed of a segment whose header is lost. The caller should first read the headers of all
// other segments, and note the salts of checkpoints' space maps.
func (x *File) Recover(n uint32) error {
	g := x.Segment(n)
	if g.Known {
		return nil
	}
	var candidates []logstore.Seed
	known := map[uint64]bool{}
	for _, other := range x.segments {
		known[other.Header.Salt] = true
	}
	for _, salt := range append(slices.Clone(x.salts[n]), x.before...) {
		if !known[salt] && len(candidates) < maxCandidates {
			known[salt] = true
			candidates = append(candidates, logstore.SeedOf(salt))
		}
	}
	// Pages of an earlier life of the segment may lie after those of the present one, which begin after the
	// header. So the seed of the lowest page wins.
	type vote struct {
		pages int
		first uint64
	}
	votes := map[logstore.Seed]vote{}
	add := func(seed logstore.Seed, a uint64, enough int) {
		v, ok := votes[seed]
		if !ok {
			v.first = a
		}
		v.pages += enough
		votes[seed] = v
	}
	err := x.eachPage(x.FirstPage(n)+logstore.HeaderPage(n)+1, min(x.FirstPage(n+1), x.Pages), func(a uint64, p []byte) {
		for _, seed := range candidates {
			if logstore.VerifyPage(seed, a, p) {
				add(seed, a, leastAgreeing)
				return
			}
		}
		if h := logstore.DecodePageHead(p); h.InLog() {
			if seed, ok := logstore.ImpliedSeed(a, p); ok {
				add(seed, a, 1)
			}
		}
	})
	lowest := x.FirstPage(n + 1)
	for seed, v := range votes {
		if v.pages >= leastAgreeing && v.first < lowest {
			lowest, g.Known, g.Seed = v.first, true, seed
		}
	}
	return err
}

// MayHoldMore reports whether a segment without a header may hold groups after the given one whose pages Recover
// could not verify. That is so if the header is damaged, unlike a header that was never written or was zeroed before
// the segment's space was returned; or if the first page, whose seed is not known, names such a group. In a segment
// whose seed is known the first page is sound, because the header was written for that page. Instead of the header
// there may be the end mark of a backup that was opened as a database and has grown since.
func (x *File) MayHoldMore(n uint32, group uint64) bool {
	if x.Segment(n).HasHeader {
		return false
	}
	p := make([]byte, logstore.PageSize)
	header := x.FirstPage(n) + logstore.HeaderPage(n)
	err := x.Read(header+1, p)
	h, ok := x.Sound(header+1, p)
	if err == nil && ok {
		return false
	}
	if err == nil && h.InLog() && h.No > group {
		return true
	}
	if x.Read(header, p) != nil {
		return true
	}
	if backup.IsMark(p, header*logstore.PageSize) {
		p = p[backup.MarkSize:]
	}
	return slices.Max(p) != 0
}

// maxCandidates is the most salts that are tried on each page of a segment without a header.
const maxCandidates = 64

// Sound reports whether the page at a, whose bytes are p, was written in the present life of its segment: as a page
// of the log, or as the first page of a run in a private segment.
func (x *File) Sound(a uint64, p []byte) (logstore.PageHead, bool) {
	n := x.SegmentOf(a)
	h := logstore.DecodePageHead(p)
	g := x.Segment(n)
	return h, a > x.FirstPage(n)+logstore.HeaderPage(n) && g.Known && h.InLog() && logstore.VerifyPage(g.Seed, a, p)
}

// ReadSound reads the page at a, and returns an error unless it is sound.
func (x *File) ReadSound(a uint64, p []byte) (logstore.PageHead, error) {
	if err := x.Read(a, p[:logstore.PageSize]); err != nil {
		return logstore.PageHead{}, err
	}
	h, ok := x.Sound(a, p)
	switch {
	case ok:
		return h, nil
	case !x.Segment(x.SegmentOf(a)).Known:
		return h, x.Error(a, "the header of segment %d is lost", x.SegmentOf(a))
	}
	return h, x.Error(a, "checksum")
}

// Span returns how many pages the sound page at a takes together with its raw pages; 1 if its head gives an
// impossible number.
func (x *File) Span(a uint64, h *logstore.PageHead, p []byte) uint64 {
	n := uint64(1)
	switch h.Kind {
	case logstore.KindRun:
		if r, ok := logstore.DecodeRunHead(p, x.SegmentPages); ok {
			n = uint64(logstore.RunPages(r.Bytes))
		}
	case logstore.KindRecord:
		if s, ok := logstore.DecodeSpan(h.Name); ok && !h.Grows {
			n = uint64(s.RawPages) + 1
		}
	}
	if x.SegmentOf(a+n-1) != x.SegmentOf(a) || a+n > x.Pages {
		return 1
	}
	return n
}

// EachSound calls fn with each sound page of a segment. It skips raw pages, which hold what users wrote. p is valid
// until fn returns.
func (x *File) EachSound(n uint32, fn func(a uint64, h logstore.PageHead, p []byte)) error {
	if !x.Segment(n).Known {
		return nil
	}
	next := x.FirstPage(n) + logstore.HeaderPage(n) + 1
	return x.eachPage(next, min(x.FirstPage(n+1), x.Pages), func(a uint64, p []byte) {
		if a < next {
			return
		}
		h, ok := x.Sound(a, p)
		if !ok {
			return
		}
		next = a + x.Span(a, &h, p)
		fn(a, h, p)
	})
}
