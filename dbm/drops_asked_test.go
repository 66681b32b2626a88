package dbm

import (
	"fmt"
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

// TestDropsTogether: small keyspaces are deleted several in a commit, large ones one by one, and a full file is no
// obstacle to either.
func TestDropsTogether(t *testing.T) {
	const small, records = 100, 10
	db := newSpaced(t, &Options{MaxFileSize: 4 << 20})
	db.drops.mu.Lock()
	db.drops.under = true // nobody else deletes them
	db.drops.mu.Unlock()
	sizes := []int{5000, 5000}
	for range small {
		sizes = append(sizes, records)
	}
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i, n := range sizes {
			in, err := tx.CreateKeyspace(fmt.Sprint(i))
			for k := 0; k < n && err == nil; k++ {
				err = in.Put(fmt.Appendf(nil, "%d", k), nil)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	for i := range sizes {
		require.NoError(t, db.DropKeyspace(fmt.Sprint(i)))
	}
	require.Equal(t, len(sizes), db.Dropping())
	for i, err := 0, error(nil); err == nil; i++ {
		if err = db.Put(fmt.Appendf(nil, "%d", i), make([]byte, 1000)); err != nil {
			require.ErrorIs(t, err, ErrFull)
		}
	}
	before := db.Stats().Commits
	require.NoError(t, db.FinishDrops(t.Context()))
	commits := int(db.Stats().Commits - before)
	require.LessOrEqual(t, commits, len(sizes)/dropSpaces+3)
	require.Zero(t, db.Dropping())
	n, err := db.Len()
	require.NoError(t, err)
	require.Less(t, db.Stats().Records-n, int64(10), "the catalog's own")
	require.NoError(t, db.Check(t.Context()))
}
