package redo

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/internal/formatdoc"
	"flashdbm/logstore"

	"github.com/stretchr/testify/require"
)

// TestFormatRedoRecords builds each kind of redo record from its row in docs/format.md and compares it with the
// encoder and the decoder.
func TestFormatRedoRecords(t *testing.T) {
	long := bytes.Repeat([]byte("k"), btree.MaxInlineKey+1)
	ops := map[string]btree.Op{
		"put":                       {Key: []byte("key"), Value: bytes.Repeat([]byte("v"), 300)},
		"delete":                    {Key: []byte("key"), Delete: true},
		"put of a value in a run":   {Key: long, Ref: &btree.Ref{ID: 0x1122334455667788, ValueLen: 1 << 20, KeyLen: uint32(len(long)), Kind: btree.Run}},
		"put of a value in extents": {Key: []byte("key"), Ref: &btree.Ref{ID: 9, ValueLen: 1 << 32, Kind: btree.Extents}},
	}
	table := formatdoc.Open(t).Table("Redo records")
	fields := table.Map("record", "fields after the code")
	codes := table.Numbers("record", "code")
	require.Equal(t, uint64(codeEnd), codes["end"])
	require.Equal(t, uint64(Logged), codes["put of a logged value"])
	require.Equal(t, fields["put"], fields["put of a logged value"])
	require.Len(t, codes, len(ops)+2)
	for record, op := range ops {
		want := []byte{byte(codes[record])}
		for field := range strings.SplitSeq(fields[record], ", ") {
			switch field {
			case "key length varint":
				want = binary.AppendUvarint(want, uint64(len(op.Key)))
			case "value length varint":
				length := uint64(len(op.Value))
				if op.Ref != nil {
					length = op.Ref.ValueLen
				}
				want = binary.AppendUvarint(want, length)
			case "key":
				want = append(want, op.Key...)
			case "value":
				want = append(want, op.Value...)
			case "address":
				want = binary.LittleEndian.AppendUint64(want, op.Ref.ID)
			default:
				t.Errorf("field %q of %s", field, record)
			}
		}
		require.Equal(t, want, Append(nil, &op), record)
		var got []btree.Op
		require.NoError(t, readOps(append(want, make([]byte, 10)...), func(op btree.Op) { got = append(got, op) }))
		require.Equal(t, []btree.Op{op}, got, record)
	}
	for _, reserved := range []byte{1 << 6, 1<<6 | codePut, 1 << 7, 1<<7 | codePut} {
		require.ErrorIs(t, readOps([]byte{reserved, 0, 0, 0}, func(btree.Op) {}), ErrStream, "code %#x", reserved)
	}
}

// TestFormatRedoOfRanges builds records of ranges by docs/format.md and compares them with the encoder and the
// decoder. Records that no encoder writes are refused.
func TestFormatRedoOfRanges(t *testing.T) {
	table := formatdoc.Open(t).Table("Redo of ranges")
	require.Equal(t, map[string]uint64{"range": codeRange}, table.Numbers("range record", "code"))
	require.Equal(t, "length of from varint, 1 + length of to varint, from, to", table.Map("range record", "fields after the code")["range"])
	long := bytes.Repeat([]byte("k"), 300)
	var all []byte
	var want []Special
	for _, x := range []Range{{From: []byte{}}, {From: []byte("a"), To: []byte("b")}, {From: []byte{}, To: []byte{0}}, {From: long, To: append(long, 0)}} {
		b := binary.AppendUvarint([]byte{codeRange}, uint64(len(x.From)))
		if x.To == nil {
			b = binary.AppendUvarint(b, 0)
		} else {
			b = binary.AppendUvarint(b, uint64(len(x.To))+1)
		}
		b = append(append(b, x.From...), x.To...)
		require.Equal(t, b, AppendRange(nil, x))
		for cut := range len(b) - 1 {
			require.ErrorIs(t, Read(b[:cut+1], func(btree.Op) { t.Error("an op") }, func(Special) {}), ErrStream, "%d bytes", cut+1)
		}
		all, want = append(all, b...), append(want, Special{Range: &x})
	}
	var got []Special
	require.NoError(t, Read(append(all, 0, 0), func(btree.Op) { t.Error("an op") }, func(x Special) { got = append(got, x) }))
	require.Equal(t, want, got)
	require.ErrorIs(t, readOps(all, func(btree.Op) {}), ErrStream)
	for _, bad := range [][]byte{{codeRange, 0, 1}, {codeRange, 1, 2, 'b', 'b'}, {codeRange, 1, 2, 'b', 'a'}} { // empty ranges
		require.ErrorIs(t, Read(bad, func(btree.Op) {}, func(Special) { t.Error("a range") }), ErrStream)
	}
}

// TestFormatRedoOfLayers compares the codes of the redo records that name layers with docs/format.md, and what is
// written with what is read.
func TestFormatRedoOfLayers(t *testing.T) {
	require.Equal(t, map[string]uint64{"layer": codeLayer, "owned": codeOwned, "lost": codeLost},
		formatdoc.Open(t).Table("Redo of layers").Numbers("layer record", "code"))

	lost := btree.Ref{Kind: btree.Extents, KeyLen: 2000, ValueLen: 1 << 31, ID: 99}
	b := AppendLayer(nil, []logstore.Addr{7, 1 << 40})
	b = AppendOwned(b, 12, 345)
	b = AppendLost(b, &lost)
	for cut := range b {
		err := Read(b[:cut], func(btree.Op) { t.Error("an op") }, func(Special) {})
		if cut != 0 && cut != 18 && cut != 29 { // between two records
			require.ErrorIs(t, err, ErrStream, "%d bytes", cut)
		}
	}
	var got []Special
	require.NoError(t, Read(append(b, 0, 0), func(btree.Op) { t.Error("an op") }, func(x Special) { got = append(got, x) }))
	require.Equal(t, []Special{
		{Layer: []logstore.Addr{7, 1 << 40}}, {Drop: &btree.Ref{Kind: btree.Run, ID: 12, ValueLen: 345}}, {Drop: &lost},
	}, got)
	require.ErrorIs(t, readOps(b, func(btree.Op) {}), ErrStream)
}
