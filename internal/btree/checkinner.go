package btree

import (
	"bytes"
	"encoding/binary"
)

// inner checks the page of an inner node.
func (c *pageCheck) inner() error {
	if c.count == 0 || c.count > maxInnerCount {
		return c.errorf("%d children", c.count)
	}
	start := MuxSize + innerBytes(c.count, 0)
	at := start + c.prefix
	if at > PageSize {
		return c.errorf("prefix of %d bytes", c.prefix)
	}
	slots := c.body[headerBytes+c.count*headBytes:]
	var first, before, separator []byte
	for i := range c.count {
		s := slots[i*innerSlotBytes:]
		offset, length := int(binary.LittleEndian.Uint16(s)), int(binary.LittleEndian.Uint16(s[2:]))
		cut := length&separatorCut != 0
		tail := max(0, length&lengthMask-headBytes)
		whole := c.prefix + length&lengthMask
		switch {
		case offset != at || at+tail > PageSize:
			return c.errorf("separator %d at byte %d instead of %d", i, offset, at)
		case length&cutReserved != 0 || whole > MaxSeparator || cut && whole != MaxSeparator:
			return c.errorf("separator %d: prefix %d, length %#x", i, c.prefix, length)
		case i == 0 && (length != 0 || c.head(0) != 0):
			return c.errorf("separator 0 is not empty")
		}
		at += tail
		if i == 0 {
			continue
		}
		var head [headBytes]byte
		binary.BigEndian.PutUint32(head[:], c.head(i))
		n := min(length&lengthMask, headBytes)
		separator = append(append(separator[:0], head[:n]...), c.image[at-tail:at]...)
		if headOf(head[:n]) != c.head(i) {
			return c.errorf("head %d", i)
		}
		if i == 1 {
			first = append(first, separator...)
			if whole == 0 {
				return c.errorf("separator 1 is empty")
			}
		} else if o := bytes.Compare(before, separator); o > 0 || o == 0 && !cut {
			return c.errorf("separator %d out of order", i)
		}
		before = append(before[:0], separator...)
	}
	switch {
	case c.count < 3 && c.prefix != 0:
		return c.errorf("prefix of %d bytes over one separator", c.prefix)
	case c.count >= 3 && commonPrefix(first, before) != 0:
		return c.errorf("prefix of %d bytes is too short", c.prefix)
	}
	return c.end(start, at)
}
