package mvcc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSharedSlots: all keys share one slot of the table of last writes. A transaction that has read something and
// writes many keys does not lose to commits of other keys, in whatever way these are committed. It loses to a commit
// of one of its keys, even if later commits of other keys have overwritten the slot.
func TestSharedSlots(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true, Thresholds: Thresholds{LastSlots: 1}})
	put(t, e, "read", "0")
	others := func(round int) {
		for i := range 50 { // each in its own batch
			put(t, e, fmt.Sprintf("one %d/%d", round, i), "")
		}
		tx := begin(t, e, TxOptions{})
		for i := range 2000 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "many %d/%d", round, i), nil))
		}
		require.NoError(t, tx.Commit())
	}
	for round := range 4 {
		tx := begin(t, e, TxOptions{})
		get(t, tx, "read")
		for i := range 1000 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "key %d", i), nil))
		}
		others(round)
		if round%2 == 0 {
			require.NoError(t, tx.Commit(), "lost to other keys")
			continue
		}
		put(t, e, "key 500", "newer")
		others(100 + round)
		require.ErrorIs(t, tx.Commit(), ErrConflict)
	}
	require.NoError(t, e.Close())
}
