package logstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"strconv"
	"testing"

	"flashdbm/internal/formatdoc"

	"github.com/stretchr/testify/require"
)

// These tests compare docs/format.md with the code: a table in the document that differs from what the code
// writes fails a test.

var le = binary.LittleEndian

func TestFormatSuperblock(t *testing.T) {
	d := formatdoc.Open(t)
	l := d.Layout("Superblock", nil)
	encode := func(field string, v []byte) ([]byte, bool) {
		var s superblock
		switch field {
		case "segment pages":
			s.segmentPages = le.Uint32(v)
		case "compatible features":
			s.compatible = le.Uint64(v)
		case "incompatible features":
			s.incompatible = le.Uint64(v)
		case "UUID":
			s.uuid = [16]byte(v)
		case "number":
			s.number = le.Uint64(v)
		case "run":
			s.run = getPosition(v)
		case "start":
			s.start = getPosition(v)
		case "first group":
			s.runFirst = le.Uint64(v)
		case "last group":
			s.runLast = le.Uint64(v)
		case "lineage":
			s.lineage = le.Uint64(v)
		default:
			return nil, false
		}
		page := make([]byte, PageSize)
		s.put(page)
		return page, true
	}
	l.Check(encode)
	page, _ := encode("UUID", []byte("0123456789abcdef"))
	l.CheckChecksum(page, nil)
	require.Equal(t, superblockSize, l.End())
	require.Equal(t, l.Field("magic").Constraint, string(l.Field("magic").In(page)))
	require.Equal(t, l.Field("version").Constraint, fmt.Sprint(le.Uint32(l.Field("version").In(page))))
	require.Contains(t, d.Table("Versions").Column("version"), fmt.Sprint(Version))
	require.True(t, isZero(page[superblockSize:]), "the rest of the page")
}

func TestFormatPosition(t *testing.T) {
	l := formatdoc.Open(t).Layout("Position", nil)
	l.Check(func(field string, v []byte) ([]byte, bool) {
		var p Position
		switch field {
		case "segment":
			p.Segment = le.Uint32(v)
		case "page":
			p.Page = le.Uint32(v)
		case "group":
			p.Group = le.Uint64(v)
		case "digest":
			p.Digest = le.Uint32(v)
		case "check":
			p.Check = le.Uint32(v)
		}
		b := make([]byte, positionSize)
		p.put(b)
		return b, true
	})
	require.Equal(t, positionSize, l.End())
}

func TestFormatSegmentHeader(t *testing.T) {
	l := formatdoc.Open(t).Layout("Segment header", nil)
	encode := func(field string, v []byte) ([]byte, bool) {
		var h header
		switch field {
		case "segment":
			h.segment = le.Uint32(v)
		case "successor":
			h.successor = le.Uint32(v)
		case "salt":
			h.salt = le.Uint64(v)
		case "sequence":
			h.sequence = le.Uint64(v)
		case "predecessor":
			h.predecessor = le.Uint64(v)
		case "group":
			h.group = le.Uint64(v)
		case "index":
			h.index = le.Uint32(v)
		case "digest":
			h.digest = le.Uint32(v)
		case "UUID":
			h.uuid = [16]byte(v)
		default:
			return nil, false
		}
		page := make([]byte, PageSize)
		h.put(page)
		return page[:headerSize], true
	}
	l.Check(encode)
	require.Equal(t, headerSize, l.End())

	page := make([]byte, PageSize)
	for _, h := range []header{{}, {private: true}} {
		h.put(page)
		l.CheckChecksum(page, nil)
		require.Equal(t, l.Field("kind").Constraint, fmt.Sprint(l.Field("kind").In(page)[0]))
		var want byte
		if h.private {
			want |= 1 << 0 // as the constraint of flags says
		}
		require.Equal(t, []byte{want}, l.Field("flags").In(page))
	}
	require.Equal(t, "bit 0: private", l.Field("flags").Constraint)
	require.Equal(t, page[:headerSize], page[2048:2048+headerSize], "the second copy")
	require.True(t, isZero(page[headerSize:2048]) && isZero(page[2048+headerSize:]), "the rest of the page")
}

