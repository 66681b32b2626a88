package overlay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
)

// TestSort: the result is the last op of each key, in key order. The values of the other ops are dropped.
func TestSort(t *testing.T) {
	key := func(s string) []byte { return []byte(s) }
	ref := func(id uint64) *btree.Ref { return &btree.Ref{ID: id, ValueLen: 5000, Kind: btree.Run} }
	ops := []btree.Op{
		{Key: key("prefix-b"), Ref: ref(1)}, {Key: key("prefix-c"), Value: key("1")},
		{Key: key("a")}, {Key: key("prefix-b"), Ref: ref(2)}, {Key: nil, Value: key("empty")},
		{Key: key("prefix-b"), Delete: true}, {Key: key("a\x00")}, {Key: key("prefix-c"), Value: key("2")},
	}
	var dropped []uint64
	var s Sorter
	var got []btree.Op
	failed := errors.New("failed")
	err := s.Sorted(tableOf(ops), 0, len(ops), func(r btree.Ref) { dropped = append(dropped, r.ID) }, func(sorted []btree.Op) error {
		got = slices.Clone(sorted)
		return failed
	})
	require.ErrorIs(t, err, failed)
	var keys []string
	for _, op := range got {
		keys = append(keys, string(op.Key))
	}
	require.Equal(t, []string{"", "a", "a\x00", "prefix-b", "prefix-c"}, keys)
	require.True(t, got[3].Delete && got[3].Marks)
	require.Equal(t, "2", string(got[4].Value))
	require.Equal(t, []uint64{1, 2}, dropped)
	require.Equal(t, make([]btree.Op, cap(s.chunk)), s.chunk[:cap(s.chunk)], "keeps what it sorted from the collector")
}

// TestSortModel does the same with many ops and many distributions of keys.
func TestSortModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	keys := map[string]func() []byte{
		"random":      func() []byte { return binary.BigEndian.AppendUint64(nil, rng.Uint64()) },
		"few":         func() []byte { return fmt.Append(nil, rng.IntN(50)) },
		"alike":       func() []byte { return fmt.Appendf(nil, "they begin alike %d", rng.IntN(5000)) },
		"two heads":   func() []byte { return binary.BigEndian.AppendUint64(nil, -(rng.Uint64() & 1)) },
		"short":       func() []byte { return make([]byte, rng.IntN(20)) },
		"logarithmic": func() []byte { return binary.BigEndian.AppendUint64(nil, 1<<rng.IntN(64)|rng.Uint64N(3)) },
	}
	var s Sorter // used again and again
	for name, key := range keys {
		for _, n := range []int{1, 2, 3, 5, 100, 3000, 2*chunkOps + 7} {
			ops := make([]btree.Op, n)
			last := map[string]uint64{}
			for i := range ops {
				ops[i] = btree.Op{Key: key(), Ref: &btree.Ref{ID: uint64(i + 1)}}
				last[string(ops[i].Key)] = uint64(i + 1)
			}
			dropped := map[uint64]bool{}
			var got []btree.Op
			require.NoError(t, s.Sorted(tableOf(ops), 0, len(ops), func(r btree.Ref) { dropped[r.ID] = true }, func(sorted []btree.Op) error {
				got = append(got, sorted...)
				return nil
			}))
			require.True(t, slices.IsSortedFunc(got, func(a, b btree.Op) int { return bytes.Compare(a.Key, b.Key) }), name)
			require.Len(t, got, len(last), name)
			require.Len(t, dropped, n-len(got), name)
			for _, op := range got {
				if last[string(op.Key)] != op.Ref.ID || dropped[op.Ref.ID] {
					t.Fatalf("%s: %q is of op %d, dropped: %v", name, op.Key, op.Ref.ID, dropped[op.Ref.ID])
				}
			}
		}
	}
}

// tableOf returns a table of ops, each in a batch of its own.
func tableOf(ops []btree.Op) *Memtable {
	m := NewMemtable()
	for i := range ops {
		m.Insert(&ops[i], writeset.HashKey(ops[i].Key), uint64(i+1))
	}
	m.Show()
	return m
}
