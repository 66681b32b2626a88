package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"flashdbm/internal/formatdoc"

	"github.com/stretchr/testify/require"
)

// These tests decode pages that this package wrote, using only the tables of docs/format.md.

func TestFormatLeaf(t *testing.T) {
	d := formatdoc.Open(t)
	long := bytes.Repeat([]byte("long"), MaxInlineKey)
	ops := []Op{
		{Key: []byte("abcdef1"), Value: []byte("red")},
		{Key: []byte("abcdef23456"), Value: []byte{}},
		{Key: []byte("abx"), Ref: &Ref{ID: 0x1122334455667788, ValueLen: 0x99AABBCC, Kind: Run}},
		{Key: long, Ref: &Ref{ID: 7, ValueLen: 8, KeyLen: uint32(len(long)), Kind: Extents}},
	}
	for _, n := range []int{1, 3, 4} {
		tr := newTree()
		for i := range ops[:n] {
			if r := ops[i].Ref; r != nil {
				tr.runs[r.ID] = ops[i].Key
				tr.live[r.ID] = true
			}
		}
		_, err := Apply(tr, rootID, ops[:n])
		require.NoError(t, err)
		image := encodedRoot(t, tr)

		node := d.Layout("Node", nil)
		require.Zero(t, fieldNumber(node.Field("level").In(image)))
		require.Zero(t, fieldNumber(node.Field("flags").In(image)))
		require.EqualValues(t, n, fieldNumber(node.Field("n").In(image)))
		prefix := map[int]int{1: 0, 3: len("ab"), 4: 0}[n]
		require.EqualValues(t, prefix, fieldNumber(node.Field("prefix").In(image)))
		cells := int(fieldNumber(node.Field("cell bytes").In(image)))

		leaf := d.Layout("Leaf", map[string]int{"n": n, "c": cells})
		require.Equal(t, leaf.Field("node").Offset+leaf.Field("node").Size, node.End())
		require.Equal(t, headerBytes, leaf.Field("node").Size)
		slot := d.Layout("Leaf slot", nil)
		require.Equal(t, leafSlotBytes, slot.End())
		at := leaf.Field("cells").Offset
		for i := range n {
			op := &ops[i]
			s := leaf.Field("slots").In(image)[i*slot.End():]
			require.EqualValues(t, at, fieldNumber(slot.Field("offset").In(s)))
			keyLen, valueLen := fieldNumber(slot.Field("key length").In(s)), fieldNumber(slot.Field("value length").In(s))
			inline := op.Key[:min(len(op.Key), 1000)]
			require.EqualValues(t, len(inline), keyLen&0xFFF)
			require.Equal(t, len(op.Key) > 1000, keyLen>>15 == 1)
			require.Equal(t, string(inline), string(image[at:at+len(inline)]))
			at += len(inline)
			require.Equal(t, headByDoc(inline[prefix:]), fieldNumber(leaf.Field("heads").In(image)[4*i:4*i+4]))
			value := image[at : at+int(valueLen&0xFFF)]
			at += len(value)
			if op.Ref == nil {
				require.Zero(t, valueLen>>12)
				require.Equal(t, op.Value, value)
				continue
			}
			require.EqualValues(t, op.Ref.Kind, valueLen>>12)
			ref := d.Layout("Reference", nil)
			require.Equal(t, ref.End(), len(value))
			require.Equal(t, op.Ref.ID, fieldNumber(ref.Field("name").In(value)))
			require.Equal(t, op.Ref.ValueLen, fieldNumber(ref.Field("value length").In(value)))
			require.EqualValues(t, op.Ref.KeyLen, fieldNumber(ref.Field("key length").In(value)))
		}
		require.Equal(t, leaf.End(), at)
		require.Empty(t, bytes.Trim(image[at:], "\x00"), "behind the cells")
	}
}