func TestFormatMuxArea(t *testing.T) {
	d := formatdoc.Open(t)
	l := d.Layout("Mux area", nil)
	encode := func(field string, v []byte) ([]byte, bool) {
		page := make([]byte, PageSize)
		var m mux
		switch field {
		case "kind":
			m.kind = Kind(v[0])
		case "flags":
			m.flags = v[0]
		case "lag":
			m.lag = le.Uint16(v)
		case "name":
			m.name = le.Uint64(v)
		case "group":
			m.group = le.Uint64(v)
		case "pages":
			m.pages = le.Uint32(v)
		case "count":
			m.count = le.Uint64(v)
		case "digest":
			m.digest = le.Uint32(v)
		case "body":
			copy(page[MuxSize:], v)
		default:
			return nil, false
		}
		m.put(page)
		return page, true
	}
	l.Check(encode)
	require.Equal(t, PageSize, l.End())
	require.Equal(t, MuxSize, l.Field("body").Offset)

	page, _ := encode("name", []byte("01234567"))
	le.PutUint32(page, pageCRC(0x1122334455667788, 99, page))
	l.CheckChecksum(page, le.AppendUint64(le.AppendUint64(nil, 0x1122334455667788), 99))

	flags := d.Table("Mux flags").Map("field", "bits")
	require.Equal(t, strconv.Itoa(bits.TrailingZeros(flagLast)), flags["last page of its group"])
	require.Equal(t, fmt.Sprintf("%d to 7", groupKindAt), flags["kind of the group, the same in all its pages"])
	require.Equal(t, strconv.Itoa(groupKindAt-1), flags["zero"])
	require.Equal(t, strconv.Itoa(bits.TrailingZeros(flagOpen)), flags["open: the page may be written again"])
	require.Equal(t, strconv.Itoa(bits.TrailingZeros(flagGrows)), flags["growing: the page is laid out as a [growing page](#growing-page)"])
}

func TestFormatGrowingPage(t *testing.T) {
	l := formatdoc.Open(t).Layout("Growing page", nil)
	encode := func(field string, v []byte) ([]byte, bool) {
		page := make([]byte, PageSize)
		m := mux{kind: KindRecord, flags: growingFlags}
		switch field {
		case "lag":
			m.lag = le.Uint16(v)
		case "CRC":
			defer putCRC(page, le.Uint32(v))
			page[5] = growingFlags
		case "end":
			m.end = le.Uint16(v)
		case "count":
			m.count = uint64(le.Uint16(v))
		case "group":
			m.group = le.Uint64(v)
		case "pages":
			m.pages = le.Uint32(v)
		case "digest":
			m.digest = le.Uint32(v)
		case "body":
			copy(page[MuxSize:], v)
		default:
			return nil, false
		}
		m.put(page)
		return page, true
	}
	l.Check(encode)
	require.Equal(t, PageSize, l.End())
	require.Equal(t, growingAt, l.Field("CRC").Offset)
	require.Equal(t, MuxSize, l.Field("body").Offset)
	page := newGrowing(1, 2, "abc")
	require.Equal(t, l.Field("kind").Constraint, fmt.Sprint(l.Field("kind").In(page)[0]))
	require.Contains(t, l.Field("flags").Constraint, fmt.Sprintf("%#x", l.Field("flags").In(page)[0]))
	require.Contains(t, l.Field("CRC").Constraint, fmt.Sprintf("bytes 4 to %d, bytes %d to end - 1 and bytes %d to %d", growingAt-1, growingAt+8, growingAt+4, growingAt+7))
	require.Contains(t, l.Field("end").Constraint, "40 to 4,096")
}

func TestFormatDigest(t *testing.T) {
	crcs := []uint32{0x12345678, 0x9ABCDEF0, 7}
	var digest uint32
	var all []byte
	for _, crc := range crcs {
		digest = chain(digest, crc)
		all = le.AppendUint32(all, crc)
		require.Equal(t, crc32.Checksum(all, castagnoli), digest)
	}
	require.EqualValues(t, 0xE3069283, crc32.Checksum([]byte("123456789"), castagnoli))
}

