package btree

import (
	"bytes"
	"fmt"
)

// upper returns how many heads are at or below h.
//
// A search spends most of its time waiting for memory. In a binary search each load waits for the previous one.
// upper loads seven heads at a time, so that their cache lines arrive together, and has no branch that depends on
// them.
func (n Node) upper(h uint32) int {
	p, count := add(n.dir, headerBytes), n.Count()
	above := uint64(h) + 1
	if count > 0 && load32(p, (count-1)*headBytes) <= h {
		return count // loads in ascending order end here
	}
	if count < 8 {
		k := 0
		for i := range count {
			k += below(p, i, above)
		}
		return k
	}
	low, rest := 0, count // the result is between low and low+rest
	for rest > 8 {
		s := rest >> 3
		k := below(p, low+s-1, above) + below(p, low+2*s-1, above) + below(p, low+3*s-1, above) + below(p, low+4*s-1, above) +
			below(p, low+5*s-1, above) + below(p, low+6*s-1, above) + below(p, low+7*s-1, above)
		low += k * s
		rest -= 7 * s
	}
	low = min(low, count-8)
	return low + below(p, low, above) + below(p, low+1, above) + below(p, low+2, above) + below(p, low+3, above) +
		below(p, low+4, above) + below(p, low+5, above) + below(p, low+6, above) + below(p, low+7, above)
}

// below returns 1 if the i-th of the heads at p is below h, else 0.
func below(p pointer, i int, h uint64) int {
	return int((uint64(load32(p, i*headBytes)) - h) >> 63)
}

// lower returns how many heads are below h.
func (n Node) lower(h uint32) int {
	if h == 0 {
		return 0
	}
	return n.upper(h - 1)
}

// compareCell compares key with the key of a record, like bytes.Compare.
func compareCell(p Pager, key []byte, c Cell) (int, error) {
	inline := c.Key()
	if !c.IsLong() {
		return bytes.Compare(key, inline), nil
	}
	switch o := bytes.Compare(key[:min(len(key), MaxInlineKey)], inline); {
	case o != 0:
		return o, nil
	case len(key) <= MaxInlineKey:
		return -1, nil
	}
	whole, err := longKey(p, c)
	return bytes.Compare(key, whole), err
}

// find returns the index of the first record of a leaf with a key >= key, and whether the two are equal. Long keys
// with the same inline part as key are read through p.
func (n Node) find(p Pager, key []byte) (i int, found bool, err error) {
	prefix := n.prefix()
	if prefix > 0 {
		if o := bytes.Compare(key[:min(prefix, len(key))], n.common()); o != 0 {
			if o < 0 {
				return 0, false, nil
			}
			return n.Count(), false, nil
		}
	}
	return n.findFrom(p, key, headOf(key[prefix:min(len(key), MaxInlineKey)]))
}

// findFrom is find for a key that begins with the common prefix, and whose inline part has the head h after it.
func (n Node) findFrom(p Pager, key []byte, h uint32) (i int, found bool, err error) {
	high := n.upper(h)
	if high == 0 || n.head(high-1) != h {
		return high, false, nil
	}
	o, err := compareCell(p, key, n.Cell(high-1))
	switch {
	case err != nil:
		return 0, false, err
	case o > 0:
		return high, false, nil
	case o == 0:
		return high - 1, true, nil
	}
	low := high - 1
	if low == 0 || n.head(low-1) != h {
		return low, false, nil
	}
	for high, low = low, n.lower(h); low < high; {
		mid := int(uint(low+high) >> 1)
		o, err := compareCell(p, key, n.Cell(mid))
		switch {
		case err != nil:
			return 0, false, err
		case o == 0:
			return mid, true, nil
		case o > 0:
			low = mid + 1
		default:
			high = mid
		}
	}
	return low, false, nil
}

