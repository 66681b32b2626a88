package table

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// keys are items; the place of an item is the number of its key.
type keys struct {
	list [][]byte
	mask uint64 // applied to the hash: few bits make long chains
}

func (k *keys) Hash(p uint64) uint64          { return xxh3.Hash(k.list[p]) & k.mask }
func (k *keys) Equal(p uint64, b []byte) bool { return bytes.Equal(k.list[p], b) }

func (t *Table) check(tb testing.TB) {
	seen, used := 0, 0
	for i := range t.n {
		for b := t.bucket(i); b != nil; b = t.next(b) {
			for slot := range slots {
				if taken(b, slot) {
					seen++
					require.Equal(tb, i, t.index(t.items.Hash(b[1+slot]&placeMask)), "an entry in the wrong chain")
				}
			}
			if n := t.next(b); n != nil {
				used++
				require.EqualValues(tb, filterFull, filter(b), "a gap before the chain's end")
				require.NotZero(tb, filter(n), "an empty overflow bucket")
			}
		}
	}
	require.Equal(tb, t.entries, seen)
	for l := t.free; l != 0; l = t.overflow(l)[0] & linkMask {
		used++
	}
	require.Equal(tb, len(t.over)/words, used, "an overflow bucket is lost")
}

func TestModel(t *testing.T) {
	for _, mask := range []uint64{^uint64(0), 0xff << 56, 0xf00000000000000f, 0} {
		r := rand.New(rand.NewPCG(1, mask))
		k := &keys{mask: mask}
		n, steps := 5000, 60000
		if mask != ^uint64(0) {
			n, steps = 300, 6000
		}
		for i := range n * 2 { // two places for each key
			k.list = append(k.list, binary.BigEndian.AppendUint64(nil, uint64(i%n)))
		}
		tab, model := New(k), map[int]uint64{}
		for step := range steps {
			i := r.IntN(n)
			h := k.Hash(uint64(i))
			place, ok := tab.Find(h, k.list[i])
			want, there := model[i]
			require.Equal(t, there, ok)
			require.Equal(t, want, place)
			grow := step%(steps/3) < steps/5
			switch {
			case !ok && (grow || r.IntN(3) == 0):
				model[i] = uint64(i)
				tab.Insert(h, uint64(i))
			case ok && r.IntN(2) == 0:
				model[i] = uint64((i + n) % (2 * n))
				if place >= uint64(n) {
					model[i] = uint64(i)
				}
				tab.Replace(h, place, model[i])
			case ok && !grow:
				delete(model, i)
				tab.Remove(h, place)
			}
			if step%997 == 0 {
				tab.check(t)
			}
		}
		assert.Equal(t, len(model), tab.Len())
		seen, from := map[uint64]bool{}, uint64(0)
		for more := true; more; {
			places, last := tab.Scan(from, nil)
			for _, p := range places {
				require.False(t, seen[p])
				require.GreaterOrEqual(t, k.Hash(p), from)
				require.LessOrEqual(t, k.Hash(p), last)
				seen[p] = true
			}
			from, more = last+1, last != ^uint64(0)
		}
		assert.Len(t, seen, len(model))
	}
}

func BenchmarkFind(b *testing.B) {
	k := &keys{mask: ^uint64(0)}
	t := New(k)
	for i := range 1_000_000 {
		k.list = append(k.list, binary.BigEndian.AppendUint64(nil, uint64(i)))
		t.Insert(k.Hash(uint64(i)), uint64(i))
	}
	i := uint64(0)
	for b.Loop() {
		i = (i + 7919) % 1_000_000
		if _, ok := t.Find(k.Hash(i), k.list[i]); !ok {
			b.Fatal()
		}
	}
}

// TestLikely: Likely returns the same place as Find, unless two entries look alike.
func TestLikely(t *testing.T) {
	k := &keys{mask: math.MaxUint64}
	table := New(k)
	_, ok := table.Likely(1)
	require.False(t, ok)
	for i := range 5000 {
		k.list = append(k.list, fmt.Append(nil, "key", i))
		table.Insert(k.Hash(uint64(i)), uint64(i))
	}
	right := 0
	for i := range 5000 {
		h := k.Hash(uint64(i))
		table.Touch(h)
		if p, ok := table.Likely(h); ok && p == uint64(i) {
			right++
		}
	}
	require.Greater(t, right, 4500, "one in nine buckets has an overflow bucket, which Likely does not look at")
}
