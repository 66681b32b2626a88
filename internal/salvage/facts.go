package salvage

import (
	"bytes"
	"slices"
	"strings"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
)

// A fact is the statement of a group about a key: its value, or that it was
// deleted.
type fact struct {
	key     string
	asOf    uint64
	deleted bool
	value   []byte           // an inline or logged value
	ref     *btree.Ref       // reference to any other value
	leaf    logstore.Addr    // leaf in which the fact was found; 0: it is a redo record
	pages   [2]logstore.Addr // first page of the redo record, and the page after its last
}

// newer reports whether the fact is newer than a leaf of the tree as of the given group. A leaf that was not
// installed was written after all installed leaves, so its facts are newer even if the two groups are equal.
func (f *fact) newer(asOf uint64) bool { return f.asOf > asOf || f.asOf == asOf && f.leaf != 0 }

// addFact adds a fact. Facts of a group must be added in the order of the log.
func (s *salvager) addFact(f fact) { s.facts = append(s.facts, f) }

// sortFacts sorts the facts by key and keeps the newest of each key.
func (s *salvager) sortFacts() {
	slices.SortStableFunc(s.facts, func(a, b fact) int {
		if c := strings.Compare(a.key, b.key); c != 0 {
			return c
		}
		switch { // newest first; among facts of one group, the last one wins
		case a.asOf > b.asOf:
			return -1
		case a.asOf < b.asOf:
			return 1
		}
		return 0
	})
	kept := s.facts[:0]
	for i := 0; i < len(s.facts); {
		end := i + 1
		best := i
		for end < len(s.facts) && s.facts[end].key == s.facts[i].key {
			if s.facts[end].asOf == s.facts[i].asOf {
				best = end
			}
			end++
		}
		kept = append(kept, s.facts[best])
		i = end
	}
	clear(s.facts[len(kept):])
	s.facts = kept
}

// factOf returns the newest fact of a key, nil if there is none.
func (s *salvager) factOf(key []byte) *fact {
	i, ok := slices.BinarySearchFunc(s.facts, key, func(f fact, key []byte) int { return strings.Compare(f.key, string(key)) })
	if !ok {
		return nil
	}
	return &s.facts[i]
}

// factsIn returns the facts of keys from low on and below high; an empty high is above all keys.
func (s *salvager) factsIn(low, high []byte) []fact {
	from := s.firstFact(low)
	to := len(s.facts)
	if len(high) > 0 {
		to = max(from, s.firstFact(high))
	}
	return s.facts[from:to]
}

func (s *salvager) firstFact(key []byte) int {
	i, _ := slices.BinarySearchFunc(s.facts, key, func(f fact, key []byte) int { return strings.Compare(f.key, string(key)) })
	return i
}

// recordFacts adds facts for the records in the sound pages of a record group. After a missing page, it skips to
// the first record that is certain to be one: see firstRecord.
func (s *salvager) recordFacts(g *group) error {
	r := recordReader{s: s, no: g.no}
	next := uint32(0) // index of the next page expected
	for i := range g.pages {
		e := &g.pages[i]
		index := e.index
		if e.last {
			index -= min(e.span, e.index)
		}
		if index != next {
			r.end()
			r.amid = true
		}
		next = index + e.span
		if e.kind == logstore.KindRecord {
			r.page(e)
		}
	}
	r.end()
	if len(r.layers) > 0 {
		s.layerFacts(g.no, r.layers)
	}
	return nil
}

// recordReader joins neighbouring pages of a record group to streams, and reads their records.
type recordReader struct {
	s         *salvager
	no        uint64
	stream    []byte
	starts    []int // offset in the stream of each page
	pages     []*entry
	amid      bool // the next page may begin in the middle of a record
	tentative bool // the stream may begin in the middle of a record
	layers    [][]logstore.Addr
}

func (r *recordReader) page(e *entry) {
	body, values, err := r.s.recordPage(e)
	if len(body) > 0 {
		if values > 0 && r.tentative { // a page with logged values begins with a record, whatever precedes it
			r.end()
			r.tentative = false
		}
		if len(r.stream) == 0 {
			r.tentative = r.amid && values == 0
		}
		r.starts, r.pages = append(r.starts, len(r.stream)), append(r.pages, e)
		r.stream, r.amid = append(r.stream, body...), false
	}
	if err != nil { // the rest of the page is damaged
		r.s.lose(r.no, r.no)
		r.end()
		r.amid = true
	}
}

// end reads the records of the stream so far. An error of ReadAt means that the stream goes on in a missing page,
// or that the file was made to do harm; the records before it count.
func (r *recordReader) end() {
	skip, certain := 0, 0
	if r.tentative {
		skip, certain = firstRecord(r.stream)
	}
	at := 0 // page in which the current record begins
	_ = redo.ReadAt(r.stream[skip:], func(op btree.Op, from, end int, _ bool) {
		if from, end = from+skip, end+skip; from < certain {
			return
		}
		for at+1 < len(r.starts) && r.starts[at+1] <= from {
			at++
		}
		last := at
		for last+1 < len(r.starts) && r.starts[last+1] < end {
			last++
		}
		r.s.addFact(fact{key: string(op.Key), asOf: r.no, deleted: op.Delete, value: op.Value, ref: op.Ref,
			pages: [2]logstore.Addr{r.pages[at].addr, r.pages[last].addr + uint64(r.pages[last].span)}})
	}, func(x redo.Special) {
		if x.Range != nil && !r.tentative { // not if tentative: a range found by mistake in the middle of a record would hide records
			r.s.stretches = append(r.s.stretches, stretch{first: string(x.Range.From), end: string(x.Range.To), asOf: r.no})
		}
		if x.Layer != nil {
			r.layers = append(r.layers, x.Layer)
		}
	})
	r.stream, r.starts, r.pages, r.tentative = nil, nil, nil, false
}