// lookup returns the record of a leaf with the given key. Unlike find it compares the common prefix only as a part
// of the key that it finds. It prefetches, because most lookups are of leaves and records that are in no processor
// cache.
func (n Node) lookup(p Pager, key []byte) (c Cell, found bool, err error) {
	if n.IsImage() {
		fetch(add(n.dir, 64), fetchDirectory)
	}
	prefix := n.prefix()
	if len(key) < prefix {
		return Cell{}, false, nil
	}
	h := headOf(key[prefix:min(len(key), MaxInlineKey)])
	i := n.upper(h) - 1
	if i < 0 || n.head(i) != h {
		return Cell{}, false, nil
	}
	c = n.Cell(i)
	fetch(c.at, min(c.size(), fetchCell))
	if string(c.Key()) == string(key) && !c.IsLong() {
		return c, true, nil
	}
	if i, found, err = n.findFrom(p, key, h); found {
		c = n.Cell(i)
	}
	return c, found, err
}

const (
	fetchDirectory = 320 // bytes: the whole directory if records have a hundred bytes
	fetchCell      = 256 // bytes
)

// route returns the index of the child of an inner node below which key belongs: the child of the last separator
// that is not above key. The caller guarantees that the index is at least from; route does not read the children
// before that.
func (n Node) route(p Pager, key []byte, from int) (int, error) {
	prefix := n.prefix()
	if prefix > 0 {
		if o := bytes.Compare(key[:min(prefix, len(key))], n.common()); o != 0 {
			if o < 0 {
				return from, nil
			}
			return n.Count() - 1, nil
		}
	}
	rest := key[prefix:min(len(key), MaxSeparator)] // no separator is longer than MaxSeparator
	h := headOf(rest)
	i := n.upper(h) - 1
	if i <= from {
		return from, nil
	}
	if n.head(i) != h {
		return i, nil
	}
	above, err := n.reaches(p, key, rest, i)
	if above || err != nil {
		return i, err
	}
	low, high := max(from+1, n.lower(h)), i // separators from high on are above key, those before low are not
	for low < high {
		mid := int(uint(low+high) >> 1)
		above, err := n.reaches(p, key, rest, mid)
		if err != nil {
			return 0, err
		}
		if above {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1, nil
}

// reachesSeparator reports whether key is at or above separator i, i > 0.
func (n Node) reachesSeparator(p Pager, key []byte, i int) (bool, error) {
	prefix := n.prefix()
	if prefix > 0 {
		if o := bytes.Compare(key[:min(prefix, len(key))], n.common()); o != 0 {
			return o > 0, nil
		}
	}
	rest := key[prefix:min(len(key), MaxSeparator)]
	if h, s := headOf(rest), n.head(i); h != s {
		return h > s, nil
	}
	return n.reaches(p, key, rest, i)
}

// reaches is reachesSeparator for a key that has the common prefix and the head of separator i. rest is what
// follows the prefix in the first MaxSeparator bytes of key.
func (n Node) reaches(p Pager, key, rest []byte, i int) (bool, error) {
	raw := n.innerSlot(i)
	length := innerLen(raw)
	switch {
	case len(rest) < length && len(rest) <= headBytes:
		return false, nil // equal except for the padding, and key is shorter
	case length > headBytes:
		tail := n.tail(raw)
		if innerCut(raw) && bytes.HasPrefix(rest[headBytes:], tail) {
			return n.reachesCut(p, key, i)
		}
		return bytes.Compare(rest[headBytes:], tail) >= 0, nil
	case innerCut(raw):
		return n.reachesCut(p, key, i)
	}
	return true, nil
}

// reachesCut reports whether key is at or above the first key below child i.
func (n Node) reachesCut(p Pager, key []byte, i int) (bool, error) {
	c, err := leftmost(p, n, i)
	if err != nil {
		return false, err
	}
	o, err := compareCell(p, key, c)
	return o >= 0, err
}

// leftmost returns the first record below child i of n.
func leftmost(p Pager, n Node, i int) (Cell, error) {
	for !n.IsLeaf() {
		id, child, err := childNode(p, n, i)
		if err != nil {
			return Cell{}, err
		}
		if child.Count() == 0 {
			return Cell{}, fmt.Errorf("%w: page %#x is empty", ErrMalformed, id)
		}
		n, i = child, 0
	}
	return n.Cell(0), nil
}
