package mvcc

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestPartsAreEqual: an incremental flush of everything leaves at most a few parts to its last flush, which needs room
// for all that it writes at once. If each part took a fixed share of what is left, the last flush would be large: a
// file of 200 MB of records grew by 44 MiB two seconds after a load.
func TestPartsAreEqual(t *testing.T) {
	opts := Options{Durability: Buffered, Manual: true, RedoLimit: 64 << 20}
	opts.PartBytes = 16 << 10
	e := newEngine(t, opts)
	const records = 20_000
	rng := rand.New(rand.NewPCG(1, 2))
	write := func(key func(i int) int) {
		for i := 0; i < records; i += 100 {
			tx := begin(t, e, TxOptions{})
			for j := range 100 {
				require.NoError(t, tx.Put(fmt.Appendf(nil, "%08d", key(i+j)), make([]byte, 100)))
			}
			require.NoError(t, tx.Commit())
		}
	}
	dirty := func() (pages int64) {
		require.NoError(t, e.tree.withMerged(func() error {
			pages = e.pages.DirtyBytes() / logstore.PageSize
			return nil
		}))
		return pages
	}
	write(func(i int) int { return i })
	require.NoError(t, e.Checkpoint())
	write(func(int) int { return rng.IntN(records) })
	before := dirty()
	require.Greater(t, before, int64(mostParts*8))
	e.checkpoints.mu.Lock()
	require.NoError(t, e.flusher.flushParts())
	e.checkpoints.mu.Unlock()
	require.Less(t, dirty(), before/8)
	require.NoError(t, e.Checkpoint())
	require.NoError(t, e.Check(t.Context()))
}
