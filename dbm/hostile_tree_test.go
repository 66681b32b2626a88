package dbm

import (
	"slices"

	"flashdbm/logstore"
)

// These changes for hostile files concern the pages of the tree.

// children returns the names in an inner node, which earlier changes may have replaced by anything.
func (h *hostile) children(a int) []byte {
	p := h.page(a)
	n := min(int(le.Uint16(p[nodeCount:])), (logstore.PageSize-nodeEntries)/16)
	return p[nodeEntries+8*n : nodeEntries+16*n]
}

// upper returns an inner node, or -1 if there is none.
func (h *hostile) upper() int {
	var all []int
	for level, pages := range h.inner {
		if level > 0 {
			all = append(all, pages...)
		}
	}
	if len(all) == 0 {
		return -1
	}
	slices.Sort(all)
	return one(h.rng, all)
}

// peer returns a page of the level that a node says it is on, or the node itself if there is none: an earlier
// change may have moved it.
func (h *hostile) peer(a int) int {
	if peers := h.inner[int(h.page(a)[nodeLevel])]; len(peers) > 0 {
		return one(h.rng, peers)
	}
	return a
}

// graph changes the children of an inner node.
func (h *hostile) graph() {
	a := h.upper()
	if a < 0 {
		return
	}
	c := h.children(a)
	n := len(c) / 8
	if n == 0 {
		return
	}
	i, j := h.rng.IntN(n), h.rng.IntN(n)
	switch h.rng.IntN(8) {
	case 0: // all children are the same
		for k := range n {
			copy(c[8*k:8*k+8], c[8*i:8*i+8])
		}
		h.note("children of page %d are all %#x", a, le.Uint64(c))
	case 1: // two children are the same
		copy(c[8*j:8*j+8], c[8*i:8*i+8])
		h.note("children %d and %d of page %d", i, j, a)
	case 2: // the children in another order
		for k := range 8 {
			c[8*i+k], c[8*j+k] = c[8*j+k], c[8*i+k]
		}
		h.note("children %d and %d of page %d change places", i, j, a)
	case 3: // a child of another node of the level
		b := h.peer(a)
		d := h.children(b)
		if len(d) == 0 {
			return
		}
		k := h.rng.IntN(len(d) / 8)
		copy(c[8*i:8*i+8], d[8*k:8*k+8])
		h.note("child %d of page %d is child %d of page %d", i, a, k, b)
	case 4: // the node itself, or any page
		to := a
		if h.rng.IntN(2) == 0 {
			to = one(h.rng, h.pages)
		}
		le.PutUint64(c[8*i:], uint64(to))
		h.note("child %d of page %d is page %d", i, a, to)
	case 5: // the node of another page of the level
		b := h.peer(a)
		copy(h.page(a)[nodeLevel:], h.page(b)[nodeLevel:])
		h.note("page %d has the node of %d", a, b)
	case 6: // all nodes of the level have the same children
		for _, b := range h.inner[int(h.page(a)[nodeLevel])] {
			if d := h.children(b); len(d) > 0 {
				for k := range len(d) / 8 {
					copy(d[8*k:8*k+8], c[8*i:8*i+8])
				}
			}
		}
		h.note("the whole level of page %d has child %#x", a, le.Uint64(c[8*i:]))
	case 7: // another name
		le.PutUint64(c[8*i:], oddNumber[uint64](h.rng, h.sealer))
		h.note("child %d of page %d is %#x", i, a, le.Uint64(c[8*i:]))
	}
}

// leaves exchanges and repeats leaves and their contents.
func (h *hostile) leaves() {
	if len(h.inner[0]) == 0 {
		return
	}
	a, b := one(h.rng, h.inner[0]), one(h.rng, h.inner[0])
	p, q := h.page(a), h.page(b)
	switch h.rng.IntN(4) {
	case 0:
		copy(p[nodeLevel:], q[nodeLevel:])
		h.note("page %d has the records of %d", a, b)
	case 1:
		c := slices.Clone(p[nodeLevel:])
		copy(p[nodeLevel:], q[nodeLevel:])
		copy(q[nodeLevel:], c)
		h.note("pages %d and %d change records", a, b)
	case 2:
		clear(p[nodeLevel:])
		h.note("page %d is empty", a)
	case 3:
		n := copy(p[8:16], q[8:16])
		h.note("page %d has %d bytes of name of %d", a, n, b)
	}
}

// cells calls f for each record of a leaf with the position of its value and the kind of the value, as far as the
// leaf allows.
func (h *hostile) cells(a int, f func(value, kind int)) {
	p := h.page(a)
	n, even := int(le.Uint16(p[nodeCount:])), p[nodeFlags] != 0
	for i := range n {
		s := nodeEntries + leafHeads*n + leafSlots*i
		if even {
			s = nodeEntries + leafHeads*n
		}
		if s+leafSlots > logstore.PageSize {
			break
		}
		offset, key, value := int(le.Uint16(p[s:])), int(le.Uint16(p[s+2:])&0xFFF), int(le.Uint16(p[s+4:]))
		if even {
			offset += i * (key + value&0xFFF)
		}
		f(offset+key, value>>12&3)
	}
}

// refs returns where a leaf has references to runs and lists.
func (h *hostile) refs(a int) (at []int) {
	h.cells(a, func(value, kind int) {
		if (kind == 1 || kind == 2) && value+refSize <= logstore.PageSize {
			at = append(at, value)
		}
	})
	return at
}

// values changes where values are stored according to leaves.
func (h *hostile) values() {
	var with [][2]int
	for _, a := range h.inner[0] {
		for _, at := range h.refs(a) {
			with = append(with, [2]int{a, at})
		}
	}
	if len(with) == 0 {
		return
	}
	x, y := one(h.rng, with), one(h.rng, with)
	r, s := h.page(x[0])[x[1]:], h.page(y[0])[y[1]:]
	switch h.rng.IntN(4) {
	case 0:
		copy(r[:refSize], s[:refSize])
	case 1:
		copy(r[:8], s[:8])
	case 2:
		le.PutUint64(r, oddNumber[uint64](h.rng, h.sealer))
	case 3:
		le.PutUint64(r[8:], oddNumber[uint64](h.rng, h.sealer))
	}
	h.note("reference at %d of page %d", x[1], x[0])
}

// keyBefore returns the key of the record whose reference is at the given position of a leaf.
func (h *hostile) keyBefore(a, at int) string {
	p := h.page(a)
	n := int(le.Uint16(p[nodeCount:]))
	for i := range n {
		s := nodeEntries + leafHeads*n + leafSlots*i
		if p[nodeFlags] != 0 {
			s = nodeEntries + leafHeads*n
		}
		offset, key, value := int(le.Uint16(p[s:])), int(le.Uint16(p[s+2:])&0xFFF), int(le.Uint16(p[s+4:]))
		if p[nodeFlags] != 0 {
			offset += i * (key + value&0xFFF)
		}
		if offset+key == at {
			return string(p[offset:at])
		}
	}
	return ""
}