func TestFormatEvenLeaf(t *testing.T) {
	d := formatdoc.Open(t)
	tr := newTree()
	words := []string{"pear", "plum", "peas"}
	slices.Sort(words)
	for _, w := range words {
		tr.mustApply(t, Op{Key: []byte(w), Value: []byte(w[2:])})
	}
	image := encodedRoot(t, tr)
	node, slot := d.Layout("Node", nil), d.Layout("Leaf slot", nil)
	require.EqualValues(t, 1, fieldNumber(node.Field("flags").In(image)))
	leaf := d.Layout("Even leaf", map[string]int{"n": 3, "c": int(fieldNumber(node.Field("cell bytes").In(image)))})
	require.Equal(t, slot.End(), leaf.Field("slot").Size)
	s, at := leaf.Field("slot").In(image), leaf.Field("cells").Offset
	require.EqualValues(t, at, fieldNumber(slot.Field("offset").In(s)))
	require.EqualValues(t, 4, fieldNumber(slot.Field("key length").In(s)))
	require.EqualValues(t, 2, fieldNumber(slot.Field("value length").In(s)))
	for i, w := range words {
		require.Equal(t, headByDoc([]byte(w[1:])), fieldNumber(leaf.Field("heads").In(image)[4*i:4*i+4]))
		require.Equal(t, w+w[2:], string(image[at+6*i:at+6*i+6]))
	}
	require.Equal(t, leaf.End(), at+18)
	require.Empty(t, bytes.Trim(image[at+18:], "\x00"), "behind the cells")
}

func TestFormatInnerNode(t *testing.T) {
	d := formatdoc.Open(t)
	tr := newTree()
	var ops []Op
	stem := bytes.Repeat([]byte("s"), 30)
	for i := range 4000 {
		ops = append(ops, Op{Key: fmt.Appendf(bytes.Clone(stem), "%09d", i), Value: make([]byte, 20)})
	}
	_, err := Apply(tr, rootID, ops)
	require.NoError(t, err)
	root, err := tr.Node(rootID)
	require.NoError(t, err)
	require.EqualValues(t, 1, root.Level())
	image := encodedRoot(t, tr)

	node := d.Layout("Node", nil)
	n := int(fieldNumber(node.Field("n").In(image)))
	require.Equal(t, root.Count(), n)
	require.EqualValues(t, 1, fieldNumber(node.Field("level").In(image)))
	prefix := int(fieldNumber(node.Field("prefix").In(image)))
	require.GreaterOrEqual(t, prefix, len(stem))
	tails := int(fieldNumber(node.Field("cell bytes").In(image))) - prefix

	inner := d.Layout("Inner node", map[string]int{"n": n, "p": prefix, "t": tails})
	slot := d.Layout("Inner slot", nil)
	require.Equal(t, innerSlotBytes, slot.End())
	at := inner.Field("tails").Offset
	for i := range n {
		require.Equal(t, root.Child(i), fieldNumber(inner.Field("children").In(image)[8*i:8*i+8]))
		s := inner.Field("slots").In(image)[i*slot.End():]
		length := int(fieldNumber(slot.Field("separator length").In(s)))
		require.EqualValues(t, at, fieldNumber(slot.Field("offset").In(s)))
		head := fieldNumber(inner.Field("heads").In(image)[4*i : 4*i+4])
		if i == 0 {
			require.Zero(t, length)
			require.Zero(t, head)
			continue
		}
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(head))
		got := append(bytes.Clone(inner.Field("prefix").In(image)), b[:min(length, 4)]...)
		tail := max(0, length-4)
		got = append(got, image[at:at+tail]...)
		at += tail
		want, cut := root.Separator(i, nil)
		require.False(t, cut)
		require.Equal(t, string(want), string(got))
	}
	require.Equal(t, inner.End(), at)
	require.Empty(t, bytes.Trim(image[at:], "\x00"), "behind the tails")
}

