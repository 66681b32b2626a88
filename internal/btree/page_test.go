package btree

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// leafOf makes an image of a leaf with the given keys, which ascend. Values are the keys in upper case.
func leafOf(tb testing.TB, keys ...string) []byte {
	t := newTree()
	defer t.memory.Close()
	ops := make([]Op, len(keys))
	for i, k := range keys {
		ops[i] = Op{Key: []byte(k), Value: []byte(strings.ToUpper(k))}
		if len(k) > MaxInlineKey {
			ops[i].Ref = t.run(ops[i].Key, 10)
		}
	}
	_, err := t.apply(ops)
	require.NoError(tb, err)
	root, _ := t.Node(rootID)
	require.True(tb, root.IsLeaf())
	return encode(tb, root)
}

// uneven makes an image of the same leaf that is not even.
func uneven(tb testing.TB, page []byte) []byte {
	require.True(tb, View(page).even())
	page = encodeAs(tb, View(page), false)
	require.False(tb, View(page).even())
	return page
}

// innerOf makes an image of an inner node with the given separators. The first is not stored; those that end with
// "~" are cut.
func innerOf(tb testing.TB, level int, separators ...string) []byte {
	t := newTree()
	defer t.memory.Close()
	entries := make([]entry, len(separators))
	for i, s := range separators {
		b, cut := strings.CutSuffix(s, "~")
		entries[i] = entry{separator: separator{[]byte(b), cut}, id: PageID(0x100 + i)}
	}
	a := applier{leafEdit: leafEdit{m: t.memory}}
	require.True(tb, ordered(entries))
	return encode(tb, a.buildInner(level, entries))
}

func TestLeafLayout(t *testing.T) {
	page := leafOf(t, "key-a", "key-bcdefg")
	want := []byte{
		0, 0, 2, 0, 4, 0, 30, 0, // leaf, 2 records, 4 bytes in common, 30 bytes of cells
		0, 0, 0, 'a', 'e', 'd', 'c', 'b', // heads
		68, 0, 5, 0, 5, 0, // at byte 40+28, key and value of 5 bytes
		78, 0, 10, 0, 10, 0,
	}
	want = append(want, "key-aKEY-Akey-bcdefgKEY-BCDEFG"...)
	require.Equal(t, want, page[MuxSize:MuxSize+len(want)])
}

func TestEvenLeafLayout(t *testing.T) {
	page := leafOf(t, "key-abc", "key-acb", "key-bcd")
	want := []byte{
		0, 1, 3, 0, 4, 0, 42, 0, // even leaf, 3 records, 4 bytes in common, 42 bytes of cells
		0, 'c', 'b', 'a', 0, 'b', 'c', 'a', 0, 'd', 'c', 'b', // heads
		66, 0, 7, 0, 7, 0, // at byte 40+26, all keys and values of 7 bytes
	}
	want = append(want, "key-abcKEY-ABCkey-acbKEY-ACBkey-bcdKEY-BCD"...)
	require.Equal(t, want, page[MuxSize:MuxSize+len(want)])
	n := View(page)
	for i, k := range []string{"key-abc", "key-acb", "key-bcd"} {
		require.Equal(t, k, string(n.Cell(i).Key()))
		require.Equal(t, strings.ToUpper(k), string(n.Cell(i).Value()))
	}
	require.Equal(t, "key-", string(n.common()))
	require.Equal(t, len(want), n.bytes())
}

func TestInnerLayout(t *testing.T) {
	page := innerOf(t, 1, "", "key-a", "key-bcdefg")
	want := []byte{
		1, 0, 3, 0, 4, 0, 6, 0, // level 1, 3 children, 4 bytes in common, 6 bytes of cells
		0, 0, 0, 0, 0, 0, 0, 'a', 'e', 'd', 'c', 'b', // heads
		100, 0, 0, 0, // separator 0 is empty
		100, 0, 1, 0, // all of it in the head
		100, 0, 6, 0, // at byte 40+60, two bytes beyond the head
		0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, // children
	}
	want = append(want, "key-fg"...)
	require.Equal(t, want, page[MuxSize:MuxSize+len(want)])
}

