package mvcc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLeaseAsked: a snapshot that is taken back during a call of its transaction is held until that call ends, and no longer.
func TestLeaseAsked(t *testing.T) {
	const age = 5 * time.Millisecond
	e := newEngine(t, Options{Manual: true, Leases: LeaseOptions{MaxAge: age}})
	put(t, e, "key", "value")
	tx := begin(t, e, TxOptions{ReadOnly: true})
	for tx.Enter() != nil { // on a busy machine it may be too old already
		require.NoError(t, tx.Rollback())
		tx = begin(t, e, TxOptions{ReadOnly: true})
	}
	time.Sleep(2 * age)
	require.NoError(t, e.endOldSnapshots())
	require.Equal(t, "value", get(t, tx, "key"))
	require.Equal(t, 1, e.registry.Count())
	tx.Leave()
	require.Zero(t, e.registry.Count())
	require.ErrorIs(t, tx.Enter(), ErrSnapshotTooOld)
	require.NoError(t, tx.Rollback())
}
