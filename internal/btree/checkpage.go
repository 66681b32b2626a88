package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// CheckPage returns an error that wraps ErrMalformed unless image, of 4096 bytes, has the body of a node in the
// format of layout.go, down to the last byte. In a page that passed, all offsets that View and the methods of Node
// read stay within the image, and keys or separators ascend. Whether the page fits its place in a tree is checked
// by CheckTree.
func CheckPage(image []byte) error {
	if len(image) != PageSize {
		return fmt.Errorf("%w: page of %d bytes", ErrMalformed, len(image))
	}
	c := pageCheck{image: image, body: image[MuxSize:]}
	c.level = int(c.body[levelAt])
	c.count = c.field(countAt)
	c.prefix = c.field(prefixAt)
	switch {
	case c.level > MaxHeight:
		return c.errorf("level %d", c.level)
	case c.level == 0 && c.body[flagsAt]&^flagEven == 0:
		return c.leaf(c.body[flagsAt] == flagEven)
	case c.body[flagsAt] != 0:
		return c.errorf("flags %#x", c.body[flagsAt])
	}
	return c.inner()
}

// pageCheck is a page being checked. It reads through slices, so a page cannot make it read out of bounds.
type pageCheck struct {
	image, body          []byte
	level, count, prefix int
}

func (c *pageCheck) errorf(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, a...))
}

func (c *pageCheck) field(at int) int { return int(binary.LittleEndian.Uint16(c.body[at:])) }

func (c *pageCheck) head(i int) uint32 {
	return binary.LittleEndian.Uint32(c.body[headerBytes+i*headBytes:])
}

var zeros [PageSize]byte

// end checks that the cells end where the header says, and that only zeros follow.
func (c *pageCheck) end(start, end int) error {
	if end-start != c.field(cellBytesAt) {
		return c.errorf("%d bytes of cells, %d by the header", end-start, c.field(cellBytesAt))
	}
	if rest := c.image[end:]; !bytes.Equal(rest, zeros[:len(rest)]) { // 51 ns for 1,600 zeros; a loop over bytes took 2,026 ns
		return c.errorf("something follows the cells, which end at byte %d", end)
	}
	return nil
}

func (c *pageCheck) leaf(even bool) error {
	if c.count > maxLeafCount || even && c.count < 2 {
		return c.errorf("%d records", c.count)
	}
	start := MuxSize + leafBytes(c.count, 0, even)
	at := start
	slots := c.body[headerBytes+c.count*headBytes:]
	var first, before []byte
	headBefore := uint32(0)
	for i := range c.count {
		s := slots
		if !even {
			s = slots[i*leafSlotBytes:]
		}
		offset := int(binary.LittleEndian.Uint16(s))
		keyLen, valueLen := int(binary.LittleEndian.Uint16(s[2:])), int(binary.LittleEndian.Uint16(s[4:]))
		if offset != at && (i == 0 || !even) {
			return c.errorf("record %d at byte %d instead of %d", i, offset, at)
		}
		end := at + keyLen&lengthMask + valueLen&lengthMask
		if end > PageSize {
			return c.errorf("record %d ends at byte %d", i, end)
		}
		key := c.image[at : at+keyLen&lengthMask]
		if keyLen > lengthMask || valueLen > lengthMask || !FitsInline(keyLen, valueLen) { // otherwise there is nothing to check
			if err := c.record(i, keyLen, valueLen, c.image[at+len(key):end]); err != nil {
				return err
			}
		}
		if i == 0 {
			first = key
		}
		if c.prefix > len(key) || !bytes.Equal(key[:c.prefix], first[:c.prefix]) {
			return c.errorf("record %d lacks the common prefix of %d bytes", i, c.prefix)
		}
		head := headOf(key[c.prefix:])
		if c.head(i) != head {
			return c.errorf("head %d", i)
		}
		if i > 0 && head <= headBefore { // of keys with that prefix, the one with the lower head is the lower one
			if o := bytes.Compare(before, key); o > 0 || o == 0 && keyLen&keyLong == 0 {
				return c.errorf("record %d out of order", i)
			}
		}
		before, headBefore, at = key, head, end
	}
	want := 0
	if c.count > 1 {
		want = commonPrefix(first, before)
	}
	if c.prefix != want {
		return c.errorf("prefix of %d bytes instead of %d", c.prefix, want)
	}
	return c.end(start, at)
}

// record checks the lengths and flags of a record, and its reference if it has one.
func (c *pageCheck) record(i, keyLen, valueLen int, value []byte) error {
	long, kind := keyLen&keyLong != 0, ValueKind(valueLen>>kindShift&kindMask)
	keyBytes := keyLen & lengthMask
	switch {
	case keyLen&keyReserved != 0:
		return c.errorf("record %d: key flags %#x", i, keyLen)
	case valueLen&valueReserved != 0 || kind > Logged:
		return c.errorf("record %d: value flags %#x", i, valueLen)
	case keyBytes > MaxInlineKey || long && (keyBytes != MaxInlineKey || kind == Inline || kind == Logged):
		return c.errorf("record %d: key of %d bytes, flags %#x", i, keyBytes, keyLen)
	case kind == Inline && !FitsInline(keyBytes, len(value)):
		return c.errorf("record %d: key of %d and value of %d bytes in the page", i, keyBytes, len(value))
	case kind == Inline:
		return nil
	case kind == Logged:
		if len(value) != loggedBytes || !FitsInline(keyBytes, int(binary.LittleEndian.Uint16(value[placeLengthAt:]))) {
			return c.errorf("record %d: place of %d bytes", i, len(value))
		}
		return nil
	case len(value) != refBytes:
		return c.errorf("record %d: reference of %d bytes", i, len(value))
	}
	whole := binary.LittleEndian.Uint32(value[16:])
	if long != (whole != 0) || long && (whole <= MaxInlineKey || whole > MaxKey) {
		return c.errorf("record %d: long key of %d bytes", i, whole)
	}
	if v := binary.LittleEndian.Uint64(value[8:]); v > MaxValue {
		return c.errorf("record %d: value of %d bytes", i, v)
	}
	return nil
}
