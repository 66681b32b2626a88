package writeset

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/logstore"

	"github.com/stretchr/testify/require"
)

// spillKey returns a key of a random kind; some are too long for a leaf.
func spillKey(rng *rand.Rand) []byte {
	n := rng.IntN(2000)
	if n%97 == 0 {
		return append(fmt.Appendf(nil, "long%04d", n), bytes.Repeat([]byte{'k'}, btree.MaxInlineKey+n/2)...)
	}
	return fmt.Appendf(nil, "key%05d", n)
}

// spillValue returns a value of a random kind: small enough for the leaf, or stored in a run.
func spillValue(rng *rand.Rand) []byte {
	size := rng.IntN(120)
	if rng.IntN(40) == 0 {
		size = 1000 + rng.IntN(9000)
	}
	return append(bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, size), fmt.Sprint(rng.IntN(1e6))...)
}

// TestSpillModel writes, overwrites and deletes until most of the set has left memory many times and has been
// merged and rewritten. All views of it agree with a map. In the end, all of it is in layers, which have the same
// contents and leave no segment behind.
func TestSpillModel(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newStore(t)
			rng := rand.New(rand.NewPCG(seed, 7))
			var b Budget
			b.Init(24 << 10)
			var w Set
			model := setModel{}
			for step := range 20_000 {
				key := spillKey(rng)
				if rng.IntN(4) == 0 {
					w.Delete(key)
					model[string(key)] = nil
				} else {
					value := string(spillValue(rng))
					w.Put(key, []byte(value))
					model[string(key)] = &value
				}
				if b.Charge(&w) {
					require.LessOrEqual(t, b.Bytes(), b.limit+b.limit/2)
					rest, err := b.Spill(&w, s, logstore.ForWrites, nil)
					require.NoError(t, err)
					require.Empty(t, rest)
					require.NoError(t, b.Tidy(&w, nil))
				}
				if step%2000 == 1999 {
					model.compareSpilled(t, &w, rng)
				}
			}
			require.Greater(t, b.Layers(), uint64(2*mergeLayers))
			require.NotZero(t, b.Collapsed())

			_, err := b.Spill(&w, s, logstore.ForWrites, nil)
			require.NoError(t, err)
			require.Zero(t, w.Len())
			model.compareSpilled(t, &w, rng)
			model.compareLayers(t, s, w.Spilled())
			require.EqualValues(t, len(slices.Collect(w.Hashes)), w.Spilled().Keys())

			w.Spilled().Discard()
			for _, g := range s.Segments() {
				require.NotEqual(t, logstore.Values, g.State)
			}
			w.Reset()
			require.True(t, w.Empty())
			require.Zero(t, b.Bytes())
		})
	}
}

// compareSpilled compares all results of a set that has spilled with m.
func (m setModel) compareSpilled(t *testing.T, w *Set, rng *rand.Rand) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(m))
	i := 0
	require.NoError(t, w.Each(func(key []byte, deleted bool) error {
		require.Equal(t, keys[i], string(key))
		require.Equal(t, m[keys[i]] == nil, deleted)
		i++
		return nil
	}))
	require.Equal(t, len(keys), i)

	base := []string{"", "a", "key00000", "key00777x", "long", "z"}
	visible := append([]string(nil), base...)
	for k, v := range m {
		if v != nil {
			visible = append(visible, k)
		}
	}
	slices.Sort(visible)
	visible = slices.Compact(visible)
	visible = slices.DeleteFunc(visible, func(k string) bool {
		v, written := m[k]
		return written && v == nil
	})
	over := w.Over(newSliceCursor(base...))
	c := NewMerge(over, w)
	i = 0
	for ok := c.First(); ok; ok = c.Next() {
		require.Equal(t, visible[i], string(c.Key()))
		en, ok := c.Entry()
		if !ok {
			var err error
			en, ok, err = over.Entry()
			require.NoError(t, err)
		}
		_, written := m[visible[i]]
		require.Equal(t, written, ok)
		if ok {
			requireEntry(t, m, en)
		}
		i++
	}
	require.NoError(t, c.Err())
	require.Equal(t, len(visible), i)
	for ok := c.Last(); ok; ok = c.Prev() {
		i--
		require.Equal(t, visible[i], string(c.Key()))
	}
	require.Zero(t, i)

	for range 200 {
		key := spillKey(rng)
		en, ok, err := w.Find(key)
		require.NoError(t, err)
		_, written := m[string(key)]
		require.Equal(t, written, ok)
		if ok {
			requireEntry(t, m, en)
		}
		i, _ := slices.BinarySearch(visible, string(key))
		require.Equal(t, i < len(visible), c.Seek(key))
		if i < len(visible) {
			require.Equal(t, visible[i], string(c.Key()))
		}
		require.Equal(t, i+1 < len(visible), c.Next())
		if i+1 < len(visible) {
			require.Equal(t, visible[i+1], string(c.Key()))
		}

		var other Set
		other.Put(key, nil)
		require.Equal(t, written, w.Intersects(&other))
		require.Equal(t, written, other.Intersects(w))
		to := spillKey(rng)
		i, _ = slices.BinarySearch(keys, string(key))
		require.Equal(t, i < len(keys) && keys[i] < string(to), w.Overlaps(key, to))
	}
}

// compareLayers compares the contents of the layers with m after the whole set has spilled.
func (m setModel) compareLayers(t *testing.T, s *logstore.Store, spill *Spill) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(m))
	hidden, i := 0, 0
	c := MergeLayers(spill.Layers(), func(btree.Ref) { hidden++ })
	for c.Next() {
		op, ref, leads := c.Op()
		want := m[keys[i]]
		require.Equal(t, keys[i], string(op.Key))
		require.Equal(t, want == nil, op.Delete)
		require.Equal(t, len(op.Key) > btree.MaxInlineKey || want != nil && !btree.FitsInline(len(op.Key), len(*want)), leads)
		switch {
		case leads:
			require.Equal(t, btree.RunKeyLen(op.Key), ref.KeyLen)
			payload, err := s.Run(ref.ID)
			require.NoError(t, err)
			value := ""
			if want != nil {
				value = *want
			}
			require.Equal(t, keys[i][:ref.KeyLen]+value, string(payload))
		case want != nil:
			require.Equal(t, *want, string(op.Value))
		}
		i++
	}
	require.NoError(t, c.Err())
	require.Equal(t, len(keys), i)
	require.NotZero(t, hidden)
}
