package commit

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRecentWrites enters batches, asks for keys since random snapshots and compares with all that was entered. A key
// that was written is always found; one that was not is found only where the ring does not reach.
func TestRecentWrites(t *testing.T) {
	const size = 64
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var w LastWrites
		w.Init(1, size)
		seq := r.Uint64N(1 << 25) // the low bits wrap around
		if seed%4 == 0 {
			seq = 1<<seqBits - 50
		}
		first := seq + 1
		type write struct{ seq, hash uint64 }
		var all []write
		missing, keys, exact := uint64(0), 0, 0
		for range 300 {
			seq += 1 + r.Uint64N(3)
			n := r.IntN(6)
			if r.IntN(40) == 0 {
				n = size // too many keys for the ring
			}
			if n > size/2 {
				missing, keys = seq, 0
			}
			w.BeginBatch(seq, n)
			for range n {
				hash := r.Uint64N(200)
				w.Enter(seq, hash)
				all = append(all, write{seq, hash})
			}
			w.EndBatch()
			snapshot := first - 1 + r.Uint64N(seq-first+2)
			if r.IntN(2) == 0 {
				snapshot = max(first-1, seq-min(seq, r.Uint64N(20)))
			}
			asked := []uint64{r.Uint64N(200), r.Uint64N(200), r.Uint64N(200)}
			wrote, since := false, 0
			for _, x := range all {
				if x.seq > snapshot {
					since++
					wrote = wrote || x.hash == asked[0] || x.hash == asked[1] || x.hash == asked[2]
				}
			}
			_ = keys
			got := w.Wrote(snapshot, asked)
			require.True(t, got || !wrote, "seed %d: a write was missed", seed)
			if !wrote && since < size/2 && snapshot >= missing {
				require.False(t, got, "seed %d: %d writes since", seed, since)
				exact++
			}
		}
		require.Greater(t, exact, 20)
	}
}

// TestRecentWritesFar: for a very old snapshot the low bits of Seqs do not determine their order. Then the answer is
// that nothing is known.
func TestRecentWritesFar(t *testing.T) {
	for _, behind := range []uint64{farthest / 2, farthest, farthest + 1, 1 << seqBits, 1<<seqBits + 5, 1 << 40} {
		var w LastWrites
		w.Init(1, 16)
		for seq, hash := range map[uint64]uint64{10: 1} {
			w.BeginBatch(seq, 1)
			w.Enter(seq, hash)
			w.EndBatch()
		}
		w.BeginBatch(9+behind, 1)
		w.Enter(9+behind, 2)
		w.EndBatch()
		require.True(t, w.Wrote(9, []uint64{1}), "written")
		require.Equal(t, behind > farthest, w.Wrote(9, []uint64{3}))
	}
}

// TestRecentWritesOutOfOrder: after a batch with a lower Seq than the batch before it, nothing is known about earlier
// batches.
func TestRecentWritesOutOfOrder(t *testing.T) {
	var w LastWrites
	w.Init(1, 16)
	for _, seq := range []uint64{5, 7, 6} {
		w.BeginBatch(seq, 1)
		w.Enter(seq, seq)
		w.EndBatch()
	}
	require.True(t, w.Wrote(6, []uint64{7}))
	require.False(t, w.Wrote(7, []uint64{9}))
	w.Missing(8)
	require.True(t, w.Wrote(7, []uint64{9}))
	require.False(t, w.Wrote(8, []uint64{9}))
}

// TestRecentWritesBeside: a leader overwrites the whole ring many times while readers ask. The readers miss no key
// that was written before they asked.
func TestRecentWritesBeside(t *testing.T) {
	var w LastWrites
	w.Init(1, 64)
	rounds := uint64(200_000)
	if testing.Short() {
		rounds = 20_000
	}
	var done atomic.Uint64 // newest batch that is entered; batch n writes the key n
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for at := uint64(0); at < rounds; {
				at = done.Load()
				for _, back := range []uint64{0, 3, 20} {
					if at > back && !w.Wrote(at-back-1, []uint64{at - back}) {
						t.Errorf("a write %d Seqs ago was missed", back)
						return
					}
				}
			}
		})
	}
	for seq := uint64(1); seq <= rounds; seq++ {
		w.BeginBatch(seq, 3)
		w.Enter(seq, seq)
		w.Enter(seq, 1<<30+seq)
		w.EndBatch()
		done.Store(seq)
	}
	wg.Wait()
}
