package mvcc

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestPartsFollowALoad: what a load has left to be written does not make the overwrites behind it flush all at once, a tree that grows
// everywhere does.
func TestPartsFollowALoad(t *testing.T) {
	e := newEngine(t, Options{Manual: true, Durability: Buffered, RedoLimit: 8 << 20})
	rng := rand.New(rand.NewPCG(1, 2))
	write := func(n int, key func() []byte) {
		for range n / 100 {
			tx := begin(t, e, TxOptions{})
			for range 100 {
				require.NoError(t, tx.Put(key(), make([]byte, 240)))
			}
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, e.withBaton(e.writeRedo))
	}
	parts := func() (n int, musts int64) {
		require.NoError(t, e.withBaton(func() error {
			e.noteRedo()
			n, musts = e.parts(), e.pages.MustPages()
			return nil
		}))
		return n, musts
	}
	const records = 60_000
	i := 0
	load := func() []byte { i++; return fmt.Appendf(nil, "%08d", i) }
	overwrite := func() []byte { return fmt.Appendf(nil, "%08d", 1+rng.IntN(records)) }
	write(records*3/4, load)
	n, _ := parts()
	require.Equal(t, 1, n)
	require.NoError(t, e.Checkpoint())
	write(records/4, load)
	_, left := parts()
	require.Greater(t, left, int64(500))
	write(12_000, overwrite)
	n, musts := parts()
	require.Equal(t, left, musts)
	require.Greater(t, n, 4)
	require.NoError(t, e.Housekeep())
	s, err := e.Stats()
	require.NoError(t, err)
	require.Positive(t, s.Pages.Parts)

	write(12_000, func() []byte { return fmt.Appendf(nil, "%08d %d", 1+rng.IntN(records), rng.IntN(10)) })
	n, _ = parts()
	require.Equal(t, 1, n)
}

// TestLonely: the more useless pages lie beside live ones, the fuller are the segments that are emptied; redo alone does not count.
func TestLonely(t *testing.T) {
	last := int64(0)
	for _, sparse := range []int64{0, 50, 100, 150, 1000} {
		n := lonely(logstore.Account{Live: 1000, Log: 5000, Sparse: sparse, Waiting: 1000, Held: 1000}, 256)
		require.True(t, n > last && n < 256 || n == last && sparse == 1000, "%d with %d", n, sparse)
		last = n
	}
	require.EqualValues(t, 32, lonely(logstore.Account{Live: 1000, Log: 5000}, 256))
	require.EqualValues(t, 32, lonely(logstore.Account{Live: 1000, Sparse: 200}, 256))
	require.EqualValues(t, 32, lonely(logstore.Account{}, 256))
}