// firstRecord finds the first record of a stream that follows a missing page. Records are read from skip on; those
// that begin at certain or after it are certain to be records. Both are the length of the stream if there are
// none.
//
// The stream may begin in the middle of a record, so its beginning is searched for a place from which it can be
// read as records in ascending order, as in a batch, and as nothing else. A record may seem to begin within another
// one, by chance or because a user stored such a value; and if the seeming record ends where a true one begins, the
// rest can be read, too. So only records count that begin after the longest possible record.
func firstRecord(stream []byte) (skip, certain int) {
	probe := stream[:min(len(stream), 8*logstore.PageSize)] // enough to decide; a search of the whole stream from each byte on might take long
	for skip := range min(longestRecord, len(probe)) {
		if probe[skip] != 0 && isRecords(probe[skip:]) {
			return skip, longestRecord
		}
	}
	return len(stream), len(stream)
}

// longestRecord is the length in bytes of the longest redo record with its value in the stream.
const longestRecord = btree.MaxInline + redo.MaxRecord

// isRecords reports whether a stream consists of redo records in ascending order, more than one of them if the last
// is cut off.
func isRecords(stream []byte) bool {
	last, count, ascend, read := "", 0, true, 0
	err := redo.ReadAt(stream, func(op btree.Op, _, end int, _ bool) {
		ascend = ascend && (count == 0 || last < string(op.Key))
		last, read = string(op.Key), end
		count++
	}, nil)
	return ascend && (err == nil && count > 0 || count > 1 && len(stream)-read < logstore.PageSize)
}

// recordPage returns the body of a page of redo records, with its raw pages, and the number of its logged values.
// With an error, the body is that of the first page alone, or empty if the first page is damaged.
func (s *salvager) recordPage(e *entry) (body []byte, values int, err error) {
	p := make([]byte, int(e.span)*logstore.PageSize)
	h, err := s.f.ReadSound(e.addr, p)
	if err != nil {
		return nil, 0, err
	}
	span, _ := logstore.DecodeSpan(h.Name)
	if e.span > 1 {
		rest := p[logstore.PageSize:]
		if err = s.f.Read(e.addr+1, rest); err == nil && logstore.Checksum(0, rest) != span.CRC {
			err = s.f.Error(e.addr, "checksum of a page of records")
		}
		if err != nil {
			p = p[:logstore.PageSize]
		}
	}
	logstore.CutGrowing(p)
	return p[logstore.MuxSize:], span.Values, err
}

// imageFacts adds facts for the records of tree pages that are not installed. If pages has all pages that were
// written together (all), it also adds facts for deletions: for keys that older images of these pages have and
// these pages lack.
func (s *salvager) imageFacts(asOf uint64, pages []entry, all bool) error {
	var before []entry
	for _, r := range pages {
		if r.kind != logstore.KindTree || r.level > 0 {
			continue
		}
		old := s.shadows[r.name]
		if old == 0 {
			if at, ok := s.place(r.name); ok {
				old = at.addr
			}
		}
		if old != 0 && all {
			before = append(before, entry{addr: old})
		}
	}
	have := map[string]bool{}
	for _, r := range pages {
		if r.kind != logstore.KindTree || r.level > 0 {
			continue
		}
		s.shadows[r.name] = r.addr
		x := stretch{asOf: asOf}
		n := len(s.facts)
		s.eachCell(r.addr, func(key []byte, c btree.Cell) {
			if all {
				have[string(key)] = true
			}
			f := cellFact(key, asOf, c)
			f.leaf = r.addr
			s.addFact(f)
		})
		if len(s.facts) > n {
			x.first, x.end = s.facts[n].key, s.facts[len(s.facts)-1].key+"\x00"
			s.stretches = append(s.stretches, x)
		}
	}
	for _, r := range before {
		s.eachCell(r.addr, func(key []byte, c btree.Cell) {
			if !have[string(key)] {
				s.addFact(fact{key: string(key), asOf: asOf, deleted: true})
			}
		})
	}
	return nil
}

func cellFact(key []byte, asOf uint64, c btree.Cell) fact {
	f := fact{key: string(key), asOf: asOf}
	if c.Kind() == btree.Inline {
		f.value = bytes.Clone(c.Value())
	} else {
		ref := c.Ref()
		f.ref = &ref
	}
	return f
}

// eachCell calls fn for each record of the leaf at a whose key can be read; for none if there is no sound leaf at
// a.
func (s *salvager) eachCell(a logstore.Addr, fn func(key []byte, c btree.Cell)) {
	p := make([]byte, logstore.PageSize)
	h, err := s.f.ReadSound(a, p)
	if err != nil || h.Kind != logstore.KindTree || btree.CheckPage(p) != nil {
		return
	}
	n := btree.View(p)
	if !n.IsLeaf() {
		return
	}
	for i := range n.Count() {
		c := n.Cell(i)
		if key, err := s.keyOf(c); err == nil {
			fn(key, c)
		}
	}
}
