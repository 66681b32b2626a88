package mvcc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestGuardsInTheList: a commit that has changed a guarded record and waits in the commit list for its batch is found.
// A commit of another key is no conflict, even if that key has the same slot in the table of last writes.
func TestGuardsInTheList(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true, Thresholds: Thresholds{LastSlots: 1}})
	require.NoError(t, SetKeyspaces(e))
	for _, other := range []string{"guarded", "another"} {
		put(t, e, "guarded", "before")
		tx := begin(t, e, TxOptions{})
		v, ok, err := GuardedGet(tx, []byte("guarded"))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "before", string(v))
		require.NoError(t, tx.Put([]byte("mine"), nil))
		before, release := e.Pushed(), e.HoldToken()
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- e.WriteOne([]byte(other), []byte("after"), false) }()
		require.Eventually(t, func() bool { return e.Pushed() == before+1 }, patience, 100*time.Microsecond)
		go func() { second <- tx.Commit() }()
		time.Sleep(time.Millisecond)
		release()
		require.NoError(t, <-first)
		if other == "guarded" {
			require.ErrorIs(t, <-second, ErrConflict)
		} else {
			require.NoError(t, <-second)
		}
	}
}

// TestGuardedGetOfCut: GuardedGet sees the cuts of its transaction, as Get does.
func TestGuardedGetOfCut(t *testing.T) {
	e := newEngine(t, cutting(Options{Manual: true}))
	put(t, e, "a", "1")
	put(t, e, "b", "2")
	tx := begin(t, e, TxOptions{})
	require.NoError(t, tx.DeleteRange([]byte("a"), []byte("b")))
	require.Len(t, tx.cuts, 1)
	_, ok, err := GuardedGet(tx, []byte("a"))
	require.NoError(t, err)
	require.False(t, ok)
	require.False(t, guarded(tx))
	v, ok, err := GuardedGet(tx, []byte("b"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "2", string(v))
	require.NoError(t, tx.Commit())
}
