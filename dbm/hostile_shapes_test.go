package dbm

import (
	"cmp"
	"encoding/binary"
	"slices"

	"flashdbm/logstore"
)

// These changes for hostile files repeat things, make numbers too large, and make chains that never end.

// Offsets in a mux area, and in the first page of a checkpoint's stream, see docs/format.md.
const (
	muxName, muxPages, muxCount = 8, 24, 28
	headerSequence              = 24
	tableCount                  = logstore.MuxSize + 16 + 36
	tableEntries                = tableCount + 8
	tableEntryBytes             = 16
)

// repeated makes many references lead to the same thing.
func (h *hostile) repeated() {
	lists := h.lists()
	switch h.rng.IntN(6) {
	case 0: // all records refer to one list or run
		h.sameValues(h.rng.IntN(2) == 0)
	case 1: // redo names a list of one layer many times
		if records := h.kinds[logstore.KindRecord]; len(records) > 0 && len(lists) > 0 {
			a := one(h.rng, records)
			h.layers(a, one(h.rng, lists), 1+h.rng.IntN(500))
			h.endAt(a)
		}
	case 2: // all lists have the same extents
		for _, a := range lists {
			copy(h.page(a)[runLength:], h.page(lists[0])[runLength:])
		}
		h.note("all lists are that of page %d", slices.Max(append(lists, 0)))
	case 3: // each inner node of the tree has a single child
		for level, pages := range h.inner {
			for _, a := range pages {
				if c := h.children(a); level > 0 && len(c) > 0 {
					for i := range len(c) / 8 {
						copy(c[8*i:], c[:8])
					}
				}
			}
		}
		h.note("one child for each inner node")
	case 4: // many pages have the same name
		name := h.page(one(h.rng, h.pages))[muxName : muxName+8]
		for range 1 + h.rng.IntN(20) {
			copy(h.page(one(h.rng, h.pages))[muxName:], name)
		}
		h.note("pages with the name %#x", le.Uint64(name))
	case 5: // endless values die
		if len(h.kinds[logstore.KindRecord]) > 0 {
			a := h.newestRecord()
			h.lost(a, 1+h.rng.IntN(200))
			h.endAt(a)
		}
	}
}

// newestRecord returns the page of redo that was written last.
func (h *hostile) newestRecord() int {
	return slices.MaxFunc(h.kinds[logstore.KindRecord], func(a, b int) int {
		return cmp.Compare(le.Uint64(h.page(a)[muxGroup:]), le.Uint64(h.page(b)[muxGroup:]))
	})
}

// lost turns the last page of a record group into one that says that a number of values of the greatest length are
// in no record.
func (h *hostile) lost(a, times int) {
	const flagLast, lostRecord, extents = 1, 8, 2
	p := h.page(a)
	if p[muxFlags]&flagLast == 0 {
		return
	}
	clear(p[logstore.MuxSize:])
	b := p[logstore.MuxSize:logstore.MuxSize]
	for range times {
		b = append(b, lostRecord, extents, 0)
		b = binary.AppendUvarint(b, maxValue)
		b = le.AppendUint64(b, uint64(one(h.rng, h.pages)))
	}
	le.PutUint64(p[muxCount:], uint64(times))
	h.note("page %d lets %d values die", a, times)
}

// sameValues makes the references of all records refer to the same one, either for large values or for others.
func (h *hostile) sameValues(large bool) {
	var first []byte
	for _, a := range h.inner[0] {
		for _, at := range h.refs(a) {
			r := h.page(a)[at : at+refSize]
			to := le.Uint64(r)
			if to >= uint64(len(h.file)/logstore.PageSize) || (le.Uint32(h.page(int(to))[runCRC+4:]) == 1) != large {
				continue
			}
			if first == nil {
				first = slices.Clone(r[:16])
			}
			copy(r, first)
		}
	}
	h.note("all records share a value")
}

// table changes entries of the translation table.
func (h *hostile) table() {
	all := h.kinds[logstore.KindCheckpoint]
	if len(all) == 0 {
		return
	}
	a := one(h.rng, all)
	p := h.page(a)
	n := int(min(le.Uint64(p[tableCount:]), uint64(len(p)-tableEntries)/tableEntryBytes))
	if n == 0 {
		return
	}
	i, j := h.rng.IntN(n), h.rng.IntN(n)
	x, y := p[tableEntries+i*tableEntryBytes:][:tableEntryBytes], p[tableEntries+j*tableEntryBytes:][:tableEntryBytes]
	switch h.rng.IntN(6) {
	case 0: // two names of a page
		copy(x[8:], y[8:])
	case 1: // two pages of a name
		copy(x[:8], y[:8])
	case 2: // a page that has moved according to another name
		copy(x[8:], y[:8])
	case 3: // a cycle of names
		copy(x[8:], y[:8])
		copy(y[8:], x[:8])
	case 4:
		le.PutUint64(x[8*h.rng.IntN(2):], oddNumber[uint64](h.rng, h.sealer))
	case 5:
		le.PutUint64(p[tableCount:], oddNumber[uint64](h.rng, h.sealer))
	}
	h.note("entries %d and %d of the table in page %d", i, j, a)
}

// counts changes what the mux area of a page says about its group.
func (h *hostile) counts() {
	a := one(h.rng, h.pages)
	p := h.page(a)
	switch h.rng.IntN(5) {
	case 0:
		le.PutUint64(p[muxCount:], oddNumber[uint64](h.rng, h.sealer))
	case 1:
		le.PutUint32(p[muxPages:], oddNumber[uint32](h.rng, h.sealer))
	case 2:
		p[muxFlags] ^= 1 << h.rng.IntN(8)
	case 3:
		le.PutUint64(p[muxGroup:], le.Uint64(h.page(one(h.rng, h.pages))[muxGroup:]))
	case 4: // the number of records in the tree
		le.PutUint64(p[muxCount:], le.Uint64(p[muxCount:])+uint64(h.rng.IntN(3))-1)
	}
	h.note("mux area of page %d", a)
}

// levels changes the level of a node.
func (h *hostile) levels() {
	a := h.upper()
	if a < 0 {
		return
	}
	if h.rng.IntN(2) == 0 {
		h.page(a)[nodeLevel] += byte(h.rng.IntN(3)) - 1
	} else {
		h.page(a)[nodeLevel] = byte(h.rng.Uint32())
	}
	h.note("page %d is on level %d", a, h.page(a)[nodeLevel])
}

// loop makes the log continue in a segment in which it has already been.
func (h *hostile) loop() {
	segments := len(h.file) / h.segment
	from, to := h.rng.IntN(segments), h.rng.IntN(segments)
	p, q := h.page(h.headerOf(from)), h.page(h.headerOf(to))
	le.PutUint32(p[headerSuccessor:], uint32(to))
	copy(q[headerBefore:], p[headerSalt:headerSalt+8])
	if h.rng.IntN(2) == 0 {
		le.PutUint64(q[headerSequence:], le.Uint64(p[headerSequence:])+1)
	}
	h.note("segment %d leads to %d", from, to)
}
