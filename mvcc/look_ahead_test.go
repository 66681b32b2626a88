package mvcc

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMergesWaitBehindALoad: records of a load are merged two seconds after its last commit, even if small commits
// continue. Each of these alone would delay the merge again.
func TestMergesWaitBehindALoad(t *testing.T) {
	inTurn(t)
	e := newEngine(t, Options{Manual: true, Durability: Buffered})
	e.tree.tables.backgroundFrom = 1000
	commit := func(from, to int) {
		tx := begin(t, e, TxOptions{})
		for i := from; i < to; i++ {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%06d", i*7919%100_003), make([]byte, 10)))
		}
		require.NoError(t, tx.Commit())
	}
	waits := func() bool {
		m := &e.maintenance
		m.checkpoints.mu.Lock()
		defer m.checkpoints.mu.Unlock()
		m.flusher.lag = 0
		require.NoError(t, m.lookAhead()(func() error { return nil }))
		return m.flusher.lag > 0
	}
	commit(0, 3000)
	require.True(t, waits())
	require.True(t, waits(), "merged right behind the load")
	require.NotZero(t, e.tree.tables.rest())
	e.maintenance.bulk = time.Now().Add(-idlePause)
	commit(3000, 3001)
	waits()
	require.False(t, waits(), "put off by a small commit")
	require.Zero(t, e.tree.tables.rest())
}