func TestFormatBitsOfLengths(t *testing.T) {
	table := formatdoc.Open(t).Table("Bits of lengths")
	mask := map[string]int{}
	fields, ranges := table.Column("field"), table.Column("bits")
	for i, meaning := range table.Column("meaning") {
		var from, to int
		if n, _ := fmt.Sscanf(ranges[i], "%d to %d", &from, &to); n == 1 {
			to = from
		}
		word, _, _ := bytes.Cut([]byte(meaning), []byte(":"))
		mask[fields[i]+", "+string(word)] = (1<<(to+1) - 1) &^ (1<<from - 1)
	}
	require.Equal(t, map[string]int{
		"key length, bytes of the key in the cell": lengthMask,
		"key length, reserved":                     keyReserved,
		"key length, long":                         keyLong,
		"value length, bytes of the value, or of the reference, in the cell": lengthMask,
		"value length, kind of the value":                                    kindMask << kindShift,
		"value length, reserved":                                             valueReserved,
		"separator length, bytes of head and tail":                           lengthMask,
		"separator length, reserved":                                         cutReserved,
		"separator length, cut":                                              separatorCut,
	}, mask)

	tr := newTree()
	_, err := Apply(tr, rootID, []Op{{Key: []byte("key"), Value: []byte("value")}})
	require.NoError(t, err)
	image := encodedRoot(t, tr)
	require.NoError(t, CheckPage(image))
	slots := MuxSize + headerBytes + headBytes
	for _, reserved := range []struct{ at, bits int }{{slots + 2, keyReserved}, {slots + 4, valueReserved}, {slots + 4, 3 << kindShift}} {
		for left := reserved.bits; left != 0; left &= left - 1 {
			bit := 1 << bits.TrailingZeros(uint(left))
			if reserved.bits == 3<<kindShift {
				bit = reserved.bits
			}
			damaged := bytes.Clone(image)
			v := binary.LittleEndian.Uint16(damaged[reserved.at:])
			binary.LittleEndian.PutUint16(damaged[reserved.at:], v|uint16(bit))
			require.ErrorIs(t, CheckPage(damaged), ErrMalformed, "bit %#x at %d", bit, reserved.at)
		}
	}
}

func TestFormatLimits(t *testing.T) {
	d := formatdoc.Open(t)
	require.Equal(t, map[string]uint64{
		"key": MaxKey, "value": MaxValue, "part of a key in a leaf": MaxInlineKey,
		"key and value together in a leaf": MaxInline, "separator": MaxSeparator,
	}, d.Table("Limits").Numbers("limit", "bytes"))
	require.Equal(t, map[string]uint64{
		"in the cell": uint64(Inline), "in a value run; the cell has a reference": uint64(Run),
		"in extents, which a run lists; the cell has a reference":             uint64(Extents),
		"in the page of a record group that carried it; the cell has a place": uint64(Logged),
	}, d.Table("Value kinds").Numbers("value", "kind"))
	require.Contains(t, d.Layout("Node", nil).Field("level").Constraint, fmt.Sprintf("at most %d", MaxHeight))
	require.Equal(t, refBytes, d.Layout("Reference", nil).End())
	require.Equal(t, loggedBytes, d.Layout("Place", nil).End())
}

// encodedRoot returns the page image of the root, checked.
func encodedRoot(t *testing.T, tr *tree) []byte {
	t.Helper()
	root, err := tr.Node(rootID)
	require.NoError(t, err)
	image := make([]byte, PageSize)
	root.Encode(image[MuxSize:], tr.memory.Even)
	require.NoError(t, CheckPage(image))
	return image
}

// fieldNumber is a little-endian integer of 1 to 8 bytes.
func fieldNumber(b []byte) uint64 {
	var v uint64
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v
}

// headByDoc returns the number that docs/format.md makes of the first four bytes of b.
func headByDoc(b []byte) uint64 {
	var four [4]byte
	copy(four[:], b)
	return uint64(binary.BigEndian.Uint32(four[:]))
}
