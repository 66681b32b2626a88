package logstore

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMuxCodec(t *testing.T) {
	for _, c := range []struct {
		name string
		mux  mux
		want string // bytes 4 to 39 in hex, fields apart
	}{
		{"zero", mux{}, "00 00 0000 0000000000000000 0000000000000000 00000000 0000000000000000 00000000"},
		{
			"last page of a page group",
			mux{kind: KindTree, flags: uint8(PageGroup)<<groupKindAt | flagLast, lag: 3, name: BornBit | 5, group: 0x0102, pages: 7, count: 9, digest: 0xAABBCCDD},
			"01 21 0300 0500000000000080 0201000000000000 07000000 0900000000000000 ddccbbaa",
		},
		{
			"largest",
			mux{kind: 255, flags: 255 &^ flagGrows, lag: lagUnknown, name: math.MaxUint64, group: math.MaxUint64, pages: math.MaxUint32, count: math.MaxUint64, digest: math.MaxUint32},
			"ff fb ffff ffffffffffffffff ffffffffffffffff ffffffff ffffffffffffffff ffffffff",
		},
		{
			"growing",
			mux{kind: KindRecord, flags: growingFlags, lag: 3, group: 0x0102, pages: 1, count: 0x0304, digest: 0xAABBCCDD, end: 0x0506},
			"03 17 0300 0000000006050403 0201000000000000 01000000 0000000000000000 ddccbbaa",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := make([]byte, PageSize)
			c.mux.put(p)
			require.Equal(t, unhex(t, c.want), p[4:MuxSize])
			require.True(t, isZero(p[MuxSize:]), "the body is the caller's")
			putCRC(p, 0x01020304)
			c.mux.crc = 0x01020304
			require.Equal(t, c.mux, getMux(p))
			if c.mux.flags&flagGrows == 0 {
				require.Equal(t, c.mux.name, PageName(p))
			}
			require.Equal(t, c.mux.kind, PageKind(p))
		})
	}
	m := mux{flags: uint8(FlushGroup)<<groupKindAt | flagLast}
	require.True(t, m.last())
	require.Equal(t, FlushGroup, m.groupKind())
}

func TestPageChecksum(t *testing.T) {
	page := bytes.Repeat([]byte{1, 2, 3, 5}, PageSize/4)
	sum := pageCRC(7, 9, page)
	var seed [16]byte
	binary.LittleEndian.PutUint64(seed[:], 7)
	binary.LittleEndian.PutUint64(seed[8:], 9)
	require.Equal(t, crc32.Checksum(append(seed[:], page[4:]...), castagnoli), sum, "CRC32C of salt, address, bytes from 4 on")
	require.NotEqual(t, sum, pageCRC(8, 9, page), "the salt counts")
	require.NotEqual(t, sum, pageCRC(7, 10, page), "the address counts")
	page[3]++
	require.Equal(t, sum, pageCRC(7, 9, page), "the checksum does not cover itself")
	for _, at := range []int{4, MuxSize, PageSize - 1} {
		page[at]++
		require.NotEqual(t, sum, pageCRC(7, 9, page), "byte %d counts", at)
		page[at]--
	}
	var crc [4]byte
	binary.LittleEndian.PutUint32(crc[:], sum)
	require.Equal(t, crc32.Update(5, castagnoli, crc[:]), chain(5, sum))
}