func TestFormatKinds(t *testing.T) {
	d := formatdoc.Open(t)
	require.Equal(t, map[string]uint64{
		"tree page": uint64(KindTree), "first page of a value run": uint64(KindRun), "redo stream; up to three raw pages may follow it": uint64(KindRecord),
		"flush stream": uint64(KindFlush), "checkpoint stream": uint64(KindCheckpoint),
		"segment header, which has no mux area": uint64(kindHeader),
	}, d.Table("Page kinds").Numbers("body", "kind"))
	require.Equal(t, map[string]uint64{
		"record group": uint64(RecordGroup), "page group": uint64(PageGroup), "part of a flush": uint64(FlushGroup),
		"part of a checkpoint": uint64(CheckpointGroup),
	}, d.Table("Group kinds").Numbers("group", "kind"))
}

func TestFormatValueRun(t *testing.T) {
	d := formatdoc.Open(t)
	l := d.Layout("Value run", map[string]int{"p": 1})
	l.Check(func(field string, v []byte) ([]byte, bool) {
		page := make([]byte, PageSize)
		switch field {
		case "length":
			putRunHeader(page, int64(le.Uint64(v)), 0, 0)
		case "checksum":
			putRunHeader(page, 0, le.Uint32(v), 0)
		case "form":
			putRunHeader(page, 0, 0, le.Uint32(v))
		case "payload":
			copy(page[runPayloadAt:], v)
		}
		return page, true
	})
	require.Equal(t, runPayloadAt, l.Field("payload").Offset)
	require.Equal(t, fmt.Sprintf("%d: the payload is a value; %d: a list of extents", runValue, runList), l.Field("form").Constraint)
	for _, pages := range []uint32{8, 256} {
		s := &disk{segmentPages: pages}
		require.EqualValues(t, (int(pages)-4)*4096+4040, s.MaxRun())
	}
}

func TestFormatExtents(t *testing.T) {
	d := formatdoc.Open(t)
	key := []byte("a long key")
	list := d.Layout("List of extents", map[string]int{"k": len(key), "e": 2})
	one := d.Layout("Extent", nil)
	require.Equal(t, extentSize, one.End())

	extents := []Extent{{0x1122334455667788, 0x12345678, 0x9ABCDEF0}, {1, 2, 3}}
	payload := make([]byte, list.End())
	copy(list.Field("key").In(payload), key)
	for i, e := range extents {
		at := list.Field("extents").In(payload)[i*one.End():]
		le.PutUint64(one.Field("address").In(at), e.Addr)
		le.PutUint32(one.Field("bytes").In(at), e.Bytes)
		le.PutUint32(one.Field("checksum").In(at), e.CRC)
	}
	le.PutUint32(list.Field("number").In(payload), uint32(len(extents)))
	got, err := GetExtents(payload)
	require.NoError(t, err)
	require.Equal(t, extents, got)
	require.EqualValues(t, list.End()-len(key), ListBytes(len(extents)))
}

func TestFormatCheckpointStream(t *testing.T) {
	l := formatdoc.Open(t).Layout("Checkpoint stream", map[string]int{"x": 5, "y": 7})
	stream := make([]byte, l.End()+100)
	le.PutUint64(l.Field("table length").In(stream), 5)
	le.PutUint64(l.Field("space map length").In(stream), 7)
	copy(l.Field("table").In(stream), "table")
	copy(l.Field("space map").In(stream), "the map")
	table, spaceMap, err := splitStream(stream)
	require.NoError(t, err)
	require.Equal(t, "table", string(table))
	require.Equal(t, "the map", string(spaceMap))
}

func TestFormatSpan(t *testing.T) {
	l := formatdoc.Open(t).Layout("Span", nil)
	l.Check(func(field string, v []byte) ([]byte, bool) {
		var values uint8
		var raw []byte
		switch field {
		case "values":
			values = v[0]
		case "raw pages":
			raw = make([]byte, int(v[0])*PageSize)
		default:
			return nil, false
		}
		return le.AppendUint64(nil, recordName(values, raw)), true
	})
	raw := bytes.Repeat([]byte("x"), 2*PageSize)
	require.Equal(t, crc32.Checksum(raw, castagnoli), le.Uint32(l.Field("CRC").In(le.AppendUint64(nil, recordName(7, raw)))))
}
