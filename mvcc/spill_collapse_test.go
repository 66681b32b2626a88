package mvcc

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpilledAndOverwritten: a transaction with a spilled write set may overwrite and delete its own records as often
// as it likes. It takes room for its final records, for some segments, and for the final records again while the set
// is rewritten. The size limit of the file is a fraction of all that is written. What the transaction has read of its
// own writes does not change.
func TestSpilledAndOverwritten(t *testing.T) {
	inTurn(t)
	for _, c := range []struct {
		name               string
		bytes, times, keys int
		deletes, reads     bool
	}{
		{"runs", 3000, 20_000, 300, false, false},
		{"runs that are deleted", 3000, 20_000, 300, true, false},
		{"runs that are read", 3000, 20_000, 300, false, true},
		{"longer runs", 100 << 10, 1000, 10, false, false},
		{"longer runs that are deleted and read", 100 << 10, 1000, 10, true, true},
		{"large values", 2 << 20, 60, 2, false, false},
		{"large values that are deleted", 2 << 20, 60, 2, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := Options{Durability: Buffered, Manual: true, MemoryLimit: 1 << 20}
			opts.Store.MaxFileSize = 64 << 20
			e := newEngine(t, opts)
			rng := rand.New(rand.NewPCG(1, 2))
			tx := begin(t, e, TxOptions{})
			want := model{}
			value := make([]byte, c.bytes)
			var most int64
			for i := range c.times {
				k := fmt.Sprintf("key%05d", rng.IntN(c.keys))
				for j := range 8 {
					value[j*len(value)/8] = byte(rng.Uint32())
				}
				require.NoError(t, tx.Put([]byte(k), value), i)
				want[k] = string(value)
				for range 1 + 20_000/c.times { // so that the set leaves memory
					small := fmt.Sprintf("small%05d", rng.IntN(2000))
					require.NoError(t, tx.Put([]byte(small), value[:100]), i)
					want[small] = string(value[:100])
				}
				if c.deletes && i%3 == 0 {
					k := fmt.Sprintf("key%05d", rng.IntN(c.keys))
					require.NoError(t, tx.Delete([]byte(k)), i)
					delete(want, k)
				}
				if c.reads {
					k := fmt.Sprintf("key%05d", rng.IntN(c.keys))
					v, ok, err := tx.Get([]byte(k))
					require.NoError(t, err)
					w, there := want[k]
					require.Equal(t, there, ok)
					require.True(t, string(v) == w)
				}
				most = max(most, e.store.SpaceStats().FileBytes-e.store.SpaceStats().FreeBytes)
			}
			require.NotNil(t, tx.set.Spilled())
			live := int64(0)
			for _, v := range want {
				live += int64(len(v))
			}
			t.Logf("%d KiB at most, live %d, written %d", most>>10, live>>10, c.times*c.bytes>>10)
			require.Less(t, most, 3*live+8<<20)
			require.NoError(t, tx.Commit())
			view := begin(t, e, TxOptions{ReadOnly: true})
			for k, v := range want {
				require.True(t, get(t, view, k) == v, k)
			}
			n, err := view.Len()
			require.NoError(t, err)
			require.EqualValues(t, len(want), n)
			require.NoError(t, view.Rollback())
			require.NoError(t, e.Checkpoint())
			require.NoError(t, e.Check(t.Context()))
		})
	}
}

// TestReadersOfWhatIsCollapsed: slices of a spilled write set that lookups and cursors have returned, and readers of
// its large values, stay unchanged when the set is rewritten and other transactions write large values meanwhile.
func TestReadersOfWhatIsCollapsed(t *testing.T) {
	inTurn(t)
	opts := spilling(Durable)
	opts.Store.SegmentPages = 8 // so that little space is unused at the ends of segments
	e := newEngine(t, opts)
	tx := begin(t, e, TxOptions{})
	large := bytes.Repeat([]byte("large"), 20_000)
	require.NoError(t, tx.Put([]byte("large"), large))
	type held struct{ slice, copied []byte }
	var slices []held
	var first io.Reader
	collapsed, given, kept := 0, false, false
	for i := 0; collapsed < 3; i++ {
		require.Less(t, i, 100_000, "nothing was written anew")
		require.NoError(t, tx.Put(fmt.Appendf(nil, "%03d", i%300), bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 50+i%5/4*700)))
		s := tx.set.Spilled()
		if s == nil {
			continue
		}
		if first == nil {
			r, _, ok, err := tx.ValueReader([]byte("large"))
			require.NoError(t, err)
			require.True(t, ok)
			first = r
			require.NoError(t, tx.Put([]byte("large"), bytes.Repeat([]byte("other"), 20_000)))
		}
		at := fmt.Appendf(nil, "%03d", i/7%300)
		v, ok, err := tx.Get(at)
		require.NoError(t, err)
		if ok {
			slices = append(slices, held{v, bytes.Clone(v)})
		}
		if c := tx.Cursor(); collapsed > 0 && i%100 == 0 && c.Seek(at) {
			v, err := c.Value()
			require.NoError(t, err)
			slices = append(slices, held{v, bytes.Clone(v)})
			given = true
		}
		if len(s.Layers()) > 1 {
			before := e.tree.sets.budget.Collapsed()
			require.NoError(t, tx.spill(false))
			if e.tree.sets.budget.Collapsed() > before {
				collapsed++
				kept = kept || given
			}
		}
	}
	for i := range 20 {
		put(t, e, fmt.Sprint("beside", i), string(bytes.Repeat([]byte{0xAA}, 100_000)))
	}
	for i, h := range slices {
		require.True(t, bytes.Equal(h.copied, h.slice), "slice %d of %d", i, len(slices))
	}
	got, err := io.ReadAll(first)
	require.NoError(t, err)
	require.True(t, bytes.Equal(large, got))
	require.True(t, kept, "nothing was kept for the cursor")
	require.NoError(t, tx.Rollback())
	require.NoError(t, e.Check(t.Context()))
}