// TestReferenceLayout checks the cell of a long key.
func TestReferenceLayout(t *testing.T) {
	page := leafOf(t, strings.Repeat("k", 1500))
	cell := page[MuxSize+headerBytes+leafEntryBytes:]
	le := binary.LittleEndian
	require.Equal(t, strings.Repeat("k", MaxInlineKey), string(cell[:MaxInlineKey]))
	require.Equal(t, MaxInlineKey|keyLong, int(le.Uint16(page[MuxSize+headerBytes+headBytes+2:])))
	require.Equal(t, refBytes|int(Run)<<kindShift, int(le.Uint16(page[MuxSize+headerBytes+headBytes+4:])))
	require.EqualValues(t, 101, le.Uint64(cell[MaxInlineKey:]))
	require.EqualValues(t, 10, le.Uint64(cell[MaxInlineKey+8:]))
	require.EqualValues(t, 1500, le.Uint32(cell[MaxInlineKey+16:]))
	require.Zero(t, cell[MaxInlineKey+refBytes])
}

func TestFitsInline(t *testing.T) {
	require.Equal(t, 2014, MaxInline)
	for _, c := range []struct {
		key, value int
		fits       bool
	}{
		{0, 0, true}, {0, MaxInline, true}, {0, MaxInline + 1, false}, {MaxInlineKey, MaxInline - MaxInlineKey, true},
		{MaxInlineKey, MaxInline - MaxInlineKey + 1, false}, {MaxInlineKey + 1, 0, false}, {16, 1024, true}, {1, math.MaxInt32, false},
	} {
		require.Equal(t, c.fits, FitsInline(c.key, c.value), "%+v", c)
	}
}

