package redo

import (
	"bytes"
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/logstore"

	"github.com/stretchr/testify/require"
)

// cases are streams of one record each.
func cases() []btree.Op {
	long := bytes.Repeat([]byte("k"), btree.MaxInlineKey+1)
	return []btree.Op{
		{Key: []byte("key"), Value: []byte("value")},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte("gone"), Delete: true},
		{Key: []byte("run"), Ref: &btree.Ref{Kind: btree.Run, ID: 77, ValueLen: 5000}},
		{Key: []byte("list"), Ref: &btree.Ref{Kind: btree.Extents, ID: 1 << 40, ValueLen: btree.MaxValue}},
		{Key: long, Ref: &btree.Ref{Kind: btree.Run, ID: 9, KeyLen: uint32(len(long))}},
	}
}

// readOps is Read of a stream without special records.
func readOps(b []byte, f func(op btree.Op)) error { return Read(b, f, nil) }

func TestRedoRoundTrip(t *testing.T) {
	var stream []byte
	cases := cases()
	for i := range cases {
		stream = Append(stream, &cases[i])
	}
	for _, padding := range []int{0, 1, logstore.BodySize} {
		i := 0
		err := readOps(append(bytes.Clone(stream), make([]byte, padding)...), func(op btree.Op) {
			require.Equal(t, cases[i].Key, op.Key)
			require.Equal(t, len(cases[i].Value), len(op.Value))
			require.Equal(t, cases[i].Delete, op.Delete)
			require.Equal(t, cases[i].Ref, op.Ref)
			i++
		})
		require.NoError(t, err)
		require.Equal(t, len(cases), i)
	}
}

func TestRedoRefused(t *testing.T) {
	for name, stream := range map[string][]byte{
		"range delete, reserved":   {5, 1, 'a'},
		"tree id, reserved":        {codePut | 1<<6, 1, 1, 1, 'a', 'b'},
		"bit 7, reserved":          {codePut | 1<<7, 1, 1, 'a', 'b'},
		"no key length":            {codePut},
		"key cut short":            {codeDelete, 2, 'a'},
		"value cut short":          {codePut, 1, 5, 'a', 'b'},
		"run without address":      {codeRun, 1, 'a', 9, 1, 2, 3},
		"key longer than any":      {codeDelete, 0xFF, 0xFF, 0xFF, 0x7F},
		"length of too many bytes": {codeDelete, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01},
		"inline value too long":    append([]byte{codePut, 1, 0x88, 0x27, 'a'}, make([]byte, 5000)...),
	} {
		require.ErrorIs(t, readOps(stream, func(btree.Op) {}), logstore.ErrCorrupt, name)
	}
}

// FuzzRedo reads any bytes as a redo stream. What is read is written again the same.
func FuzzRedo(f *testing.F) {
	cases := cases()
	for i := range cases {
		f.Add(Append(nil, &cases[i]))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		var ops []btree.Op
		if readOps(stream, func(op btree.Op) { ops = append(ops, op) }) != nil {
			return
		}
		var again []byte
		for i := range ops {
			again = Append(again, &ops[i])
		}
		n := 0
		require.NoError(t, readOps(again, func(op btree.Op) {
			require.Equal(t, ops[n].Key, op.Key)
			n++
		}))
		require.Equal(t, len(ops), n)
	})
}
