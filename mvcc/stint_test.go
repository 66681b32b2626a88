package mvcc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The size of commits decides how many parts of a flush are written before the token is passed.
func TestStintParts(t *testing.T) {
	for _, c := range []struct {
		pages   int64
		batches uint64
		parts   int
	}{
		{0, 0, 1}, {1, 1, 1}, {50, 50, 1}, // small commits, however many
		{7, 1, 1}, {8, 1, 2}, {26, 1, 6}, {52, 2, 6},
		{250, 1, longestStint}, {10_000, 1, longestStint},
		{100, 0, longestStint}, // one commit that takes many steps
	} {
		require.Equal(t, c.parts, stintParts(c.pages, c.batches), c)
	}
}

// TestStints: with small commits a flush passes the token after each part, with large ones after many parts. All
// records can be read afterwards.
func TestStints(t *testing.T) {
	inTurn(t)
	for _, c := range []struct {
		name        string
		size        int // records of a commit during the flush
		least, most int64
	}{
		{"small", 1, 32, partPages + 8},
		{"large", 300, 4 * partPages, longestStint*partPages + 256 + 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e *Engine
			var at uint64 // number of pages when the flush continued
			var most int64
			beside := false
			committed := 0
			put := func(n int) {
				tx := begin(t, e, TxOptions{})
				for range n {
					require.NoError(t, tx.Put(fmt.Appendf(nil, "%08d", committed*7919%100003), make([]byte, 1000)))
					committed++
				}
				require.NoError(t, tx.Commit())
			}
			e = newEngine(t, Options{Thresholds: Thresholds{KeepInline: true}, Durability: Durable, Manual: true, MemoryLimit: 256 << 20, Step: func(p StepPoint) {
				if p != StepBetween || !beside {
					return
				}
				beside = false
				most = max(most, int64(e.store.Counters().Pages-at))
				put(c.size)
				at, beside = e.store.Counters().Pages, true
			}})
			for range 40 {
				put(200)
			}
			at, beside = e.store.Counters().Pages, true
			require.NoError(t, func() error {
				e.checkpoints.mu.Lock()
				defer e.checkpoints.mu.Unlock()
				return e.flusher.flush()
			}())
			beside = false
			require.GreaterOrEqual(t, most, c.least)
			require.LessOrEqual(t, most, c.most)
			require.NoError(t, e.Check(t.Context()))
		})
	}
}