// TestMalformedPages takes valid pages and breaks one rule at a time.
func TestMalformedPages(t *testing.T) {
	leaf := func() []byte { return leafOf(t, "apple", "apricot", "banana") } // no bytes in common
	shared := func() []byte { return uneven(t, leafOf(t, "key-a", "key-b")) }
	even := func() []byte { return leafOf(t, "key-a", "key-b", "key-c") }
	long := func() []byte { return leafOf(t, strings.Repeat("k", 1500)) }
	inner := func() []byte { return innerOf(t, 1, "", "apple", "apricot", "banana") }
	cut := strings.Repeat("s", MaxSeparator)
	const (
		heads = MuxSize + headerBytes
		slots = heads + 3*headBytes
		short = heads + 2*headBytes // slots of two records
		cells = slots + 3*leafSlotBytes
		one   = heads + headBytes // slot of one record
	)
	le := binary.LittleEndian
	for _, c := range []struct {
		name string
		page []byte
		at   int
		with uint16
	}{
		{"level", leaf(), MuxSize, MaxHeight + 1},
		{"leaf as inner node", leaf(), MuxSize, 1},
		{"inner node as leaf", inner(), MuxSize, 0},
		{"page flags", leaf(), MuxSize, 0x100},
		{"count", leaf(), MuxSize + countAt, 2},
		{"huge count", leaf(), MuxSize + countAt, 0xFFFF},
		{"prefix too long", leaf(), MuxSize + prefixAt, 1},
		{"prefix too short", shared(), MuxSize + prefixAt, 3},
		{"huge prefix", shared(), MuxSize + prefixAt, 0xFFFF},
		{"cell bytes", leaf(), MuxSize + cellBytesAt, 1},
		{"head", leaf(), heads, 1},
		{"offset", leaf(), slots, cells + 1},
		{"offset in the log's part", leaf(), slots, 0},
		{"huge offset", leaf(), slots, 0xFFFF},
		{"key length", leaf(), slots + 2, 6},
		{"huge key length", leaf(), slots + 2, lengthMask},
		{"key flags", leaf(), slots + 2, 5 | 1<<12},
		{"long key that is short", leaf(), slots + 2, 5 | keyLong},
		{"value length", leaf(), slots + 4, 6},
		{"huge value length", leaf(), slots + 4, lengthMask},
		{"reference that is none", leaf(), slots + 4, 5 | uint16(Run)<<kindShift},
		{"unknown kind", leaf(), slots + 4, 5 | 3<<kindShift},
		{"value flags", leaf(), slots + 4, 5 | 1<<14},
		{"other value flags", leaf(), slots + 4, 5 | 1<<15},
		{"order", leaf(), cells + 10, 'a' | 'a'<<8},
		{"even leaf of one record", leafOf(t, "apple"), MuxSize, 0x100},
		{"even leaf as any other", even(), MuxSize, 0},
		{"even leaf, offset", even(), slots, slots + leafSlotBytes + 1},
		{"even leaf, key length", even(), slots + 2, 4},
		{"even leaf, huge key length", even(), slots + 2, lengthMask},
		{"even leaf, value length", even(), slots + 4, 6},
		{"even leaf, reference that is none", even(), slots + 4, 5 | uint16(Run)<<kindShift},
		{"even leaf, count", even(), MuxSize + countAt, 2},
		{"even leaf, cell bytes", even(), MuxSize + cellBytesAt, 31},
		{"even leaf, order", even(), slots + leafSlotBytes + 10 + 4, 'c' | 'K'<<8},
		{"other flag", even(), MuxSize, 0x300},
		{"equal keys", shared(), short + 2*leafSlotBytes + 10 + 4, 'a' | 'K'<<8},
		{"end", leaf(), PageSize - 2, 1},
		{"long key, length", long(), one + leafSlotBytes + MaxInlineKey + 16, MaxInlineKey},
		{"long key, inline value", long(), one + 4, refBytes},
		{"long key, flag missing", long(), one + 2, MaxInlineKey},
		{"value of 4 GiB and more", long(), one + leafSlotBytes + MaxInlineKey + 8 + 4, 2},
		{"no children", inner(), MuxSize + countAt, 0},
		{"children", inner(), MuxSize + countAt, 3},
		{"separator 0", inner(), heads, 1},
		{"separator 0, length", inner(), heads + 4*headBytes + 2, 1},
		{"separator offset", inner(), heads + 4*headBytes, 1},
		{"separator length", inner(), heads + 4*headBytes + innerSlotBytes + 2, 6},
		{"separator cut too short", inner(), heads + 4*headBytes + innerSlotBytes + 2, 5 | separatorCut},
		{"separator flags", inner(), heads + 4*headBytes + innerSlotBytes + 2, 5 | 1<<12},
		{"separator order", inner(), heads + headBytes + 2, 'z' << 8},
		{"prefix of separators", innerOf(t, 1, "", "key-a", "key-b"), MuxSize + prefixAt, 3},
		{"equal separators", innerOf(t, 1, "", cut, cut+"~"), heads + 3*headBytes + 2*innerSlotBytes + 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, CheckPage(c.page))
			old := le.Uint16(c.page[c.at:])
			le.PutUint16(c.page[c.at:], c.with)
			require.NotEqual(t, old, c.with, "the case changes nothing")
			require.ErrorIs(t, CheckPage(c.page), ErrMalformed)
		})
	}
	require.ErrorIs(t, CheckPage(nil), ErrMalformed)
	require.ErrorIs(t, CheckPage(make([]byte, PageSize-1)), ErrMalformed)
	require.NoError(t, CheckPage(make([]byte, PageSize)))
}

// TestPageCapacity checks how many records of a given size fit in a page.
func TestPageCapacity(t *testing.T) {
	for _, c := range []struct {
		key, value, records int
		even                bool
	}{
		{4, 8, 184, false}, {12, 0, 184, false}, {16, 100, 32, false}, {8, 1016, 3, false}, {14, 2000, 2, false}, {1000, 1014, 2, false},
		{4, 8, 252, true}, {12, 0, 252, true}, {4, 1, maxLeafCount, true}, {16, 100, 33, true}, {8, 1016, 3, true}, {14, 2000, 2, true}, {1000, 1014, 2, true},
	} {
		tr := newTree()
		tr.memory.Even = c.even
		ops := make([]Op, 0, c.records+1)
		for i := range c.records + 1 {
			key := fmt.Appendf(make([]byte, 0, c.key), "%0*d", c.key, i)
			ops = append(ops, Op{Key: key, Value: make([]byte, c.value)})
		}
		_, err := tr.apply(ops[:c.records])
		require.NoError(t, err)
		root, _ := tr.Node(rootID)
		require.Equal(t, 0, root.Level(), "%+v", c)
		encodeAs(t, root, c.even)
		_, err = tr.apply(ops)
		require.NoError(t, err)
		root, _ = tr.Node(rootID)
		require.Equal(t, 1, root.Level(), "%+v", c)
		tr.memory.Close()
	}
}
