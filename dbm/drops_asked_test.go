package dbm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDropsAskedMeanwhile: a drop that is committed while background work finds nothing, or fails, is carried out
// without waiting for the next commit.
func TestDropsAskedMeanwhile(t *testing.T) {
	db := newSpaced(t, nil)
	d := &db.drops
	d.mu.Lock()
	d.under = true // as if dropAll were amid a transaction
	d.mu.Unlock()
	d.left.Store(1)
	db.goOnDropping()
	require.True(t, d.goesOn(true))
	require.False(t, d.goesOn(true), "nobody has asked since")
	d.left.Store(0)
}

// TestFinishDropsDoesNotCount: a drop that others have carried out before it was counted hides no other one.
func TestFinishDropsDoesNotCount(t *testing.T) {
	db := newSpaced(t, nil)
	require.NoError(t, db.CreateKeyspace("a"))
	require.NoError(t, db.Keyspace("a").Put([]byte("k"), []byte("v")))
	db.drops.mu.Lock()
	db.drops.under = true // nobody else deletes it
	db.drops.mu.Unlock()
	require.NoError(t, db.DropKeyspace("a"))
	db.drops.left.Store(0)
	require.NoError(t, db.FinishDrops(t.Context()))
	require.NoError(t, db.View(func(tx *Tx) error {
		entry, _, err := db.firstDropped(tx)
		require.Nil(t, entry)
		return err
	}))
	require.Zero(t, db.Dropping())
}