func TestHeaderCodec(t *testing.T) {
	uuid := [16]byte{1, 2, 3}
	h := header{
		segment: 5, successor: 6, salt: 0x1122334455667788, sequence: 9, predecessor: 0x99AABBCCDDEEFF00, group: 10, index: 11, digest: 12, uuid: uuid,
	}
	for _, c := range []struct {
		name string
		edit func(*header)
	}{
		{"log", func(*header) {}},
		{"private", func(h *header) { h.private = true }},
		{"largest", func(h *header) {
			h.segment, h.successor, h.salt, h.sequence = math.MaxUint32, math.MaxUint32, math.MaxUint64, math.MaxUint64
			h.predecessor, h.group, h.index, h.digest = math.MaxUint64, math.MaxUint64, math.MaxUint32, math.MaxUint32
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := h
			c.edit(&h)
			p := bytes.Repeat([]byte{0xEE}, PageSize)
			h.put(p)
			got, ok := getHeader(p, h.segment, uuid)
			require.True(t, ok)
			require.Equal(t, h, got)

			_, ok = getHeader(p, h.segment-1, uuid)
			require.False(t, ok, "of another segment")
			_, ok = getHeader(p, h.segment, [16]byte{})
			require.False(t, ok, "of another file")
			_, ok = getHeader(p[:PageSize-1], h.segment, uuid)
			require.False(t, ok, "cut short")
		})
	}

	t.Run("damage to one copy", func(t *testing.T) {
		p := make([]byte, PageSize)
		h.put(p)
		for at := range headerSize {
			p[at]++
			got, ok := getHeader(p, h.segment, uuid)
			require.True(t, ok && got == h, "byte %d of the first copy", at)
			p[headerCopyAt+at]++
			_, ok = getHeader(p, h.segment, uuid)
			require.False(t, ok, "byte %d of both copies", at)
			p[at]--
			got, ok = getHeader(p, h.segment, uuid)
			require.True(t, ok && got == h, "byte %d of the second copy", at)
			p[headerCopyAt+at]--
		}
	})
	t.Run("the first copy counts", func(t *testing.T) {
		p, q := make([]byte, PageSize), make([]byte, PageSize)
		h.put(p)
		other := h
		other.salt++
		other.put(q)
		copy(p[headerCopyAt:], q[headerCopyAt:])
		got, ok := getHeader(p, h.segment, uuid)
		require.True(t, ok && got == h)
	})
}

func TestPositionCodec(t *testing.T) {
	for _, p := range []Position{
		{},
		{Segment: 1, Page: 2, Group: 3, Digest: 4, Check: 5},
		{Segment: math.MaxUint32, Page: math.MaxUint32, Group: math.MaxUint64, Digest: math.MaxUint32, Check: math.MaxUint32},
	} {
		b := make([]byte, positionSize)
		p.put(b)
		require.Equal(t, p, getPosition(b))
	}
	b := make([]byte, positionSize)
	Position{Segment: 1, Page: 2, Group: 3, Digest: 4, Check: 5}.put(b)
	require.Equal(t, unhex(t, "01000000 02000000 0300000000000000 04000000 05000000"), b)
}

func testSuperblock() superblock {
	return superblock{
		segmentPages: 256, compatible: 1 << 40, uuid: [16]byte{15: 1}, number: 7, run: Position{Segment: 1, Page: 2, Group: 3, Digest: 4, Check: 5},
		runFirst: 3, runLast: 4, start: Position{Segment: 2, Page: 256, Group: 5, Digest: 6, Check: 7}, lineage: 8,
	}
}

func TestSuperblockCodec(t *testing.T) {
	sb := testSuperblock()
	p := bytes.Repeat([]byte{0xEE}, PageSize)
	sb.put(p)
	got, err := getSuperblock(p)
	require.NoError(t, err)
	require.Equal(t, sb, got)
	require.Equal(t, "FLASHDBM", string(p[:8]))
	require.True(t, isZero(p[128:superblockCRC]) && isZero(p[superblockSize:]))

	for at := range superblockSize {
		p[at] ^= 0x10
		_, err := getSuperblock(p)
		require.Error(t, err, "byte %d", at)
		p[at] ^= 0x10
	}
	reseal := func(p []byte) {
		binary.LittleEndian.PutUint32(p[superblockCRC:], crc32.Checksum(p[:superblockCRC], castagnoli))
	}
	for _, c := range []struct {
		name string
		edit func(p []byte)
		want error
	}{
		{"not one", func(p []byte) { p[0] = 'X' }, errNoSuperblock},
		{"newer version", func(p []byte) { p[8] = Version + 1; reseal(p) }, ErrFormat},
		{"unknown compatible feature", func(p []byte) { p[16] = 1; reseal(p) }, nil},
		{"unknown incompatible feature", func(p []byte) { p[24] = knownFeatures + 1; reseal(p) }, ErrFormat},
		{"known incompatible features", func(p []byte) { p[24] = knownFeatures; reseal(p) }, nil},
		{"segments too small", func(p []byte) { binary.LittleEndian.PutUint32(p[12:], MinSegmentPages/2); reseal(p) }, ErrCorrupt},
		{"segments too large", func(p []byte) { binary.LittleEndian.PutUint32(p[12:], MaxSegmentPages*2); reseal(p) }, ErrCorrupt},
		{"segments no power of two", func(p []byte) { binary.LittleEndian.PutUint32(p[12:], 24); reseal(p) }, ErrCorrupt},
		{"run in the header", func(p []byte) { clear(p[60:64]); reseal(p) }, ErrCorrupt},
		{"run behind its segment", func(p []byte) { binary.LittleEndian.PutUint32(p[60:], 257); reseal(p) }, ErrCorrupt},
		{"start behind its segment", func(p []byte) { binary.LittleEndian.PutUint32(p[84:], 257); reseal(p) }, ErrCorrupt},
		{"run that ends before it starts", func(p []byte) { binary.LittleEndian.PutUint64(p[112:], 2); reseal(p) }, ErrCorrupt},
		{"checksum", func(p []byte) { p[300]++ }, ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := bytes.Clone(p)
			c.edit(q)
			_, err := getSuperblock(q)
			require.True(t, errors.Is(err, c.want), "%v", err)
		})
	}
	_, err = getSuperblock(p[:superblockSize-1])
	require.ErrorIs(t, err, errNoSuperblock)
}

