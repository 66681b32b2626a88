package dbm

import (
	"encoding/binary"
	"maps"
	"slices"

	"flashdbm/logstore"
)

// These changes for hostile files concern the log: lists, streams, superblocks and headers.

// lists returns the runs that are lists of extents.
func (h *hostile) lists() (lists []int) {
	for _, a := range h.kinds[logstore.KindRun] {
		if le.Uint32(h.page(a)[runCRC+4:]) == 1 {
			lists = append(lists, a)
		}
	}
	return lists
}

// endAt makes the log end with the page at a, if that is a page of the log: zeros follow it.
func (h *hostile) endAt(a int) {
	i := slices.Index(h.chain, a)
	if i < 0 {
		return
	}
	h.sealed = maps.Clone(h.sealed) // the original is shared by all files of the base
	for _, b := range h.chain[i+1:] {
		clear(h.page(b))
		delete(h.sealed, b)
	}
	h.chain = h.chain[:i+1]
	h.note("the log ends with page %d", a)
}

// layers turns the last page of a record group into one that says that the write set of a transaction is in the
// layers listed in a run, many times the same one.
func (h *hostile) layers(a, list, times int) {
	const flagLast, layerRecord = 1, 6
	p := h.page(a)
	if p[5]&flagLast == 0 {
		return
	}
	body := p[logstore.MuxSize:]
	clear(body)
	body[0] = layerRecord
	at := 1 + binary.PutUvarint(body[1:], uint64(times))
	for i := range times {
		le.PutUint64(body[at+8*i:], uint64(list))
	}
	le.PutUint64(p[muxCount:], 1)
	h.note("page %d names the list in page %d %d times", a, list, times)
}

// extents changes a list of extents, which is at the end of its run.
func (h *hostile) extents() {
	lists := h.lists()
	if len(lists) == 0 {
		return
	}
	a := one(h.rng, lists)
	from, n := a*logstore.PageSize+runPayload, int(le.Uint64(h.page(a)[runLength:]))
	if n < 4 || from+n > len(h.file) {
		return
	}
	payload := h.file[from : from+n]
	count := int(le.Uint32(payload[n-4:]))
	if count == 0 || count*extentBytes+4 > n {
		return
	}
	list := payload[n-4-count*extentBytes : n-4]
	i, j := h.rng.IntN(count), h.rng.IntN(count)
	x, y := list[i*extentBytes:(i+1)*extentBytes], list[j*extentBytes:]
	switch h.rng.IntN(6) {
	case 0:
		copy(x, y[:extentBytes])
	case 1:
		le.PutUint64(x, oddNumber[uint64](h.rng, h.sealer))
	case 2:
		le.PutUint32(x[8:], oddNumber[uint32](h.rng, h.sealer))
	case 3:
		le.PutUint32(payload[n-4:], oddNumber[uint32](h.rng, h.sealer))
	case 4: // longer, and all the same
		m := min((logstore.PageSize-runPayload-4)/extentBytes, count+h.rng.IntN(200))
		end := h.page(a)[runPayload:]
		e := slices.Clone(x)
		for k := range m {
			copy(end[k*extentBytes:], e)
		}
		le.PutUint32(end[m*extentBytes:], uint32(m))
		le.PutUint64(h.page(a)[runLength:], uint64(m*extentBytes+4))
	case 5: // overlapping: each a page after the one before
		le.PutUint64(x, le.Uint64(y)+1)
	}
	h.note("extent %d of the list in page %d", i, a)
}

// stream changes a number in a stream, which is the table, the space map, a flush, or redo.
func (h *hostile) stream() {
	kind := one(h.rng, []logstore.Kind{logstore.KindCheckpoint, logstore.KindCheckpoint, logstore.KindFlush, logstore.KindRecord})
	if len(h.kinds[kind]) == 0 {
		return
	}
	a := one(h.rng, h.kinds[kind])
	body := h.page(a)[logstore.MuxSize:]
	end := len(body)
	for end > 16 && body[end-1] == 0 {
		end--
	}
	at := h.rng.IntN(max(end-8, 1))
	if h.rng.IntN(2) == 0 {
		at &^= 3
	}
	switch h.rng.IntN(6) {
	case 0:
		le.PutUint64(body[at:], oddNumber[uint64](h.rng, h.sealer))
	case 1:
		le.PutUint32(body[at:], oddNumber[uint32](h.rng, h.sealer))
	case 2:
		body[at] = byte(h.rng.Uint32())
	case 3: // the same entry twice
		n := one(h.rng, []int{4, 8, 12, 16})
		if at+2*n <= len(body) {
			copy(body[at+n:at+2*n], body[at:at+n])
		}
	case 4: // two entries exchanged
		n, b := one(h.rng, []int{4, 8, 12, 16}), h.rng.IntN(max(end-16, 1))
		if max(at, b)+n <= len(body) {
			c := slices.Clone(body[at : at+n])
			copy(body[at:at+n], body[b:b+n])
			copy(body[b:b+n], c)
		}
	case 5:
		b := h.page(one(h.rng, h.kinds[kind]))[logstore.MuxSize:]
		copy(body, b)
	}
	h.note("stream of kind %d, page %d at %d", kind, a, logstore.MuxSize+at)
}

// supers makes the superblocks disagree or point elsewhere.
func (h *hostile) supers() {
	p, q := h.page(h.rng.IntN(2)), h.page(h.rng.IntN(2))
	at := one(h.rng, []int{12, 24, 32, 48, 56, 60, 64, 72, 76, 80, 84, 88, 96, 100, 104, 112, 120})
	switch h.rng.IntN(4) {
	case 0:
		copy(p[at:at+8], q[at:at+8])
	case 1:
		le.PutUint32(p[at:], oddNumber[uint32](h.rng, h.sealer))
	case 2:
		le.PutUint64(p[at:], oddNumber[uint64](h.rng, h.sealer))
	case 3:
		copy(p[superRun:superRun+48], q[superRun:superRun+48])
	}
	h.note("superblock at %d", at)
}

// headers changes a segment's header, and thereby where the log continues.
func (h *hostile) headers() {
	n := h.rng.IntN(len(h.file) / h.segment)
	p := h.page(h.headerOf(n))
	at := one(h.rng, []int{5, 8, headerSuccessor, headerSalt, 24, headerBefore, 40, 48})
	if h.rng.IntN(2) == 0 {
		le.PutUint32(p[at:], oddNumber[uint32](h.rng, h.sealer))
	} else {
		copy(p[at:at+8], h.page(h.headerOf(h.rng.IntN(len(h.file) / h.segment)))[at:at+8])
	}
	h.note("header of segment %d at %d", n, at)
}