func TestSplitStream(t *testing.T) {
	stream := func(n, m uint64, rest string) []byte {
		b := binary.LittleEndian.AppendUint64(nil, n)
		return append(binary.LittleEndian.AppendUint64(b, m), rest...)
	}
	for _, c := range []struct {
		name         string
		stream       []byte
		table, space string
		ok           bool
	}{
		{"both", stream(2, 3, "ttmmm"), "tt", "mmm", true},
		{"zeros behind", stream(2, 3, "ttmmm\x00\x00"), "tt", "mmm", true},
		{"empty", stream(0, 0, ""), "", "", true},
		{"no lengths", stream(0, 0, "")[:streamHeader-1], "", "", false},
		{"table too long", stream(6, 0, "ttmmm"), "", "", false},
		{"map too long", stream(2, 4, "ttmmm"), "", "", false},
		{"sum overflows", stream(2, math.MaxUint64, "ttmmm"), "", "", false},
		{"table overflows", stream(math.MaxUint64, 2, "ttmmm"), "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, space, err := splitStream(c.stream)
			if !c.ok {
				require.ErrorIs(t, err, ErrCorrupt)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.table, string(table))
			require.Equal(t, c.space, string(space))
		})
	}
}

func TestExtentList(t *testing.T) {
	list := func(key string, count uint32, extents ...Extent) []byte {
		b := []byte(key)
		for _, e := range extents {
			b = binary.LittleEndian.AppendUint64(b, e.Addr)
			b = binary.LittleEndian.AppendUint32(b, e.Bytes)
			b = binary.LittleEndian.AppendUint32(b, e.CRC)
		}
		return binary.LittleEndian.AppendUint32(b, count)
	}
	e1, e2 := Extent{1, 2, 3}, Extent{math.MaxInt64, math.MaxUint32, math.MaxUint32}
	got, err := GetExtents(list("key", 2, e1, e2))
	require.NoError(t, err)
	require.Equal(t, []Extent{e1, e2}, got)
	got, err = GetExtents(list("", 0))
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = GetExtents(list("", 2, e2, e1))
	require.NoError(t, err, "in any order")
	require.Equal(t, []Extent{e2, e1}, got)
	long := Extent{8, 2 * PageSize, 0}
	for _, overlap := range [][]Extent{{e1, e1}, {long, {9, 1, 0}}, {{9, 1, 0}, long}, {e1, {math.MaxUint64, 1, 0}}} {
		_, err := GetExtents(list("", 2, overlap...))
		require.ErrorIs(t, err, ErrCorrupt)
	}
	for _, b := range [][]byte{nil, {1, 2, 3}, list("", 1), list("0123456789abcde", 1), list("", math.MaxUint32, e1)} {
		_, err := GetExtents(b)
		require.ErrorIs(t, err, ErrCorrupt, "%x", b)
	}
}

func TestRunPages(t *testing.T) {
	for _, c := range []struct{ bytes, pages int64 }{
		{0, 1}, {1, 1}, {runFirstBytes, 1}, {runFirstBytes + 1, 2}, {runFirstBytes + PageSize, 2}, {runFirstBytes + PageSize + 1, 3}, {1 << 32, 1<<20 + 1},
	} {
		require.Equal(t, c.pages, RunPages(c.bytes), "%d bytes", c.bytes)
	}
	for _, segmentPages := range []uint32{MinSegmentPages, DefaultSegmentPages, MaxSegmentPages} {
		s := &disk{segmentPages: segmentPages}
		room := int64(segmentPages) - int64(headerPage(0)) - 1
		require.Equal(t, room, RunPages(s.MaxRun()), "fits in segment 0")
		require.Equal(t, room+1, RunPages(s.MaxRun()+1))
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}
